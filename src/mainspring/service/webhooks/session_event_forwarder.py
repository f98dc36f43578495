"""What webhooks are told of sessions: taken from their logs.

A cursor says how far that is done, and moves with the deliveries in one write, so that nothing is
lost or doubled wherever a worker dies.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, NotFound, StaleVersion
from mainspring.core.facts import SessionImported
from mainspring.log.records import Records, Remove
from mainspring.log.session_log import SessionLog
from mainspring.service.storage.repository import Repository
from mainspring.service.webhooks.webhook_endpoints import Webhook, Webhooks
from mainspring.service.webhooks.webhook_events import TYPES_BY_LOG_TYPE, webhook_events_of
from mainspring.service.webhooks.webhook_outbox import Outbox

CURSOR_KIND = "webhook_cursor"
_BATCH = 200
_TRIES = 8
_IMPORTED = str(SessionImported.__struct_config__.tag)
_LOG_EVENT_TYPES = frozenset(type_ for types in TYPES_BY_LOG_TYPE.values() for type_ in types)


class _Cursor(Struct, frozen=True, kw_only=True):
    id: str
    """The session's."""
    seq: int


class SessionEventForwarder:
    def __init__(
        self,
        records: Records,
        webhooks: Webhooks,
        outbox: Outbox,
        log: SessionLog,
        *,
        clock: Clock = clocks.now,
    ) -> None:
        self._records = records
        self._webhooks = webhooks
        self._outbox = outbox
        self._log = log
        self._cursors = Repository(records, CURSOR_KIND, _Cursor, clock=clock)

    async def catch_up(self, tenant: str, session_id: str) -> int:
        """Tell of what is new in a session's log; how many deliveries that makes. Call it at each
        wake and after each run, while the session is held: what a worker that died has left
        untold is told by the next."""
        listening = await self._webhooks.list_enabled(tenant)
        if not any(_LOG_EVENT_TYPES.intersection(item.event_types) for item in listening):
            return 0
        main_thread_id = (await self._log.session(session_id)).thread_id
        made = 0
        for _ in range(_TRIES):
            try:
                while (
                    step := await self._step(tenant, session_id, main_thread_id, listening)
                ) >= 0:
                    made += step
            except (StaleVersion, AlreadyExists):  # another has told of it just now
                continue
            return made
        raise StaleVersion(f"{CURSOR_KIND} {session_id}: others kept moving it; try again")

    async def forget(self, tenant: str, session_id: str) -> None:
        """Delete the approvals of a deleted session."""
        try:
            record = await self._cursors.record(tenant, session_id)
            await self._records.write(Remove(record_row=record))
        except (NotFound, StaleVersion):
            return

    async def _step(
        self, tenant: str, session_id: str, main_thread_id: str, listening: Sequence[Webhook]
    ) -> int:
        """How many deliveries; -1: there is nothing to tell of."""
        try:
            record = await self._cursors.record(tenant, session_id)
            after = self._cursors.read(record).seq
        except NotFound:
            record, after = None, await self._first(session_id)
        found = await self._log.read(session_id, after=after, types=TYPES_BY_LOG_TYPE, limit=_BATCH)
        if not found:
            return -1
        told = [
            item
            for event in found
            if event.session_id == session_id  # what a fork has inherited was told already
            for item in webhook_events_of(event, tenant=tenant, main_thread_id=main_thread_id)
        ]
        changes = self._outbox.delivery_changes(tenant, told, listening)
        cursor = _Cursor(id=session_id, seq=found[-1].seq)
        moved = (
            self._cursors.put_change(tenant, cursor)
            if record is None
            else self._cursors.replace_change(record, cursor)
        )
        await self._records.write(moved, *changes)
        await self._outbox.enqueue_deliveries(changes)
        return len(changes)

    async def _first(self, session_id: str) -> int:
        """After which event there is something to tell: what was imported has happened before."""
        imported = await self._log.read(session_id, types=[_IMPORTED])
        return imported[-1].seq if imported else 0
