"""Budgets: the limits of a thread and of every thread above it, the spend-rate breaker, and the
protocol of the daily ledger of agents, users and tenants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from mainspring.core.model_facts import ModelFacts
from mainspring.harness.limits import Limits, limit_if_passed, limit_reached, worst_cost
from mainspring.harness.state.thread_tree import SpendAccount
from mainspring.harness.stop_reasons import Ended

Payer: TypeAlias = Literal["agent", "user", "tenant"]

_ADVICE = (
    (75, "Plan broadly: compare approaches before you choose one."),
    (50, "Continue as planned; start nothing that the task does not need."),
    (25, "Narrow down: finish what you have begun before you start anything new."),
    (10, "Verify what you have and finish the most important part."),
    (0, "Finish now: say what is done, what is verified and what is missing."),
)


@dataclass(frozen=True, slots=True)
class BudgetTier:
    spend_account: SpendAccount
    limits: Limits


def reservation_cost(
    tiers: Sequence[BudgetTier], facts: ModelFacts, *, input_tokens: int, output_tokens: int
) -> Decimal | Ended:
    """Dollars to reserve for the next call, or the first limit that it might pass."""
    cost = worst_cost(facts.price, input_tokens=input_tokens, output_tokens=output_tokens)
    for tier in tiers:
        spending, limits = tier.spend_account.spending, tier.limits
        used_input, used_output = spending.committed_input_tokens, spending.committed_output_tokens
        ended = (
            limit_reached(spending, limits)
            or limit_if_passed("input tokens", used_input, input_tokens, limits.max_input_tokens)
            or limit_if_passed(
                "output tokens", used_output, output_tokens, limits.max_output_tokens
            )
            or limit_if_passed("US dollars", spending.committed_usd, cost, limits.max_cost_usd)
        )
        if ended is not None:
            return ended
    return cost


def affordable_output(
    tiers: Sequence[BudgetTier], facts: ModelFacts, *, input_tokens: int, output_tokens: int
) -> int:
    """The longest reply, up to `output_tokens`, that `reservation_cost` allows; 0: none."""
    allowed = output_tokens
    prompt_cost = worst_cost(facts.price, input_tokens=input_tokens, output_tokens=0)
    for tier in tiers:
        spending, limits = tier.spend_account.spending, tier.limits
        if limits.max_output_tokens is not None:
            allowed = min(allowed, limits.max_output_tokens - spending.committed_output_tokens)
        if limits.max_cost_usd is not None and facts.price.output > 0:
            money = limits.max_cost_usd - spending.committed_usd - prompt_cost
            allowed = min(allowed, int(money * 1_000_000 / facts.price.output))
    return max(0, allowed)


def calls_over(tiers: Sequence[BudgetTier]) -> int:
    """How many of the proposed calls exceed a limit, counted from the last one."""
    excesses = (
        tier.spend_account.spending.tool_calls - tier.limits.max_tool_calls
        for tier in tiers
        if tier.limits.max_tool_calls is not None
    )
    return max((0, *excesses))


def budget_status(tiers: Sequence[BudgetTier]) -> str | None:
    """The budget line for the model: its scarcest resource; `None` if nothing is limited.

    It depends on the log only, and names steps rather than numbers, so that it changes rarely.
    """
    shares_left = [
        (_percent_left(used_amount, limit), what)
        for tier in tiers
        for spending, limits in ((tier.spend_account.spending, tier.limits),)
        for what, used_amount, limit in (
            ("turns", spending.turns, limits.max_turns),
            ("time", spending.seconds, limits.max_seconds),
            ("input tokens", spending.input_tokens, limits.max_input_tokens),
            ("output tokens", spending.output_tokens, limits.max_output_tokens),
            ("tool calls", spending.tool_calls, limits.max_tool_calls),
            ("money", spending.cost_usd, limits.max_cost_usd),
        )
        if limit is not None
    ]
    if not shares_left:
        return None
    percent, what = min(shares_left)
    step, advice = next((step, text) for step, text in _ADVICE if percent >= step)
    amount = f"{step} % or more" if step else "less than 10 %"
    return f"Budget: {amount} of your {what} is left. {advice}"


def _percent_left(used: int | float | Decimal, limit: int | float | Decimal) -> int:
    if limit <= 0:
        return 0
    share = Decimal(used) / Decimal(limit)
    return max(0, int((1 - share) * 100))


class SpendRate:
    """Stops everything when money is spent too fast: a bug spends faster than people do.

    Once tripped, it stays tripped until somebody resets it.
    """

    def __init__(self, max_usd: Decimal, *, seconds: float, clock: Callable[[], float]) -> None:
        """`max_usd` in any period of `seconds`; the clock must be monotonic."""
        self._max_usd = max_usd
        self._seconds = seconds
        self._clock = clock
        self._recent: deque[tuple[float, Decimal]] = deque()
        self._total = Decimal(0)
        self.tripped: str | None = None
        """Why it has tripped, if it has."""

    def record(self, cost_usd: Decimal) -> str | None:
        """Count the cost of a call; returns why everything must stop, if it must."""
        now = self._clock()
        self._recent.append((now, cost_usd))
        self._total += cost_usd
        while self._recent and self._recent[0][0] <= now - self._seconds:
            self._total -= self._recent.popleft()[1]
        if self._total > self._max_usd and self.tripped is None:
            self.tripped = (
                f"{self._total:.2f} US dollars in {self._seconds:.0f} s,"
                f" more than the {self._max_usd:.2f} allowed"
            )
        return self.tripped

    def reset(self) -> None:
        self._recent.clear()
        self._total = Decimal(0)
        self.tripped = None


class Charge(Struct, frozen=True, kw_only=True):
    """A reservation and the accounts that pay for it."""

    reservation_id: str
    cost_usd: Decimal
    agent: str | None = None
    user: str | None = None
    tenant: str | None = None

    def payers(self) -> Iterator[tuple[Payer, str]]:
        if self.agent is not None:
            yield "agent", self.agent
        if self.user is not None:
            yield "user", self.user
        if self.tenant is not None:
            yield "tenant", self.tenant


class Ledger(Protocol):
    """The spending of agents, users and tenants today, over all sessions."""

    async def reserve(self, charge: Charge) -> str | None:
        """Reserve the money for all payers or for none; returns the reason if it is refused.

        The same reservation again, after a crash, is counted once.
        """
        ...

    async def settle(self, reservation_id: str, cost_usd: Decimal) -> None:
        """Replace a reservation by the actual cost; 0 releases it. Unknown ids are ignored."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits beyond those of the session: per day, and the spend rate."""

    ledger: Ledger | None = None
    rate: SpendRate | None = None
    agent: str | None = None
    user: str | None = None
    tenant: str | None = None

    async def reserve(self, reservation_id: str, cost_usd: Decimal) -> str | None:
        """Reserve the cost of a call; returns the reason if it is refused."""
        if self.rate is not None and self.rate.tripped is not None:
            return self.rate.tripped
        if self.ledger is None:
            return None
        return await self.ledger.reserve(
            Charge(
                reservation_id=reservation_id,
                cost_usd=cost_usd,
                agent=self.agent,
                user=self.user,
                tenant=self.tenant,
            )
        )

    async def settle(self, reservation_id: str, cost_usd: Decimal) -> None:
        if self.rate is not None:
            self.rate.record(cost_usd)
        if self.ledger is not None:
            await self.ledger.settle(reservation_id, cost_usd)
