"""Witnesses of requests: one made of several, one that counts, one that writes a line."""

from __future__ import annotations

import logging

from mainspring.edges.api.app import Answered, Witness
from mainspring.service.watching.metrics import Metrics

ACCESS = logging.getLogger("mainspring.access")
_NOWHERE = "(none)"
"""The route of what leads nowhere; a path that anybody can make up is no label."""
_STREAM = "text/event-stream"
_QUIET = frozenset(("/healthz", "/readyz", "/metrics"))


def together(*witnesses: Witness) -> Witness:
    """Each in turn; they do not raise."""

    async def all_of_them(answered: Answered) -> None:
        for witness in witnesses:
            await witness(answered)

    return all_of_them


class MetricsWitness:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, answered: Answered) -> None:
        route = answered.route
        path = _NOWHERE if route is None else route.path
        method = _NOWHERE if route is None else route.method
        self._metrics.requests.labels(path, method, str(answered.status)).inc()
        if route is None or route.media_type != _STREAM:
            self._metrics.request_seconds.labels(path, method).observe(answered.seconds)
        if answered.status == 503 and path not in _QUIET:
            self._metrics.store_errors.labels("api").inc()


async def access_log(answered: Answered) -> None:
    """A line for each request: who, what, and what came of it; no query, no body, no key."""
    route, who = answered.route, answered.who
    is_routine = route is not None and route.path in _QUIET and answered.status < 400
    ACCESS.log(
        logging.DEBUG if is_routine else logging.INFO,
        "%s %d %.1f ms",
        _NOWHERE if route is None else route.operation,
        answered.status,
        answered.seconds * 1000,
        extra={
            "subject": {
                **{name: value[:128] for name, value in answered.path.items() if route},
                "request_id": answered.request_id,
                "tenant": "" if who is None else who.tenant,
                "key_id": "" if who is None else who.key_id,
                "address": answered.address,
                "status": answered.status,
                "seconds": round(answered.seconds, 6),
            }
        },
    )
