"""Alarms: raised once when something gets worse, cleared when it has recovered. The webhook
notifications of both are written in the same transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, NotFound, StaleVersion
from mainspring.core.ids import stable_id
from mainspring.log.records import RecordChange, Records
from mainspring.service.storage.repository import IndexColumns, Notification, Repository
from mainspring.service.webhooks.webhook_events import EventType
from mainspring.service.webhooks.webhook_outbox import Outbox

SubjectType: TypeAlias = Literal["eval", "drill", "slo"]
AlarmStatus: TypeAlias = Literal["raised", "cleared"]


class AlarmSubject(Struct, frozen=True, kw_only=True):
    type: SubjectType
    name: str
    """The name of the suite, or of the agent whose service levels are missed."""


class Alarm(Struct, frozen=True, kw_only=True):
    id: str
    subject: AlarmSubject
    status: AlarmStatus
    reason: str
    """The reason why it was last raised."""
    raised_at: datetime
    updated_at: datetime
    run_id: str | None = None
    """The eval run that raised it."""
    type: Literal["alarm"] = "alarm"


class Alarms:
    """One alarm for each subject."""

    def __init__(self, records: Records, outbox: Outbox, *, clock: Clock = clocks.now) -> None:
        self._repository = Repository(records, "alarm", Alarm, columns=_columns, clock=clock)
        self._outbox = outbox
        self._clock = clock
        self.get = self._repository.get
        self.page = self._repository.page

    async def set(
        self, tenant: str, subject: AlarmSubject, reason: str | None, *, run_id: str | None = None
    ) -> None:
        """Raise the alarm of a subject, or clear it if there is no reason. If it is already in that
        state, nothing changes and no notification is sent."""
        id_ = stable_id("alrm", tenant, subject.type, subject.name)
        deliveries: list[RecordChange] = []

        async def prepare() -> tuple[None, list[RecordChange]]:
            deliveries.clear()
            try:
                row = await self._repository.row(tenant, id_)
                current = self._repository.read(row)
            except NotFound:
                row, current = None, None
            is_raised = current is not None and current.status == "raised"
            if is_raised == (reason is not None):
                return None, []
            changed = self._changed(id_, subject, current, reason, run_id)
            type_: EventType = (
                "mainspring.alarm_cleared" if reason is None else "mainspring.alarm_raised"
            )
            notice = Notification(tenant=tenant, type=type_, id=id_)
            deliveries.extend(await self._outbox.prepare_changes(notice))
            return None, [self._repository.save_change(tenant, row, changed), *deliveries]

        await self._repository.transact(id_, prepare, conflicts=(StaleVersion, AlreadyExists))
        await self._outbox.enqueue_deliveries(deliveries)

    def _changed(
        self,
        id_: str,
        subject: AlarmSubject,
        current: Alarm | None,
        reason: str | None,
        run_id: str | None,
    ) -> Alarm:
        now = self._clock()
        if reason is None and current is not None:
            return replace(current, status="cleared", updated_at=now)
        return Alarm(
            id=id_,
            subject=subject,
            status="raised",
            reason=reason or "",
            raised_at=now,
            updated_at=now,
            run_id=run_id,
        )


def _columns(alarm: Alarm) -> IndexColumns:
    return IndexColumns(label=alarm.status)
