"""Observers of handled requests: the audit, webhook notifications, metrics and the access log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from mainspring.core.errors import MainspringError
from mainspring.edges.api.app import HandledRequest, RequestObserver
from mainspring.service.access.audit import Audit, AuditAction, attribute_to
from mainspring.service.access.rate_limits import Rate, TokenBuckets
from mainspring.service.storage.repository import Notification, Notify
from mainspring.service.telemetry.metrics import Metrics
from mainspring.service.webhooks.webhook_events import TYPES_BY_OPERATION

ACCESS_LOG = logging.getLogger("mainspring.access")
_NO_ROUTE = "(none)"
"""The route label of unknown paths: arbitrary paths must not become labels."""
_STREAM_MEDIA_TYPE = "text/event-stream"
_PROBE_PATHS = frozenset(("/healthz", "/readyz", "/metrics"))


class MetricsObserver:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, request: HandledRequest) -> None:
        route = request.route
        path = _NO_ROUTE if route is None else route.path
        method = _NO_ROUTE if route is None else route.method
        self._metrics.requests.labels(path, method, str(request.status)).inc()
        if route is None or route.media_type != _STREAM_MEDIA_TYPE:
            self._metrics.request_seconds.labels(path, method).observe(request.seconds)
        if request.status == 503 and path not in _PROBE_PATHS:
            self._metrics.store_errors.labels("api").inc()


async def access_log(request: HandledRequest) -> None:
    """Logs a line for each request: principal, route and status; no query, body or key."""
    route, who = request.route, request.who
    is_routine = route is not None and route.path in _PROBE_PATHS and request.status < 400
    ACCESS_LOG.log(
        logging.DEBUG if is_routine else logging.INFO,
        "%s %d %.1f ms",
        _NO_ROUTE if route is None else route.operation,
        request.status,
        request.seconds * 1000,
        extra={
            "subject": {
                **{name: value[:128] for name, value in request.path.items() if route},
                "request_id": request.request_id,
                "tenant": "" if who is None else who.tenant,
                "key_id": "" if who is None else who.key_id,
                "address": request.address,
                "status": request.status,
                "seconds": round(request.seconds, 6),
            }
        },
    )


_AUDIT_LOG = logging.getLogger("mainspring.audit")
_MAX_ID_CHARS = 256  # of each id and address in an audit entry
_UNAUTHENTICATED_RATE = Rate(120)
"""Entries per minute for unauthenticated requests, which must not fill the disk."""


def _no_alarm() -> None:
    pass


class AuditObserver:
    """A `RequestObserver`. Records every request that is not a GET, and every refusal."""

    def __init__(
        self,
        audit: Audit,
        *,
        alarm: Callable[[], None] = _no_alarm,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`alarm` is called for each entry that could not be written."""
        self._audit = audit
        self._alarm = alarm
        self._buckets = TokenBuckets(monotonic=monotonic)

    async def __call__(self, request: HandledRequest) -> None:
        tenant = "" if request.who is None else request.who.tenant
        if not _is_audited(request):
            return
        if not tenant and self._buckets.take(("strangers", _UNAUTHENTICATED_RATE))[0].wait_seconds:
            return
        assert request.route is not None
        action = AuditAction(
            operation=request.route.operation,
            status=request.status,
            targets={name: value[:_MAX_ID_CHARS] for name, value in request.path.items()},
            made=None if request.object_id is None else request.object_id[:_MAX_ID_CHARS],
            request_id=request.request_id,
            address=request.address[:_MAX_ID_CHARS],
        )
        action = attribute_to(action, request.who)
        try:
            await self._audit.note(tenant, action)
        except Exception as error:  # noqa: BLE001 (the request has been handled; only the entry fails)
            entry = msgspec.json.encode(action).decode()
            _AUDIT_LOG.error("could not write the audit entry %s: %s", entry, error)
            self._alarm()


def _is_audited(request: HandledRequest) -> bool:
    route, who, status = request.route, request.who, request.status
    if route is None or status == 429:
        return False
    if status in (401, 403):
        return True
    if who is not None and who.environment_id is not None and "/work" in route.path:
        return False  # a worker polls and sends heartbeats every few seconds
    return route.method != "GET"


_LOG = logging.getLogger("mainspring.api")


def webhook_observer(notify: Notify) -> RequestObserver:
    async def observe(request: HandledRequest) -> None:
        route, who = request.route, request.who
        if route is None or who is None or not 200 <= request.status < 300:
            return
        type_ = TYPES_BY_OPERATION.get(route.operation)
        id_ = request.object_id or next(iter(request.path.values()), None)
        if type_ is None or id_ is None:
            return
        try:
            await notify(Notification(tenant=who.tenant, type=type_, id=id_))
        except MainspringError as error:  # the request itself succeeded
            _LOG.error("could not send the webhook %s for %s: %s", type_, id_, error)

    return observe
