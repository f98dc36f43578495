"""A session as the API shows it: its record, and the state folded from its log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Literal

from msgspec import Struct

from mainspring.core.clock import from_micros
from mainspring.core.events import Usage
from mainspring.harness.state.session_projection import SessionProjection
from mainspring.log.session_status import ThreadStatus
from mainspring.log.store import SessionRow
from mainspring.service.sessions.resource_types import SessionResource
from mainspring.service.sessions.session_agent import SessionAgent
from mainspring.service.sessions.session_record import ListCostBudget, Money, SessionRecord
from mainspring.service.storage.metadata import Metadata, copy_fields


class CacheCreation(Struct, frozen=True, kw_only=True):
    ephemeral_5m_input_tokens: int
    ephemeral_1h_input_tokens: int = 0


class UsageView(Struct, frozen=True, kw_only=True):
    active_seconds: float
    cache_creation: CacheCreation
    cache_read_input_tokens: int
    input_tokens: int
    output_tokens: int
    list_cost: Money


class StatsView(Struct, frozen=True, kw_only=True):
    active_seconds: float
    duration_seconds: float


class OutcomeView(Struct, frozen=True, kw_only=True):
    outcome_id: str
    description: str
    result: str
    iteration: int
    explanation: str | None
    completed_at: datetime | None
    type: Literal["outcome_evaluation"] = "outcome_evaluation"


class SessionObject(Struct, frozen=True, kw_only=True):
    id: str
    agent: SessionAgent
    created_at: datetime
    updated_at: datetime
    environment_id: str
    status: ThreadStatus
    usage: UsageView
    stats: StatsView
    metadata: Metadata
    outcome_evaluations: tuple[OutcomeView, ...]
    resources: tuple[SessionResource, ...]
    vault_ids: tuple[str, ...]
    title: str | None
    budget: ListCostBudget | None
    deployment_id: str | None
    archived_at: datetime | None
    type: Literal["session"] = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSession:
    """A session's record with the state of its log, read at one moment."""

    record: SessionRecord
    row: SessionRow
    projection: SessionProjection
    has_pending_input: bool
    """Whether the inbox has an event that makes the session run."""

    @property
    def status(self) -> ThreadStatus:
        if self.record.archived_at is not None or self.projection.status == "terminated":
            return "terminated"
        if self.projection.status == "idle" and self.has_pending_input:
            return "running"
        return self.projection.status


def session_object(session: LoadedSession, now: datetime) -> SessionObject:
    record, projection = session.record, session.projection
    updated_at = max(record.updated_at, from_micros(session.row.updated))
    until = updated_at if session.status == "terminated" else now
    threads = projection.threads.values()
    return copy_fields(
        SessionObject,
        record,
        updated_at=updated_at,
        status=session.status,
        usage=usage_view(
            projection.usage, projection.spent.cost_usd, _active_seconds(projection, until)
        ),
        stats=StatsView(
            active_seconds=sum(thread.active_seconds(until) for thread in threads),
            duration_seconds=_seconds_between(record.created_at, until),
        ),
        outcome_evaluations=tuple(
            copy_fields(OutcomeView, outcome, outcome_id=outcome.id)
            for outcome in projection.outcomes
        ),
    )


def usage_view(usage: Usage, cost_usd: Decimal, seconds: float) -> UsageView:
    return UsageView(
        active_seconds=seconds,
        cache_creation=CacheCreation(ephemeral_5m_input_tokens=usage.cache_creation_input_tokens),
        cache_read_input_tokens=usage.cache_read_input_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        list_cost=Money(amount=str(cents(cost_usd)), currency="USD"),
    )


def cents(cost_usd: Decimal) -> int:
    return int((cost_usd * 100).to_integral_value(ROUND_HALF_EVEN))


def _active_seconds(projection: SessionProjection, until: datetime) -> float:
    """The time during which at least one thread ran."""
    spent = projection.spent
    since = spent.running_since
    return spent.seconds_before + (0.0 if since is None else _seconds_between(since, until))


def _seconds_between(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())
