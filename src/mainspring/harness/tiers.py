"""Limits over a tree of threads: what one may spend is what each above it has left, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from mainspring.core.catalog import ModelFacts
from mainspring.harness import budget, limits
from mainspring.harness.ensemble import Account
from mainspring.harness.limits import Limits
from mainspring.harness.reasons import Ended


@dataclass(frozen=True, slots=True)
class Tier:
    account: Account
    limits: Limits


def reserve(
    tiers: Sequence[Tier], facts: ModelFacts, *, input_tokens: int, output_tokens: int
) -> Decimal | Ended:
    """Dollars to reserve for the next call, or the first limit that it might pass."""
    cost = Decimal(0)
    for tier in tiers:
        reserved = limits.reserve(
            tier.account.spent,
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
    tiers: Sequence[Tier], facts: ModelFacts, *, input_tokens: int, output_tokens: int
) -> int:
    """The longest reply, up to `output_tokens`, that `reserve` would still allow; 0: none."""
    return min(
        limits.affordable_output(
            tier.account.spent,
            tier.limits,
            facts,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        for tier in tiers
    )


def calls_over(tiers: Sequence[Tier]) -> int:
    """How many of the calls just proposed are too many, counted from the last one."""
    return max(limits.calls_over(tier.account.spent, tier.limits) for tier in tiers)


def status_block(tiers: Sequence[Tier]) -> str | None:
    """What the model is told of its budget: the tightest that holds for it."""
    return budget.advice(
        [each for tier in tiers for each in budget.left(tier.account.spent, tier.limits)]
    )
