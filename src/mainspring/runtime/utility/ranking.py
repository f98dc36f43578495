"""Chooses which of several candidates to show: by similarity, then by utility.

A candidate's value Q starts at 0.5 and moves towards each reward. Rewards may be noise, so values
count only as far as they differ by more than noise explains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

ALPHA = 0.3
START = 0.5
CANDIDATES = 5
CHOSEN = 2
_MIN_SUBJECTS = 8
"""With fewer credited subjects, noise cannot be estimated: similarity alone decides."""
_MIN_CREDITS = 2
_MIN_SURPRISE = 3.0
"""Standard deviations above what noise explains; high, because the test is repeated often."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Utility:
    value: float = START
    credits: int = 0
    total: float = 0.0
    """The sum of the rewards."""


def with_reward(utility: Utility, reward: float) -> Utility:
    value = utility.value + ALPHA * (reward - utility.value)
    return Utility(value, utility.credits + 1, utility.total + reward)


def reliability(utilities: Iterable[Utility]) -> float:
    """The share of the differences between values that is more than the noise of their rewards: 0
    if rewards are random, near 1 if they always agree."""
    measured = [item for item in utilities if item.credits >= _MIN_CREDITS]
    if len(measured) < _MIN_SUBJECTS:
        return 0.0
    credits = sum(item.credits for item in measured)
    mean = sum(item.total for item in measured) / credits
    noise = mean * (1 - mean) * (len(measured) - 1)
    """The expected value of the sum below if all rewards come from one distribution."""
    spread = sum(item.credits * (item.total / item.credits - mean) ** 2 for item in measured)
    if spread <= noise or noise == 0:
        return 0.0
    surprise = (spread - noise) / (noise * (2 / (len(measured) - 1)) ** 0.5)
    return (1 - noise / spread) * min(1.0, max(0.0, surprise - _MIN_SURPRISE))


def choose(
    candidates: Sequence[tuple[T, float, Utility]], trust: float, *, count: int = CHOSEN
) -> list[tuple[T, float]]:
    """The best candidates, each with the bonus of its utility. `trust` is the
    `reliability` of the values. The candidates come with their similarities, the best first."""
    pool = candidates[:CANDIDATES]
    if not pool:
        return []
    top = max(similarity for _, similarity, _ in pool) or 1.0
    mean = fmean(utility.value for _, _, utility in pool)
    scored = [
        (item, similarity / top, 2 * trust * (utility.value - mean))
        for item, similarity, utility in pool
    ]
    ranked = sorted(scored, key=lambda scores: -(scores[1] * (1 - trust / 2) + scores[2]))
    return [(item, bonus) for item, _, bonus in ranked[:count]]
