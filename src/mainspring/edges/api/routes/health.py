"""`/healthz`, `/readyz` and `/metrics`: what those ask who keep a process running."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import msgspec
from aiohttp import web
from msgspec import Struct

from mainspring.core.errors import Forbidden
from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.access.tenants import ROOT
from mainspring.service.watching.health import Health, Readiness
from mainspring.service.watching.metrics import Metrics

HEALTHZ = "/healthz"
READYZ = "/readyz"
METRICS = "/metrics"
_ENCODER = msgspec.json.Encoder()

Look = Callable[[], Awaitable[None]]


class Alive(Struct, frozen=True, kw_only=True):
    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True)
class HealthRoutes:
    health: Health

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path=HEALTHZ,
                handle=self.alive,
                summary="Ask whether the process is alive",
                answer=Alive,
                is_open=True,
                is_extension=True,
            ),
            Route(
                method="GET",
                path=READYZ,
                handle=self.ready,
                summary="Ask whether the process can do its work; 503 if not",
                answer=Readiness,
                also={503: Readiness},
                is_open=True,
                is_extension=True,
            ),
        )

    async def alive(self, _call: Call[Nothing, Nothing]) -> Alive:
        return Alive()

    async def ready(self, _call: Call[Nothing, Nothing]) -> web.Response:
        return await _readiness(self.health)


@dataclass(frozen=True, slots=True)
class MetricsRoutes:
    """With a key. They tell of all tenants together, so it is one of the root tenant's."""

    metrics: Metrics
    look: Look

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path=METRICS,
                handle=self.read,
                summary="Read the metrics of this process",
                role="operator",
                is_extension=True,
                media_type="text/plain",
            ),
        )

    async def read(self, call: Call[Nothing, Nothing]) -> web.Response:
        if call.tenant != ROOT or call.who.agent_id is not None:
            raise Forbidden(f"the metrics are for operators of the tenant {ROOT}")
        return await _exposition(self.metrics, self.look, call.request)


def operations_application(health: Health, metrics: Metrics, look: Look) -> web.Application:
    """All three without a key, for an address of its own that only the operator reaches."""

    async def alive(_request: web.Request) -> web.Response:
        return _json(Alive(), 200)

    async def ready(_request: web.Request) -> web.Response:
        return await _readiness(health)

    async def read(request: web.Request) -> web.Response:
        return await _exposition(metrics, look, request)

    app = web.Application()
    app.router.add_get(HEALTHZ, alive)
    app.router.add_get(READYZ, ready)
    app.router.add_get(METRICS, read)
    return app


async def _readiness(health: Health) -> web.Response:
    found = await health.ready()
    return _json(found, 200 if found.is_ready else 503)


async def _exposition(metrics: Metrics, look: Look, request: web.Request) -> web.Response:
    await look()
    body, media_type = metrics.rendered(request.headers.get("accept", ""))
    return web.Response(body=body, headers={"content-type": media_type})


def _json(answer: Struct, status: int) -> web.Response:
    return web.Response(
        status=status,
        body=_ENCODER.encode(answer),
        content_type="application/json",
        headers={"cache-control": "no-store"},
    )
