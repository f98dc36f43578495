"""The outbox of webhooks: for each event and each endpoint that wants it, one delivery.

What comes of a log is taken from the log: a cursor says how far, and moves with the deliveries in
one write, so that nothing is lost or doubled wherever a worker dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Raw, Struct

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyThere, NotFound, Stale
from mainspring.log.records import Change, Put, Records, Remove
from mainspring.log.session_log import SessionLog
from mainspring.service.deliveries import DELIVER, Delivery, delivery_drawer
from mainspring.service.dispatch import Job
from mainspring.service.drawer import Drawer
from mainspring.service.jobs import PutJob
from mainspring.service.notice import Notice
from mainspring.service.webhook_events import (
    LOG_TYPES,
    PING,
    WebhookEvent,
    stable_id,
    told_by,
    told_of,
)
from mainspring.service.webhooks import Webhook, Webhooks

CURSOR_KIND = "webhook_cursor"
_BATCH = 200
_TRIES = 8
_FROM_LOGS = frozenset(type_ for types in LOG_TYPES.values() for type_ in types)


class _Cursor(Struct, frozen=True, kw_only=True):
    id: str
    """The session's."""
    seq: int


class Outbox:
    def __init__(
        self,
        records: Records,
        webhooks: Webhooks,
        log: SessionLog,
        *,
        put: PutJob,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._records = records
        self._webhooks = webhooks
        self._log = log
        self._put = put
        self._clock = clock
        self._new_id = new_id
        self._cursors = Drawer(records, CURSOR_KIND, _Cursor, clock=clock)
        self._deliveries = delivery_drawer(records, clock)

    async def notify(self, notice: Notice) -> None:
        """Have it told to whoever wants to know. A `Notify`."""
        changes = await self.telling(notice)
        if changes:
            await self._records.write(*changes)
            await self.told(changes)

    async def telling(self, *notices: Notice) -> list[Change]:
        """What `notify` writes, to be written together with what the notices are of; say `told`
        when it is."""
        changes: list[Change] = []
        for notice in notices:
            event = told_of(notice, id_=self._new_id("whe"), now=self._clock())
            listening = await self._webhooks.listening(notice.tenant)
            changes += self._posting(notice.tenant, [event], listening)
        return changes

    async def told(self, changes: Iterable[Change]) -> None:
        for change in changes:
            record = change.record
            if isinstance(change, Put) and record.kind == self._deliveries.kind:
                await self._put(Job(task=DELIVER, key=record.id, tenant=record.tenant))

    async def ping(self, tenant: str, webhook_id: str) -> Delivery:
        """A delivery of an event that means nothing, to be sent now. Not to one disabled: that is
        tried by enabling it."""
        webhook = await self._webhooks.get(tenant, webhook_id)
        notice = Notice(tenant=tenant, type=PING, id=webhook.id)
        event = told_of(notice, id_=self._new_id("whe"), now=self._clock())
        return await self._deliveries.put(tenant, self._delivery(webhook, event))

    async def catch_up(self, tenant: str, session_id: str) -> int:
        """Tell of what is new in a session's log; how many deliveries that makes. Call it at each
        wake and after each run, while the session is held: what a worker that died has left
        untold is told by the next."""
        listening = await self._webhooks.listening(tenant)
        if not any(_FROM_LOGS.intersection(each.event_types) for each in listening):
            return 0
        main_thread_id = (await self._log.session(session_id)).thread_id
        made = 0
        for _ in range(_TRIES):
            try:
                while (
                    step := await self._step(tenant, session_id, main_thread_id, listening)
                ) >= 0:
                    made += step
            except (Stale, AlreadyThere):  # another has told of it just now
                continue
            return made
        raise Stale(f"{CURSOR_KIND} {session_id}: others kept moving it; try again")

    async def forget(self, tenant: str, session_id: str) -> None:
        """Of a session that is deleted."""
        try:
            record = await self._cursors.record(tenant, session_id)
            await self._records.write(Remove(record=record))
        except (NotFound, Stale):
            return

    async def _step(
        self, tenant: str, session_id: str, main_thread_id: str, listening: Sequence[Webhook]
    ) -> int:
        """How many deliveries; -1: there is nothing to tell of."""
        try:
            record = await self._cursors.record(tenant, session_id)
            after = self._cursors.read(record).seq
        except NotFound:
            record, after = None, 0
        found = await self._log.read(session_id, after=after, types=LOG_TYPES, limit=_BATCH)
        if not found:
            return -1
        told = [
            each
            for event in found
            if event.session_id == session_id  # what a fork has inherited was told already
            for each in told_by(event, tenant=tenant, main_thread_id=main_thread_id)
        ]
        changes = self._posting(tenant, told, listening)
        cursor = _Cursor(id=session_id, seq=found[-1].seq)
        moved = (
            self._cursors.putting(tenant, cursor)
            if record is None
            else self._cursors.replacing(record, cursor)
        )
        await self._records.write(moved, *changes)
        await self.told(changes)
        return len(changes)

    def _posting(
        self, tenant: str, told: Iterable[WebhookEvent], listening: Sequence[Webhook]
    ) -> list[Change]:
        return [
            self._deliveries.putting(tenant, self._delivery(webhook, event))
            for event in told
            for webhook in listening
            if event.data.type in webhook.event_types and event.created_at >= webhook.enabled_at
        ]

    def _delivery(self, webhook: Webhook, event: WebhookEvent) -> Delivery:
        now = self._clock()
        return Delivery(
            id=stable_id("whd", webhook.id, event.id),
            webhook_id=webhook.id,
            event_id=event.id,
            event_type=event.data.type,
            event=Raw(event.encoded()),
            created_at=now,
            next_attempt_at=now,
        )
