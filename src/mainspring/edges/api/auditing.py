"""The witness that puts into the audit what was asked of the API.

The entry is durable before the answer leaves. If it cannot be written, what was asked has still
been done, and to answer otherwise would have it done twice: the answer stands, the entry goes to
the log of the process instead, and an alarm is raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from mainspring.edges.api.app import Answered
from mainspring.service.access.audit import Act, Audit, attributed
from mainspring.service.access.rates import Buckets, Rate

_LOG = logging.getLogger("mainspring.audit")
_MAX_ID = 256
_STRANGERS = Rate(120)
"""Entries a minute about those whom nobody knows: they must not be able to fill a disk."""


def _unheard() -> None:
    pass


class AuditWitness:
    """A `Witness`. Notes all that is not a GET, and whatever was refused to somebody."""

    def __init__(
        self,
        audit: Audit,
        *,
        alarm: Callable[[], None] = _unheard,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`alarm` is called for each entry that could not be written."""
        self._audit = audit
        self._alarm = alarm
        self._buckets = Buckets(monotonic=monotonic)

    async def __call__(self, answered: Answered) -> None:
        if not _is_of_interest(answered) or not self._has_room(answered):
            return
        act = act_of(answered)
        try:
            await self._audit.note(_tenant(answered), act)
        except Exception as error:  # noqa: BLE001 (whatever it is, what was done stays done)
            _LOG.error("not in the audit: %s: %s", msgspec.json.encode(act).decode(), error)
            self._alarm()

    def _has_room(self, answered: Answered) -> bool:
        if _tenant(answered):
            return True
        [standing] = self._buckets.take(("strangers", _STRANGERS))
        return not standing.is_refused


def act_of(answered: Answered) -> Act:
    assert answered.route is not None
    act = Act(
        operation=answered.route.operation,
        status=answered.status,
        targets={name: value[:_MAX_ID] for name, value in answered.path.items()},
        made=None if answered.made is None else answered.made[:_MAX_ID],
        request_id=answered.request_id,
        address=answered.address[:_MAX_ID],
    )
    return attributed(act, answered.who)


def _tenant(answered: Answered) -> str:
    return "" if answered.who is None else answered.who.tenant


def _is_of_interest(answered: Answered) -> bool:
    route, who, status = answered.route, answered.who, answered.status
    if route is None or status == 429:
        return False
    if status in (401, 403):
        return True
    if who is not None and who.environment_id is not None and "/work" in route.path:
        return False  # a worker that asks for work and says that it lives, every few seconds
    return route.method != "GET"
