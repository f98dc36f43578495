"""Limits of a call, a thread or a session, and the spending so far: a fold of the log.

Pure: nothing here looks at a clock. Money and tokens are reserved before a call and settled after
it; a reservation counts as spent until then, so threads that run at once cannot overdraw together.
Fold the events of one thread for the spending of the thread, all events for that of the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import events
from mainspring.core.envelope import AnyPayload
from mainspring.core.model_facts import Price
from mainspring.harness.stop_reasons import Ended

_MILLION = Decimal(1_000_000)  # tokens: the unit of prices
_MIN_CONTINUATIONS = 3  # before diminishing returns are judged
_MIN_GAIN_TOKENS = 500  # of a continuation; less is a model that has nothing to add


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`None`: no limit. Limits are hard: a step that might exceed one does not start."""

    max_turns: int | None = None
    max_seconds: float | None = None
    """Running time; waiting for people does not count."""
    max_input_tokens: int | None = None
    """All classes together: plain, written to cache, read from cache."""
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    max_cost_usd: Decimal | None = None
    target_tokens: int | None = None
    """Target output: the model is asked to continue until most of it is used."""
    compact_at: float | None = None
    """The share of the context window at which compaction starts, from 0.1 to 0.95."""
    max_context: int | None = None
    """Tokens of the context window to use, if the model's is larger."""


class Reservation(Struct, frozen=True, kw_only=True):
    cost_usd: Decimal
    input_tokens: int
    output_tokens: int


_NO_RESERVATIONS: Mapping[str, Reservation] = MappingProxyType({})


class Spending(Struct, frozen=True, kw_only=True):
    """A struct for speed: it is folded once for every event of the log."""

    turns: int = 0
    """Model calls of the conversation that ended, successfully or not."""
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    cost_usd: Decimal = Decimal(0)
    """Settled cost, without reservations."""
    reservations: Mapping[str, Reservation] = msgspec.field(
        default_factory=lambda: _NO_RESERVATIONS
    )
    """Open reservations by id."""
    seconds_before: float = 0.0
    """Running time of finished runs."""
    running: int = 0
    """Threads that run now."""
    running_since: datetime | None = None
    latest: datetime | None = None
    """Time of the last event."""
    continuations: int = 0
    output_at_continuation: int = 0
    last_gain: int = _MIN_GAIN_TOKENS
    """Output between the last two continuations."""

    @property
    def reserved_usd(self) -> Decimal:
        return sum((open_.cost_usd for open_ in self.reservations.values()), Decimal(0))

    @property
    def committed_usd(self) -> Decimal:
        """Settled and reserved cost: this must stay within the limit."""
        return self.cost_usd + self.reserved_usd

    @property
    def committed_input_tokens(self) -> int:
        return self.input_tokens + sum(open_.input_tokens for open_ in self.reservations.values())

    @property
    def committed_output_tokens(self) -> int:
        return self.output_tokens + sum(open_.output_tokens for open_ in self.reservations.values())

    @property
    def seconds(self) -> float:
        """Running time until the last event."""
        if self.running_since is None or self.latest is None:
            return self.seconds_before
        return self.seconds_before + max(0.0, (self.latest - self.running_since).total_seconds())


_SPENDING_TYPES = frozenset[type](
    (
        events.AgentCustomToolUse,
        events.AgentMcpToolUse,
        events.AgentToolUse,
        events.BudgetReserved,
        events.BudgetSettled,
        events.LoopContinued,
        events.ModelRequestEnded,
        events.SessionForked,
        events.SessionImported,
        events.SessionReceived,
        events.SessionWoken,
        events.StatusIdle,
        events.StatusRescheduled,
        events.StatusRunning,
        events.StatusTerminated,
    )
)
"""Types of events that change more than `latest`; most events of a long log have other types."""


def fold(spending: Spending, payload: AnyPayload, at: datetime | None = None) -> Spending:
    """The spending after one more event; `at` is its time."""
    if type(payload) not in _SPENDING_TYPES:
        return replace(spending, latest=at or spending.latest)
    spending = _fold_time(spending, payload, at)
    match payload:
        case events.ModelRequestEnded(model_usage=usage, purpose=purpose):
            return replace(
                spending,
                turns=spending.turns + (purpose is None),
                input_tokens=spending.input_tokens + prompt_tokens(usage),
                output_tokens=spending.output_tokens + usage.output_tokens,
            )
        case events.AgentToolUse() | events.AgentMcpToolUse() | events.AgentCustomToolUse():
            return replace(spending, tool_calls=spending.tool_calls + 1)
        case events.BudgetReserved() | events.BudgetSettled() | events.SessionForked():
            return _fold_money(spending, payload)
        case events.SessionImported():  # spending in another tool counts against no limit here
            return Spending(latest=at)
        case events.LoopContinued(reason="budget_continuation"):
            return replace(
                spending,
                continuations=spending.continuations + 1,
                output_at_continuation=spending.output_tokens,
                last_gain=spending.output_tokens - spending.output_at_continuation,
            )
        case _:
            return spending


