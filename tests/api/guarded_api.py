"""An API with the real doorkeeper and the real audit, on loopback."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from anthropic import AsyncAnthropic
from multidict import CIMultiDict
from tests.api.api_server import official_client

from mainspring.core import clock
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.request_observers import AuditObserver
from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.define.environments import EnvironmentRoutes
from mainspring.edges.api.routes.operate.audit import AuditRoutes
from mainspring.edges.api.routes.operate.halts import HaltRoutes
from mainspring.edges.api.routes.operate.keys import KeyRoutes
from mainspring.edges.api.routes.operate.tenants import TenantRoutes
from mainspring.log.records import Put, RecordRow, Records
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.api_keys import CreateKey, Keys, NewKey, ensure_first_key
from mainspring.service.access.audit import Audit
from mainspring.service.access.kill_switch import Halts
from mainspring.service.access.principal import Principal
from mainspring.service.access.tenants import CreateTenant, Tenants
from mainspring.service.authorization.authentication import Authenticator
from mainspring.service.resources.environments import Environments


@dataclass(frozen=True, slots=True)
class Answer:
    status_code: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:  # noqa: ANN401 (whatever came)
        return msgspec.json.decode(self.text)


@dataclass(frozen=True, slots=True)
class Http:
    """For what the official client does not have, or would not send."""

    session: aiohttp.ClientSession

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        async with self.session.get(path, params=params, headers=CIMultiDict(headers)) as response:
            return Answer(response.status, response.headers, await response.text())

    async def post(self, path: str, *, json: object = None) -> Answer:
        async with self.session.post(path, json=json) as response:
            return Answer(response.status, response.headers, await response.text())


@dataclass(frozen=True, slots=True)
class Guarded:
    url: str
    records: Records
    audit: Audit
    root: str
    """The first administrator's key."""

    def client(self, key: str) -> AsyncAnthropic:
        return official_client(self.url, key)

    @asynccontextmanager
    async def http(self, key: str | None = None, **headers: str) -> AsyncGenerator[Http]:
        own = {} if key is None else {"x-api-key": key}
        async with aiohttp.ClientSession(self.url, headers={**own, **headers}) as session:
            yield Http(session)

    async def key(self, asked: CreateKey, tenant: str = "default") -> NewKey:
        who = Principal(tenant=tenant, key_id="cli", role="admin", name="olga")
        return await Keys(self.records).create(who, asked)

    async def tenant(self, tenant: str) -> NewKey:
        """A tenant and the key of its administrator."""
        await Tenants(self.records).create(CreateTenant(id=tenant))
        return await self.key(CreateKey(name="boss", role="admin"), tenant)


async def add_record(records: Records, kind: str, id_: str, *, tenant: str = "default") -> None:
    """A record that only says that there is such a thing."""
    now = round(clock.now().timestamp() * 1e6)
    record = RecordRow(tenant=tenant, kind=kind, id=id_, created=now, updated=now, body=b"{}")
    await records.write(Put(row=record))


@asynccontextmanager
async def guarded(folder: Path) -> AsyncGenerator[Guarded]:
    async with open_sqlite(folder / "mainspring.db") as store:
        records = store.records
        root = await ensure_first_key(records)
        assert root is not None
        audit = Audit(records)
        routes = (
            *routes_of(EnvironmentRoutes(Environments(records))),
            *routes_of(KeyRoutes(Keys(records))),
            *routes_of(TenantRoutes(Tenants(records))),
            *routes_of(HaltRoutes(Halts(records))),
            *routes_of(AuditRoutes(audit)),
        )
        api = Api(
            routes, access_control=Authenticator(records), request_observers=[AuditObserver(audit)]
        )
        async with http_server(api.application()) as url:
            yield Guarded(url, records, audit, root)
