"""An API with health, metrics and one resource, on loopback; and the operator's own address."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from tests.api.served import Tags

from mainspring.edges.api.app import Api, serving
from mainspring.edges.api.route import Route
from mainspring.edges.api.routes.environments import EnvironmentRoutes
from mainspring.edges.api.routes.health import (
    HealthRoutes,
    MetricsRoutes,
    operations_application,
)
from mainspring.edges.api.witnesses import MetricsWitness, access_log, together
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import Store
from mainspring.service.access.door import NOBODY
from mainspring.service.access.knock import Admission, Knock
from mainspring.service.describing.environments import Environments
from mainspring.service.watching.health import Check, Health
from mainspring.service.watching.metering import Looks
from mainspring.service.watching.metrics import Metrics


class Hinged(Tags):
    """Lets anybody in where no key is needed, as the real doorkeeper does."""

    async def admit(self, knock: Knock, route: Route) -> Admission:
        return Admission(who=NOBODY) if route.is_open else await super().admit(knock, route)


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
        limit = aiohttp.ClientTimeout(total=20)
        async with (
            aiohttp.ClientSession(headers=headers, timeout=limit) as client,
            client.get(url) as response,
        ):
            return Answer(response.status, response.headers, await response.text())


@asynccontextmanager
async def operated(
    folder: Path, checks: Mapping[str, Check] | None = None
) -> AsyncGenerator[Operated, None]:
    async with open_sqlite(folder / "mainspring.db") as store:
        metrics = Metrics(version="1.2.3")
        health = Health(checks or {}, seconds=0.2)

        async def none_parked() -> int:
            return 0

        look = Looks(metrics, sessions_parked=none_parked)
        routes = (
            *EnvironmentRoutes(Environments(store.records)).routes(),
            *HealthRoutes(health).routes(),
            *MetricsRoutes(metrics, look).routes(),
        )
        witness = together(MetricsWitness(metrics), access_log)
        api = Api(routes, doorkeeper=Hinged(), witness=witness)
        async with (
            serving(api.application()) as url,
            serving(operations_application(health, metrics, look)) as inside,
        ):
            yield Operated(url, inside, metrics, store)
