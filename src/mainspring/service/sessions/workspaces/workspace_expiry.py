"""When the workspace of an unused session is removed, and the notices before.

The session itself stays, with its log and its output files. A webhook announces the removal some
days before, and again when it is done.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock, from_micros
from mainspring.harness.state.projection_cache import Projections
from mainspring.log.records import Records
from mainspring.log.store import SessionRow
from mainspring.service.storage.repository import (
    IndexColumns,
    Notification,
    Notify,
    Repository,
    ignore_notification,
)

RETENTION = timedelta(days=30)  # without use
KIND = "workspace_expiry"
CLEAR_TASK = "clear"
"""The job that removes the files of a deleted session."""
_NOTICE_PERIOD = timedelta(days=3)  # before that

ExpiryStep: TypeAlias = Literal["keep", "announce", "remove"]


class WorkspaceRecord(Struct, frozen=True, kw_only=True):
    id: str
    """The id of the session."""
    told_at: datetime
    """When the removal was announced."""
    removed_at: datetime | None = None


class WorkspaceExpiry:
    def __init__(
        self,
        records: Records,
        projections: Projections,
        *,
        keep: timedelta = RETENTION,
        notify: Notify = ignore_notification,
        clock: Clock = clocks.now,
    ) -> None:
        self._repository = Repository(
            records,
            KIND,
            WorkspaceRecord,
            columns=lambda record: IndexColumns(parent=record.id),
            clock=clock,
        )
        self.record = self._repository.find
        self._projections = projections
        self._keep = keep
        self._notice = min(_NOTICE_PERIOD, keep / 2)
        self._notify = notify
        self._clock = clock

    async def next_step(self, tenant: str, row: SessionRow) -> ExpiryStep:
        """What to do with the workspace of a session."""
        now, time = self._clock(), from_micros(row.updated)
        if now - time < self._keep - self._notice or row.owner is not None:
            return "keep"
        projection = await self._projections.of(row)
        if projection.status in ("running", "rescheduling"):
            return "keep"
        if any(thread.calls for thread in projection.threads.values()):
            return "keep"  # a client may still answer
        current = await self.record(tenant, row.id)
        if current is None or current.told_at < time:
            return "announce"
        is_due = now - time >= self._keep and now - current.told_at >= self._notice
        return "remove" if is_due else "keep"

    async def announce(self, tenant: str, session_id: str) -> None:
        record = WorkspaceRecord(id=session_id, told_at=self._clock())
        await self._repository.save(tenant, record)
        await self._notify(
            Notification(tenant=tenant, type="mainspring.workspace_expiring", id=session_id)
        )

    async def note_removal(self, tenant: str, session_id: str) -> None:
        """Record a removal. Call it before the removal: if this process dies, the session can still
        continue."""
        now = self._clock()
        record = WorkspaceRecord(id=session_id, told_at=now, removed_at=now)
        await self._repository.update(tenant, session_id, lambda _: record)
        await self._notify(
            Notification(tenant=tenant, type="mainspring.workspace_removed", id=session_id)
        )

    async def was_removed(self, tenant: str, session_id: str) -> bool:
        record = await self.record(tenant, session_id)
        return record is not None and record.removed_at is not None
