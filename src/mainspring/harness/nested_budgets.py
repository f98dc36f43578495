"""Limits over a tree of threads: a thread may spend only what it and every thread above it have
left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from mainspring.core.model_facts import ModelFacts
from mainspring.harness import budget, limits
from mainspring.harness.limits import Limits
from mainspring.harness.state.thread_tree import SpendAccount
from mainspring.harness.stop_reasons import Ended


@dataclass(frozen=True, slots=True)
class BudgetTier:
    spend_account: SpendAccount
    limits: Limits


def reserve(
    budget_tiers: Sequence[BudgetTier], facts: ModelFacts, *, input_tokens: int, output_tokens: int
) -> Decimal | Ended:
    """Dollars to reserve for the next call, or the first limit that it might pass."""
    cost = Decimal(0)
    for tier in budget_tiers:
        reserved = limits.reserve(
            tier.spend_account.spending,
            tier.limits,
            facts,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        if isinstance(reserved, Ended):
            return reserved
        cost = reserved
    return cost


def affordable_output(
    budget_tiers: Sequence[BudgetTier], facts: ModelFacts, *, input_tokens: int, output_tokens: int
) -> int:
    """The longest reply, up to `output_tokens`, that `reserve` would still allow; 0: none."""
    return min(
        limits.affordable_output(
            tier.spend_account.spending,
            tier.limits,
            facts,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        for tier in budget_tiers
    )


def calls_over(budget_tiers: Sequence[BudgetTier]) -> int:
    """How many of the calls just proposed are too many, counted from the last one."""
    return max(limits.calls_over(tier.spend_account.spending, tier.limits) for tier in budget_tiers)


def status_block(budget_tiers: Sequence[BudgetTier]) -> str | None:
    """What the model is told of its budget: the tightest that holds for it."""
    return budget.budget_advice(
        [
            remaining_percent
            for tier in budget_tiers
            for remaining_percent in budget.remaining_percents(
                tier.spend_account.spending, tier.limits
            )
        ]
    )
