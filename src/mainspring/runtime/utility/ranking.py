"""Chooses which of several candidates to show: by similarity, then by utility.

A candidate's value Q starts at 0.5 and moves towards each reward. Rewards may be noise, so values
count only as far as they differ by more than noise explains: all values of a store together, and
those of one candidate that failed or helped again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean
from typing import TypeVar

ALPHA = 0.3  # the weight of a new reward: the last seven uses make up nine tenths of the value
START = 0.5  # the utility of what was never credited
CANDIDATES = 5  # by relevance, among which utility may choose
CHOSEN = 2  # of them that are recalled
_MIN_SUBJECTS = 8
"""With fewer credited subjects, noise cannot be estimated from all of them together."""
_MIN_CREDITS = 2  # before the value of one subject is believed
_MIN_SURPRISE = 3.0
"""Standard deviations above what noise explains; high, because the test is repeated often."""

_MIN_OWN_SURPRISE = 1.5
"""Standard deviations of a candidate's own rewards from chance: 3 failures of 3 count in part, 4 of
4 fully. At half of it 2 of 2 would count fully, at double nothing below 10 of 10."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the values of a store may be believed."""

    of_all: float = 0.0
    """The share of the differences between values that is more than the noise of their rewards: 0
    if rewards are random, near 1 if they always agree."""
    subjects: int = 0
    """How many have been credited often enough."""


@dataclass(frozen=True, slots=True)
class Utility:
    value: float = START
    credits: int = 0
    total: float = 0.0
    """The sum of the rewards."""


def with_reward(utility: Utility, reward: float) -> Utility:
    value = utility.value + ALPHA * (reward - utility.value)
    return Utility(value, utility.credits + 1, utility.total + reward)


def reliability(utilities: Iterable[Utility]) -> Reliability:
    measured = [item for item in utilities if item.credits >= _MIN_CREDITS]
    if len(measured) < _MIN_SUBJECTS:
        return Reliability(0.0, len(measured))
    credits = sum(item.credits for item in measured)
    mean = sum(item.total for item in measured) / credits
    noise = mean * (1 - mean) * (len(measured) - 1)
    """The expected value of the sum below if all rewards come from one distribution."""
    spread = sum(item.credits * (item.total / item.credits - mean) ** 2 for item in measured)
    if spread <= noise or noise == 0:
        return Reliability(0.0, len(measured))
    surprise = (spread - noise) / (noise * (2 / (len(measured) - 1)) ** 0.5)
    of_all = (1 - noise / spread) * min(1.0, max(0.0, surprise - _MIN_SURPRISE))
    return Reliability(of_all, len(measured))


def own_reliability(utility: Utility, subjects: int) -> float:
    """How surely a candidate's own rewards differ from chance, from 0 to 1. Of many subjects, the
    luckiest by chance alone is sqrt(2 log n) standard deviations away, and it is looked at again
    and again."""
    if utility.credits < _MIN_CREDITS:
        return 0.0
    surprise = abs(utility.total - utility.credits * START) / (utility.credits * START**2) ** 0.5
    expected = _MIN_OWN_SURPRISE
    if subjects >= _MIN_SUBJECTS:
        expected = (2 * log(2 * subjects)) ** 0.5
    return min(1.0, max(0.0, 2 * (surprise - expected)))


def choose(
    candidates: Sequence[tuple[T, float, Utility]],
    reliability: Reliability,
    *,
    count: int = CHOSEN,
) -> list[tuple[T, float]]:
    """The best candidates, each with the bonus of its utility. `reliability` is that of all values
    of the store. The candidates come with their similarities, the best first."""
    pool = candidates[:CANDIDATES]
    if not pool:
        return []
    top = max(similarity for _, similarity, _ in pool) or 1.0
    trusts = [
        max(reliability.of_all, own_reliability(utility, reliability.subjects))
        for _, _, utility in pool
    ]
    values = [
        START + trust * (utility.value - START)
        for trust, (_, _, utility) in zip(trusts, pool, strict=True)
    ]
    trust, mean = max(trusts), fmean(values)
    scored = [
        (item, similarity / top, 2 * (value - mean))
        for value, (item, similarity, _) in zip(values, pool, strict=True)
    ]
    ranked = sorted(scored, key=lambda scores: -(scores[1] * (1 - trust / 2) + scores[2]))
    return [(item, bonus) for item, _, bonus in ranked[:count]]