def _fold_money(
    spending: Spending, payload: events.BudgetReserved | events.BudgetSettled | events.SessionForked
) -> Spending:
    match payload:
        case events.BudgetReserved():
            reservation = Reservation(
                cost_usd=Decimal(payload.cost_usd),
                input_tokens=payload.input_tokens,
                output_tokens=payload.output_tokens,
            )
            reservations = {**spending.reservations, payload.reservation_id: reservation}
            return replace(spending, reservations=reservations)
        case events.BudgetSettled(reservation_id=settled) if settled in spending.reservations:
            reservations = dict(spending.reservations)
            del reservations[settled]
            cost = spending.cost_usd + Decimal(payload.cost_usd)
            return replace(spending, reservations=reservations, cost_usd=cost)
        case events.BudgetSettled():  # settled a second time: already counted
            return spending
        case events.SessionForked():  # calls in progress belong to the parent session
            return replace(spending, reservations=_NO_RESERVATIONS)


def _fold_time(spending: Spending, payload: AnyPayload, at: datetime | None) -> Spending:
    """The time between the last event before a crash or a fork and the next one does not count."""
    latest = at or spending.latest
    match payload:
        case events.StatusRunning():
            since = spending.running_since or latest
            return replace(
                spending, running=spending.running + 1, running_since=since, latest=latest
            )
        case events.SessionWoken() if spending.running:
            paused = replace(spending, seconds_before=spending.seconds, running_since=latest)
            return replace(paused, latest=latest)
        case events.SessionForked() | events.SessionReceived():
            ended = replace(
                spending, seconds_before=spending.seconds, running=0, running_since=None
            )
            return replace(ended, latest=latest)
        case events.StatusIdle() | events.StatusTerminated() | events.StatusRescheduled() if (
            spending.running > 1
        ):
            return replace(spending, running=spending.running - 1, latest=latest)
        case events.StatusIdle() | events.StatusTerminated() | events.StatusRescheduled():
            up_to_now = replace(spending, latest=latest)
            return replace(
                up_to_now, seconds_before=up_to_now.seconds, running=0, running_since=None
            )
        case _:
            return replace(spending, latest=latest)


def prompt_tokens(usage: events.Usage) -> int:
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def worst_cost(price: Price, *, input_tokens: int, output_tokens: int) -> Decimal:
    """The most a call can cost: every input token at the dearest class, all output allowed."""
    dearest = max(price.input, price.cache_write, price.cache_read)
    return (input_tokens * dearest + output_tokens * price.output) / _MILLION


def limit_reached(spending: Spending, limits: Limits) -> Ended | None:
    """The limit that allows no further step, if one is reached."""
    if limits.max_turns is not None and spending.turns >= limits.max_turns:
        return Ended("max_turns", f"{spending.turns} of {limits.max_turns} turns taken")
    return (
        _limit_if_used_up("seconds", spending.seconds, limits.max_seconds)
        or _limit_if_used_up("tool calls", spending.tool_calls, limits.max_tool_calls)
        or _limit_if_used_up(
            "input tokens", spending.committed_input_tokens, limits.max_input_tokens
        )
        or _limit_if_used_up(
            "output tokens", spending.committed_output_tokens, limits.max_output_tokens
        )
        or limit_if_passed("US dollars", spending.committed_usd, 0, limits.max_cost_usd)
    )


def continuation(spending: Spending, limits: Limits) -> str | None:
    """The prompt for a model that stops although most of its target is unused; `None`: none.

    It may stop at nine tenths, or once asking it to continue no longer helps.
    """
    target = limits.target_tokens
    if target is None or spending.output_tokens >= target * 9 // 10:
        return None
    gain = spending.output_tokens - spending.output_at_continuation
    is_stalled = max(gain, spending.last_gain) < _MIN_GAIN_TOKENS
    if spending.continuations >= _MIN_CONTINUATIONS and is_stalled:
        return None
    used = spending.output_tokens * 100 // target
    return (
        f"You have used {used} % of the {target} tokens planned for this work. Continue: look for"
        " what is missing or unverified, and do it. Do not summarize what is done."
    )


def _limit_if_used_up(
    what: str, used: int | float | Decimal, limit: int | float | Decimal | None
) -> Ended | None:
    if limit is None or used < limit:
        return None
    return Ended("budget_reached", f"{_format_amount(used)} of {_format_amount(limit)} {what} used")


def limit_if_passed(
    what: str, used: int | Decimal, more: int | Decimal, limit: int | Decimal | None
) -> Ended | None:
    """`Ended` if the next call, which may take `more`, might pass the limit; else `None`."""
    if limit is None or used + more <= limit:
        return None
    return Ended(
        "budget_reached",
        f"{_format_amount(used)} of {_format_amount(limit)} {what} used, and the "
        f"next call may take {_format_amount(more)}",
    )


def _format_amount(amount: int | float | Decimal) -> str:
    if isinstance(amount, int):
        return str(amount)
    return f"{amount:.4f}".rstrip("0").rstrip(".")
