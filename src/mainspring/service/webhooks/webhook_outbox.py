"""The outbox of webhooks: for each event and each endpoint that wants it, one delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Raw

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.ids import stable_id
from mainspring.log.records import Put, RecordChange, Records
from mainspring.service.jobs.dispatcher import Job, PutJob
from mainspring.service.storage.notifications import Notification
from mainspring.service.webhooks.webhook_deliveries import DELIVER, Delivery, delivery_repository
from mainspring.service.webhooks.webhook_endpoints import Webhook, Webhooks
from mainspring.service.webhooks.webhook_events import PING, WebhookEvent, notification_event


class Outbox:
    def __init__(
        self,
        records: Records,
        webhooks: Webhooks,
        *,
        put: PutJob,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._records = records
        self._webhooks = webhooks
        self._put = put
        self._clock = clock
        self._new_id = new_id
        self._deliveries = delivery_repository(records, clock)

    async def notify(self, notification: Notification) -> None:
        """Have it told to whoever wants to know. A `Notify`."""
        changes = await self.prepare_changes(notification)
        if changes:
            await self._records.write(*changes)
            await self.enqueue_deliveries(changes)

    async def prepare_changes(self, *notices: Notification) -> list[RecordChange]:
        """What `notify` writes, to be written together with what the notices are of; say `told`
        when it is."""
        changes: list[RecordChange] = []
        for notice in notices:
            event = notification_event(notice, id_=self._new_id("whe"), now=self._clock())
            listening = await self._webhooks.list_enabled(notice.tenant)
            changes += self.delivery_changes(notice.tenant, [event], listening)
        return changes

    async def enqueue_deliveries(self, changes: Iterable[RecordChange]) -> None:
        for change in changes:
            record = change.record_row
            if isinstance(change, Put) and record.kind == self._deliveries.kind:
                await self._put(Job(task=DELIVER, key=record.id, tenant=record.tenant))

    async def ping(self, tenant: str, webhook_id: str) -> Delivery:
        """A delivery of an event that means nothing, to be sent now. Not to one disabled: that is
        tried by enabling it."""
        webhook = await self._webhooks.get(tenant, webhook_id)
        notice = Notification(tenant=tenant, type=PING, id=webhook.id)
        event = notification_event(notice, id_=self._new_id("whe"), now=self._clock())
        return await self._deliveries.put(tenant, self._delivery(webhook, event))

    def delivery_changes(
        self, tenant: str, told: Iterable[WebhookEvent], listening: Sequence[Webhook]
    ) -> list[RecordChange]:
        """The deliveries of events to those that want them."""
        return [
            self._deliveries.put_change(tenant, self._delivery(webhook, event))
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
