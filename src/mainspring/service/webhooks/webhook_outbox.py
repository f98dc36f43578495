"""The outbox of webhooks: one delivery for each event and each endpoint that subscribes to it; and
the forwarder of session events from the logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import Raw, Struct

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, NotFound, StaleVersion
from mainspring.core.events import SessionImported
from mainspring.core.ids import stable_id
from mainspring.log.records import Put, RecordChange, Records
from mainspring.log.session_log import SessionLog
from mainspring.service.jobs.dispatcher import Job, PutJob
from mainspring.service.storage.repository import Notification, Repository
from mainspring.service.webhooks.webhook_deliveries import DELIVER, Delivery, delivery_repository
from mainspring.service.webhooks.webhook_endpoints import Webhook, Webhooks
from mainspring.service.webhooks.webhook_events import (
    PING,
    TYPES_BY_LOG_TYPE,
    WebhookEvent,
    notification_event,
    webhook_events_of,
)


class Outbox:
    def __init__(
        self, records: Records, webhooks: Webhooks, *, put: PutJob, clock: Clock = clocks.now
    ) -> None:
        self._records = records
        self._webhooks = webhooks
        self._put = put
        self._clock = clock
        self._deliveries = delivery_repository(records, clock)

    async def notify(self, notification: Notification) -> None:
        """Create deliveries for all endpoints that subscribe to a notification. A `Notify`."""
        changes = await self.prepare_changes(notification)
        if changes:
            await self._records.write(*changes)
            await self.enqueue_deliveries(changes)

    async def prepare_changes(self, *notices: Notification) -> list[RecordChange]:
        """The changes that `notify` writes, to be written together with the change that is
        reported. Call `enqueue_deliveries` afterwards."""
        changes: list[RecordChange] = []
        for notice in notices:
            event = notification_event(notice, id_=ids.new_id("whe"), now=self._clock())
            webhooks = await self._webhooks.list_enabled(notice.tenant)
            changes += self.delivery_changes(notice.tenant, [event], webhooks)
        return changes

    async def enqueue_deliveries(self, changes: Iterable[RecordChange]) -> None:
        for change in changes:
            record = change.row
            if isinstance(change, Put) and record.kind == self._deliveries.kind:
                await self._put(Job(task=DELIVER, key=record.id, tenant=record.tenant))

    async def ping(self, tenant: str, webhook_id: str) -> Delivery:
        """A delivery of a test event, to be sent now."""
        webhook = await self._webhooks.get(tenant, webhook_id)
        notice = Notification(tenant=tenant, type=PING, id=webhook.id)
        event = notification_event(notice, id_=ids.new_id("whe"), now=self._clock())
        return await self._deliveries.put(tenant, self._delivery(webhook, event))

    def delivery_changes(
        self, tenant: str, events: Iterable[WebhookEvent], webhooks: Sequence[Webhook]
    ) -> list[RecordChange]:
        """The deliveries of events to the endpoints that subscribe to them."""
        return [
            self._deliveries.put_change(tenant, self._delivery(webhook, event))
            for event in events
            for webhook in webhooks
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


CURSOR_KIND = "webhook_cursor"
_BATCH = 200  # deliveries read at once
_TRIES = 8  # updates of a record that others write, too
_IMPORTED = str(SessionImported.__struct_config__.tag)
_LOG_EVENT_TYPES = frozenset(type_ for types in TYPES_BY_LOG_TYPE.values() for type_ in types)


class _Cursor(Struct, frozen=True, kw_only=True):
    id: str
    """The id of the session."""
    seq: int


class SessionEventForwarder:
    """Forwards events of session logs to webhooks. A cursor moves with the deliveries in one
    write, so that nothing is lost or sent twice if a worker dies."""

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
        """Forward new events of a session's log; returns the number of deliveries. Call it at each
        wake and after each run, while the session is held: it also forwards what a dead worker
        left behind."""
        webhooks = await self._webhooks.list_enabled(tenant)
        if not any(_LOG_EVENT_TYPES.intersection(item.event_types) for item in webhooks):
            return 0
        thread_id = (await self._log.session(session_id)).thread_id
        count = 0
        for _ in range(_TRIES):
            try:
                while (step := await self._step(tenant, session_id, thread_id, webhooks)) >= 0:
                    count += step
            except (StaleVersion, AlreadyExists):  # another process has just forwarded it
                continue
            return count
        raise StaleVersion(f"{CURSOR_KIND} {session_id}: other processes kept moving it; try again")

    async def forget(self, tenant: str, session_id: str) -> None:
        """Delete the cursor of a deleted session."""
        with suppress(NotFound):
            await self._cursors.remove(tenant, session_id)

    async def _step(
        self, tenant: str, session_id: str, main_thread_id: str, webhooks: Sequence[Webhook]
    ) -> int:
        """Forward one batch; returns the number of deliveries, -1 if there is nothing new."""
        try:
            row = await self._cursors.row(tenant, session_id)
            after = self._cursors.read(row).seq
        except NotFound:
            row, after = None, await self._first(session_id)
        events = await self._log.read(
            session_id, after=after, types=TYPES_BY_LOG_TYPE, limit=_BATCH
        )
        if not events:
            return -1
        webhook_events = [
            item
            for event in events
            if event.session_id == session_id  # the parent of a fork forwarded its own
            for item in webhook_events_of(event, tenant=tenant, main_thread_id=main_thread_id)
        ]
        changes = self._outbox.delivery_changes(tenant, webhook_events, webhooks)
        cursor = _Cursor(id=session_id, seq=events[-1].seq)
        await self._records.write(self._cursors.save_change(tenant, row, cursor), *changes)
        await self._outbox.enqueue_deliveries(changes)
        return len(changes)

    async def _first(self, session_id: str) -> int:
        """The seq to start after: imported events happened earlier."""
        imported = await self._log.read(session_id, types=[_IMPORTED])
        return imported[-1].seq if imported else 0
