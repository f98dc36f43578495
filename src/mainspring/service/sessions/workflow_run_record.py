"""The record of a workflow run beside its session: what it was started with. Its state is in the
log."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from msgspec import Struct

from mainspring.log.records import Records
from mainspring.runtime.workflows.run_context import MAX_STEPS, PARALLEL, RunLimits
from mainspring.service.storage.repository import IndexColumns, Repository

RUN_KIND = "workflow_run"


class RunRecord(Struct, frozen=True, kw_only=True):
    id: str
    """The id of its session."""
    workflow: str
    created_at: datetime
    status: str = "pending"
    """As it was when a worker last let go of it; lists are filtered by it."""
    max_steps: int = MAX_STEPS
    parallel: int = PARALLEL
    max_cost_usd: str | None = None
    key: str | None = None
    session_id: str | None = None
    """The session whose agent has started it."""
    cost_usd: str = "0"
    """As it was when a worker last let go of it."""
    fork_source: str | None = None
    """Of a fork: the session whose files it began with."""
    fork_seq: int = 0
    """After which event of that session."""

    @property
    def has_ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    @property
    def limits(self) -> RunLimits:
        cost = None if self.max_cost_usd is None else Decimal(self.max_cost_usd)
        return RunLimits(max_steps=self.max_steps, parallel=self.parallel, max_cost_usd=cost)


def run_records(records: Records) -> Repository[RunRecord]:
    return Repository(records, RUN_KIND, RunRecord, columns=_index_columns)


def _index_columns(run: RunRecord) -> IndexColumns:
    return IndexColumns(
        parent=run.session_id or run.workflow, label=run.status, created=run.created_at
    )
