"""The cost of sessions, folded from their logs: by agent, session, model, day, purpose or
outcome."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import reduce
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core import events
from mainspring.core.envelope import Event, event_types
from mainspring.core.events import Usage
from mainspring.harness.state.thread_tree import add_usage
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow

GroupBy: TypeAlias = Literal["agent", "session", "model", "day", "purpose", "outcome"]
NO_OUTCOME = "no outcome"
UNDECIDED = "undecided"

_TYPES = event_types(
    events.SessionCreated,
    events.ModelRequestStarted,
    events.ModelRequestEnded,
    events.BudgetSettled,
    events.UserDefineOutcome,
    events.OutcomeEvaluationEnded,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCharge:
    """One model call and its cost."""

    session_id: str
    agent: str
    model: str
    time: datetime
    usage: Usage
    cost_usd: Decimal
    is_error: bool = False
    purpose: str = "turn"
    """The purpose of the call: a turn of the conversation, a grading, a summary."""
    outcome: str = NO_OUTCOME
    """The outcome that was worked on, and how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The total of several charges."""

    key: str
    calls: int = 0
    failed: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal = Decimal(0)

    def plus(self, other: Bill) -> Bill:
        return replace(
            self,
            calls=self.calls + other.calls,
            failed=self.failed + other.failed,
            usage=add_usage(self.usage, other.usage),
            cost_usd=self.cost_usd + other.cost_usd,
        )


async def charges(log: SessionLog, session: SessionRow) -> list[ModelCharge]:
    """The charges of the session's own events; inherited events were charged to the fork's
    parent."""
    log_events = await log.read(session.id, types=_TYPES)
    payloads = (event.payload for event in log_events)
    names = (item.agent_name for item in payloads if isinstance(item, events.SessionCreated))
    own_events = [event for event in log_events if event.seq > session.parent_seq]
    model_charges = _fold(session.id, next(names, None) or "unnamed", own_events)
    pairs = zip(model_charges, _outcomes(own_events), strict=True)
    return [replace(charge, outcome=outcome) for charge, outcome in pairs]


def _fold(session_id: str, agent: str, log: Iterable[Event]) -> list[ModelCharge]:
    """A call's settlement follows its end, on the same thread."""
    model_charges: list[ModelCharge] = []
    requested: dict[str, str] = {}
    latest: dict[str, int] = {}
    for event in log:
        match event.payload:
            case events.ModelRequestStarted(model=model):
                requested[event.thread_id] = model or "unknown"
            case events.ModelRequestEnded() as end:
                latest[event.thread_id] = len(model_charges)
                model_charges.append(
                    ModelCharge(
                        session_id=session_id,
                        agent=agent,
                        model=end.model or requested.get(event.thread_id, "unknown"),
                        time=event.time,
                        usage=end.model_usage,
                        cost_usd=Decimal(0),
                        is_error=end.is_error,
                        purpose=end.purpose or "turn",
                    )
                )
            case events.BudgetSettled(cost_usd=cost) if event.thread_id in latest:
                at = latest.pop(event.thread_id)
                model_charges[at] = replace(model_charges[at], cost_usd=Decimal(cost))
            case _:
                pass
    return model_charges


def _outcomes(log: Iterable[Event]) -> list[str]:
    """The outcome that each call worked on, and how it ended."""
    outcomes: list[str] = []
    current, first = NO_OUTCOME, 0
    for event in log:
        match event.payload:
            case events.UserDefineOutcome():
                current, first = UNDECIDED, len(outcomes)
            case events.OutcomeEvaluationEnded(outcome_id=id_, result=result):
                outcomes[first:] = [f"{id_} {result}"] * (len(outcomes) - first)
                if result != "needs_revision":
                    current, first = NO_OUTCOME, len(outcomes)
            case events.ModelRequestEnded():
                outcomes.append(current)
            case _:
                pass
    return outcomes


class OutcomeCosts(Struct, frozen=True, kw_only=True):
    """The number of outcomes, and the cost of a satisfied one."""

    outcomes: int
    satisfied: int
    usd_per_satisfied: Decimal | None
    """The cost of all outcomes, divided by the satisfied ones; `None`: there are none."""


def outcome_costs(bills: Iterable[Bill]) -> OutcomeCosts:
    """`bills`: grouped by outcome."""
    graded = [bill for bill in bills if bill.key not in (NO_OUTCOME, UNDECIDED)]
    satisfied = sum(bill.key.endswith(" satisfied") for bill in graded)
    spent = sum((bill.cost_usd for bill in graded), Decimal(0))
    return OutcomeCosts(
        outcomes=len(graded),
        satisfied=satisfied,
        usd_per_satisfied=spent / satisfied if satisfied else None,
    )


def group_charges(model_charges: Iterable[ModelCharge], group_by: GroupBy) -> list[Bill]:
    """The most expensive first; days in their order."""
    bills: dict[str, Bill] = {}
    for charge in model_charges:
        key = _key(charge, group_by)
        bills[key] = bills.get(key, Bill(key=key)).plus(
            Bill(
                key=key,
                calls=1,
                failed=int(charge.is_error),
                usage=charge.usage,
                cost_usd=charge.cost_usd,
            )
        )
    if group_by == "day":
        return [bills[key] for key in sorted(bills)]
    return sorted(bills.values(), key=lambda bill: (-bill.cost_usd, -bill.calls, bill.key))


def total(bills: Iterable[Bill]) -> Bill:
    return reduce(Bill.plus, bills, Bill(key="total"))


def _key(charge: ModelCharge, group_by: GroupBy) -> str:
    if group_by == "day":
        return charge.time.date().isoformat()
    return getattr(charge, "session_id" if group_by == "session" else group_by)
