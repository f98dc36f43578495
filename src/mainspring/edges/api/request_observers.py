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
from mainspring.service.storage.notifications import Notification, Notify
from mainspring.service.telemetry.metrics import Metrics
from mainspring.service.webhooks.webhook_events import TYPES_BY_OPERATION

ACCESS_LOG = logging.getLogger("mainspring.access")
_NO_ROUTE = "(none)"
"""The route of what leads nowhere; a path that anybody can make up is no label."""
_STREAM_MEDIA_TYPE = "text/event-stream"
_PROBE_PATHS = frozenset(("/healthz", "/readyz", "/metrics"))


def combined_observer(*witnesses: RequestObserver) -> RequestObserver:
    """Each in turn; they do not raise."""

    async def all_of_them(handled_request: HandledRequest) -> None:
        for witness in witnesses:
            await witness(handled_request)

    return all_of_them


class MetricsObserver:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, handled_request: HandledRequest) -> None:
        route = handled_request.route
        path = _NO_ROUTE if route is None else route.path
        method = _NO_ROUTE if route is None else route.method
        self._metrics.requests.labels(path, method, str(handled_request.status)).inc()
        if route is None or route.media_type != _STREAM_MEDIA_TYPE:
            self._metrics.request_seconds.labels(path, method).observe(handled_request.seconds)
        if handled_request.status == 503 and path not in _PROBE_PATHS:
            self._metrics.store_errors.labels("api").inc()


async def access_log(handled_request: HandledRequest) -> None:
    """A line for each request: who, what, and what came of it; no query, no body, no key."""
    route, who = handled_request.route, handled_request.who
    is_routine = route is not None and route.path in _PROBE_PATHS and handled_request.status < 400
    ACCESS_LOG.log(
        logging.DEBUG if is_routine else logging.INFO,
        "%s %d %.1f ms",
        _NO_ROUTE if route is None else route.operation,
        handled_request.status,
        handled_request.seconds * 1000,
        extra={
            "subject": {
                **{name: value[:128] for name, value in handled_request.path.items() if route},
                "request_id": handled_request.request_id,
                "tenant": "" if who is None else who.tenant,
                "key_id": "" if who is None else who.key_id,
                "address": handled_request.address,
                "status": handled_request.status,
                "seconds": round(handled_request.seconds, 6),
            }
        },
    )


_AUDIT_LOG = logging.getLogger("mainspring.audit")
_MAX_ID_CHARS = 256
_UNAUTHENTICATED_RATE = Rate(120)
"""Entries a minute about those whom nobody knows: they must not be able to fill a disk."""


def _no_alarm() -> None:
    pass


class AuditObserver:
    """A `Witness`. Notes all that is not a GET, and whatever was refused to somebody."""

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

    async def __call__(self, handled_request: HandledRequest) -> None:
        if not _is_audited(handled_request) or not self._is_within_rate(handled_request):
            return
        act = audit_act(handled_request)
        try:
            await self._audit.note(_tenant(handled_request), act)
        except Exception as error:  # noqa: BLE001 (whatever it is, what was done stays done)
            _AUDIT_LOG.error("not in the audit: %s: %s", msgspec.json.encode(act).decode(), error)
            self._alarm()

    def _is_within_rate(self, handled_request: HandledRequest) -> bool:
        if _tenant(handled_request):
            return True
        [standing] = self._buckets.take(("strangers", _UNAUTHENTICATED_RATE))
        return not standing.is_refused


def audit_act(handled_request: HandledRequest) -> AuditAction:
    assert handled_request.route is not None
    act = AuditAction(
        operation=handled_request.route.operation,
        status=handled_request.status,
        targets={name: value[:_MAX_ID_CHARS] for name, value in handled_request.path.items()},
        made=None if handled_request.made is None else handled_request.made[:_MAX_ID_CHARS],
        request_id=handled_request.request_id,
        address=handled_request.address[:_MAX_ID_CHARS],
    )
    return attribute_to(act, handled_request.who)


def _tenant(handled_request: HandledRequest) -> str:
    return "" if handled_request.who is None else handled_request.who.tenant


def _is_audited(handled_request: HandledRequest) -> bool:
    route, who, status = handled_request.route, handled_request.who, handled_request.status
    if route is None or status == 429:
        return False
    if status in (401, 403):
        return True
    if who is not None and who.environment_id is not None and "/work" in route.path:
        return False  # a worker that asks for work and says that it lives, every few seconds
    return route.method != "GET"


_LOG = logging.getLogger("mainspring.api")


def webhook_observer(notify: Notify) -> RequestObserver:
    async def tell(handled_request: HandledRequest) -> None:
        route, who = handled_request.route, handled_request.who
        if route is None or who is None or not 200 <= handled_request.status < 300:
            return
        type_ = TYPES_BY_OPERATION.get(route.operation)
        id_ = handled_request.made or next(iter(handled_request.path.values()), None)
        if type_ is None or id_ is None:
            return
        try:
            await notify(Notification(tenant=who.tenant, type=type_, id=id_))
        except MainspringError as error:  # what was asked for is done
            _LOG.error("nobody was told of %s %s: %s", type_, id_, error)

    return tell
