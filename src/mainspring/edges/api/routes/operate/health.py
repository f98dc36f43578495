"""`/healthz`, `/readyz` and `/metrics`: for the monitoring of a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec
from aiohttp import web
from msgspec import Struct

from mainspring.core.errors import Forbidden
from mainspring.edges.api.route import ApiCall, Empty, RouteOptions, route
from mainspring.service.access.tenants import ROOT_TENANT
from mainspring.service.telemetry.health import Health, Readiness
from mainspring.service.telemetry.metrics import Metrics

HEALTHZ = "/healthz"
READYZ = "/readyz"
METRICS = "/metrics"
_ENCODER = msgspec.json.Encoder()

RefreshMetrics = Callable[[], Awaitable[None]]


class Alive(Struct, frozen=True, kw_only=True):
    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True)
class HealthRoutes:
    health: Health
    route_options: ClassVar[RouteOptions] = {"is_open": True, "is_extension": True}

    @route("GET /healthz", "Check whether the process is alive")
    async def alive(self, _api_call: ApiCall[Empty, Empty]) -> Alive:
        return Alive()

    @route(
        "GET /readyz",
        "Check whether the process is ready; 503 if not",
        response_type=Readiness,
        other_responses={503: Readiness},
    )
    async def ready(self, _api_call: ApiCall[Empty, Empty]) -> web.Response:
        return await _readiness(self.health)


@dataclass(frozen=True, slots=True)
class MetricsRoutes:
    """The metrics cover all tenants, so they need a key of the root tenant."""

    metrics: Metrics
    refresh_metrics: RefreshMetrics

    @route(
        "GET /metrics",
        "Get the metrics of this process",
        role="operator",
        media_type="text/plain",
        is_extension=True,
    )
    async def read(self, call: ApiCall[Empty, Empty]) -> web.Response:
        if call.tenant != ROOT_TENANT or call.who.agent_id is not None:
            raise Forbidden(f"the metrics are for operators of the tenant {ROOT_TENANT}")
        return await _exposition(self.metrics, self.refresh_metrics, call.request)


def operations_application(
    health: Health, metrics: Metrics, refresh_metrics: RefreshMetrics
) -> web.Application:
    """All three without a key, for a separate address that only the operator can reach."""

    async def alive(_request: web.Request) -> web.Response:
        return _json_response(Alive(), 200)

    async def ready(_request: web.Request) -> web.Response:
        return await _readiness(health)

    async def read(request: web.Request) -> web.Response:
        return await _exposition(metrics, refresh_metrics, request)

    app = web.Application()
    app.router.add_get(HEALTHZ, alive)
    app.router.add_get(READYZ, ready)
    app.router.add_get(METRICS, read)
    return app


async def _readiness(health: Health) -> web.Response:
    health_report = await health.ready()
    return _json_response(health_report, 200 if health_report.is_ready else 503)


async def _exposition(
    metrics: Metrics, refresh_metrics: RefreshMetrics, request: web.Request
) -> web.Response:
    await refresh_metrics()
    body, media_type = metrics.rendered(request.headers.get("accept", ""))
    return web.Response(body=body, headers={"content-type": media_type})


def _json_response(answer: Struct, status: int) -> web.Response:
    return web.Response(
        status=status,
        body=_ENCODER.encode(answer),
        content_type="application/json",
        headers={"cache-control": "no-store"},
    )
