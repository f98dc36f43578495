"""An API with health, metrics and one resource, on loopback; and the operator's own address."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from tests.api.api_server import Tags

from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.request_observers import MetricsObserver, access_log
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.api.routes.define.environments import EnvironmentRoutes
from mainspring.edges.api.routes.operate.health import (
    HealthRoutes,
    MetricsRoutes,
    operations_application,
)
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import Store
from mainspring.service.authorization.authentication import (
    ANONYMOUS,
    AuthenticationResult,
    RequestCredentials,
)
from mainspring.service.resources.environments import Environments
from mainspring.service.telemetry.health import Health, HealthCheck
from mainspring.service.telemetry.instrumentation import StoreGauges
from mainspring.service.telemetry.metrics import Metrics


class Hinged(Tags):
    """Lets anybody in where no key is needed, as the real doorkeeper does."""

    async def admit(self, credentials: RequestCredentials, route: Route) -> AuthenticationResult:
        return (
            AuthenticationResult(who=ANONYMOUS)
            if route.is_open
            else await super().admit(credentials, route)
        )


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:  # noqa: ANN401 (whatever it answers)
        return msgspec.json.decode(self.text)


@dataclass(frozen=True, slots=True)
class Operated:
    url: str
    inside: str
    """The operator's own address."""
    metrics: Metrics
    store: Store

    async def get(self, path: str, key: str | None = None) -> Answer:
        return await self._get(f"{self.url}{path}", key)

    async def get_inside(self, path: str) -> Answer:
        return await self._get(f"{self.inside}{path}", None)

    async def _get(self, url: str, key: str | None) -> Answer:
        headers = {} if key is None else {"x-api-key": key}
        limit = aiohttp.ClientTimeout(total=60)
        async with (
            aiohttp.ClientSession(headers=headers, timeout=limit) as client,
            client.get(url) as response,
        ):
            return Answer(response.status, response.headers, await response.text())


@asynccontextmanager
async def operated(
    folder: Path, checks: Mapping[str, HealthCheck] | None = None
) -> AsyncGenerator[Operated]:
    async with open_sqlite(folder / "mainspring.db") as store:
        metrics = Metrics(version="1.2.3")
        health = Health(checks or {}, seconds=0.2)

        async def none_parked() -> int:
            return 0

        look = StoreGauges(metrics, sessions_parked=none_parked)
        routes = (
            *routes_of(EnvironmentRoutes(Environments(store.records))),
            *routes_of(HealthRoutes(health)),
            *routes_of(MetricsRoutes(metrics, look)),
        )
        observers = [MetricsObserver(metrics), access_log]
        api = Api(routes, access_control=Hinged(), request_observers=observers)
        async with (
            http_server(api.application()) as url,
            http_server(operations_application(health, metrics, look)) as inside,
        ):
            yield Operated(url, inside, metrics, store)
