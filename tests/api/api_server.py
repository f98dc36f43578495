"""An API on loopback with the routes under test, and the official client pointed at it."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

from mainspring.core.errors import Unauthenticated
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import Route
from mainspring.log.records import Records
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.principal import ROLES, Principal
from mainspring.service.authorization.authentication import AuthenticationResult, RequestCredentials

Item = TypeVar("Item")


class HasId(Protocol):
    @property
    def id(self) -> str: ...


async def collect(pages: AsyncIterable[Item]) -> list[Item]:
    """Everything on all pages of a list."""
    return [item async for item in pages]


async def ids(pages: AsyncIterable[HasId]) -> list[str]:
    return [item.id async for item in pages]


class Tags:
    """A doorkeeper for tests: the key says who it is, as `tenant:role`."""

    async def admit(self, credentials: RequestCredentials, route: Route) -> AuthenticationResult:
        if route.is_open:
            return AuthenticationResult(who=Principal(tenant="", key_id="", role="viewer"))
        bearer = credentials.headers.get("authorization", "").removeprefix("Bearer ")
        tenant, _, role = (credentials.headers.get("x-api-key") or bearer).partition(":")
        if role not in ROLES:
            raise Unauthenticated("no such key")
        current = ROLES[ROLES.index(role)]
        principal = Principal(tenant=tenant, key_id="key_test", role=current, name=tenant)
        principal.require(route.role)
        return AuthenticationResult(who=principal)

    async def check_named(self, *_: object) -> None:
        pass


def official_client(url: str, key: str) -> AsyncAnthropic:
    # Loading the authorities of the machine takes 40 ms a client, and loopback has no TLS.
    http = DefaultAsyncHttpxClient(verify=False)
    return AsyncAnthropic(api_key=key, base_url=url, max_retries=0, timeout=60, http_client=http)


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    records: Records

    def client(self, key: str = "acme:admin") -> AsyncAnthropic:
        return official_client(self.url, key)


@asynccontextmanager
async def served(
    folder: Path, routes: Callable[[Records], Sequence[Route]]
) -> AsyncGenerator[Served]:
    async with open_sqlite(folder / "mainspring.db") as store:
        api = Api(routes(store.records), access_control=Tags())
        async with http_server(api.application()) as url:
            yield Served(url, store.records)
