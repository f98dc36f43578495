"""Statistics of eval results. Pure. The unit is the case: trials are averaged within a case first,
because trials of one case are not independent of each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, variance

_NORMAL = NormalDist()
_POWER = 0.8  # the usual one: 4 of 5 real changes are found
_GRID = 1000
"""The exact test rounds rewards that are not simple fractions to multiples of 1/1000."""


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.0%} to {self.high:.0%}"


@dataclass(frozen=True, slots=True)
class Passes:
    """How many trials of a case passed, of how many."""

    passed: int
    trials: int

    def __str__(self) -> str:
        return f"{self.passed} of {self.trials}"


def pass_at_k(trials: int, passed: int, k: int) -> float | None:
    """The chance that at least one of `k` trials passes; `None` with fewer than `k` trials."""
    if trials < k:
        return None
    return 1 - math.comb(trials - passed, k) / math.comb(trials, k)


def pass_all_k(trials: int, passed: int, k: int) -> float | None:
    """pass^k: the chance that all of `k` trials pass."""
    return None if trials < k else math.comb(passed, k) / math.comb(trials, k)


def mean_interval(means: Sequence[float]) -> Interval:
    """The 95 % confidence interval of the mean over cases; each case counts with the mean of its
    trials."""
    count, mean = len(means), fmean(means) if means else 0.0
    z = _NORMAL.inv_cdf(0.975)
    if count == 0:
        return Interval(0.0, 1.0)
    if count < 2 or all(value in (0.0, 1.0) for value in means):
        return _wilson(mean, count, z)
    half = z * math.sqrt(variance(means) / count)
    return Interval(max(0.0, mean - half), min(1.0, mean + half))


def _wilson(share: float, count: int, z: float) -> Interval:
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    centre, scale = share + z * z / (2 * count), 1 + z * z / count
    return Interval(max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale))


def mcnemar_mid_p(wins: int, losses: int) -> float:
    """One-sided exact test (mid-p): how likely at least this many wins are if both are equally
    good."""
    count = wins + losses
    if not count:
        return 1.0
    above = sum(math.comb(count, more) for more in range(wins + 1, count + 1))
    return (above + math.comb(count, wins) / 2) / 2**count


def sign_flip_p(differences: Sequence[float]) -> float:
    """One-sided exact test (mid-p): how likely a sum at least this large is if each difference
    could have either sign. All sign patterns are counted; equal sums count half."""
    scale = _scale(differences)
    steps = [round(value * scale) for value in differences]
    sizes = [abs(step) for step in steps if step]
    if not sizes:
        return 1.0
    # the coefficient of x^u in the product of (1 + x^size) counts the patterns whose positive
    # part is u; coefficients are fields of one large integer, so a factor is a shift and a sum
    width = len(sizes) + 2
    patterns = 1
    for size in sizes:
        patterns += patterns << (size * width)
    total = (sum(steps) + sum(sizes)) // 2
    tail = patterns >> (total * width)
    equal = tail & ((1 << width) - 1)
    return (_sum_of_fields(tail, width) - equal / 2) / 2 ** len(sizes)


def _sum_of_fields(number: int, width: int) -> int:
    return number % (
        (1 << width) - 1
    )  # like casting out nines: the remainder by 9 gives the sum of decimal digits


def fewer_passes_p(before: Passes, after: Passes) -> float:
    """One-sided exact test of Fisher: how likely at most so many passes after the change are, if
    the case passes as often as before."""
    return sum(_shares(before, after)[: after.passed - _least_passed(before, after) + 1])


def least_fewer_passes_p(before: Passes, after: Passes) -> float:
    """The smallest p-value that the test can have with so many trials and passes in all."""
    return _shares(before, after)[0]


def _least_passed(before: Passes, after: Passes) -> int:
    return max(0, before.passed + after.passed - before.trials)


@lru_cache(maxsize=4096)
def _shares(before: Passes, after: Passes) -> list[float]:
    """The probability of each number of passes after the change, given the passes in all."""
    passed = before.passed + after.passed
    ways = math.comb(before.trials + after.trials, passed)
    counts = range(_least_passed(before, after), min(after.trials, passed) + 1)
    return [
        math.comb(after.trials, count) * math.comb(before.trials, passed - count) / ways
        for count in counts
    ]


def tarone_divisor(least_p_values: Sequence[float], level: float) -> int:
    """By how much to divide the level of many tests so that all of them together err with its
    probability. Tests that cannot reach the divided level do not count (Tarone 1990)."""
    for divisor in range(1, len(least_p_values) + 1):
        if sum(p <= level / divisor for p in least_p_values) <= divisor:
            return divisor
    return 1


def trials_to_find_never(level: float) -> int:
    """How many trials, before and after, a case needs so that the test finds at this level that it
    has changed from always to never."""
    count = 1
    while 1 / math.comb(2 * count, count) > level:
        count += 1
    return count


def trials_to_see_failure(rate: float) -> int:
    """How many trials show a case that fails at this rate with a probability of 80 %."""
    return math.ceil(math.log(1 - _POWER) / math.log(1 - rate))


def _scale(differences: Sequence[float]) -> int:
    """The smallest factor that makes all differences integers: trials give thirds, fifths and so
    on."""
    for scale in (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 20, 25, 30, 60, 100):
        if all(abs(value * scale - round(value * scale)) < 1e-9 for value in differences):
            return scale
    return _GRID


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """A paired test of a candidate against a baseline on the same cases."""

    cases: int
    wins: int
    losses: int
    difference: float
    interval: Interval
    p_better: float
    p_worse: float
    method: str
    detectable: float
    """The smallest difference that this number of cases finds with a probability of 80 %."""
    spread: float
    """The standard deviation of the differences of cases."""


def squared_distance(alpha: float) -> float:
    """How many standard errors, squared, a difference must have so that a test at this level finds
    it with a probability of 80 %."""
    return (_NORMAL.inv_cdf(1 - alpha) + _NORMAL.inv_cdf(_POWER)) ** 2


def paired_test(
    baseline: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    *,
    alpha: float = 0.05,
) -> PairedTest:
    """Compare the scores of trials by case, in the same order. McNemar's test counts single trials
    that pass or fail; a sign-flip test counts means over several trials, and rewards."""
    pairs = zip(baseline, candidate, strict=True)
    differences = [fmean(after) - fmean(before) for before, after in pairs]
    wins = sum(value > 1e-12 for value in differences)
    losses = sum(value < -1e-12 for value in differences)
    count = len(differences)
    spread = math.sqrt(variance(differences)) if count > 1 else 0.0
    if all(len(trials) == 1 and trials[0] in (0.0, 1.0) for trials in (*baseline, *candidate)):
        method = "exact McNemar, mid-p"
        better, worse = mcnemar_mid_p(wins, losses), mcnemar_mid_p(losses, wins)
    else:
        method = "exact sign-flip permutation, mid-p"
        better = sign_flip_p(differences)
        worse = sign_flip_p([-value for value in differences])
    mean = fmean(differences) if differences else 0.0
    half = _NORMAL.inv_cdf(0.975) * spread / math.sqrt(count) if count else 1.0
    z = math.sqrt(squared_distance(alpha))
    return PairedTest(
        cases=count,
        wins=wins,
        losses=losses,
        difference=mean,
        interval=Interval(max(-1.0, mean - half), min(1.0, mean + half)),
        p_better=better,
        p_worse=worse,
        method=method,
        detectable=min(1.0, z * (spread or 0.5) / math.sqrt(count)) if count else 1.0,
        spread=spread,
    )


def cohen_kappa(one: Sequence[bool], other: Sequence[bool]) -> tuple[float, Interval]:
    """Agreement beyond chance, and its 95 % confidence interval by the large-sample standard error.
    It is 0, with the whole range, if one of the two always gives the same answer."""
    count = len(one)
    first, second = (sum(one) / count, sum(other) / count) if count else (1.0, 1.0)
    chance = first * second + (1 - first) * (1 - second)
    if chance == 1:
        return 0.0, Interval(-1.0, 1.0)
    observed = sum(a == b for a, b in zip(one, other, strict=True)) / count
    kappa = (observed - chance) / (1 - chance)
    half = _NORMAL.inv_cdf(0.975) * math.sqrt(observed * (1 - observed) / count) / (1 - chance)
    return kappa, Interval(max(-1.0, kappa - half), min(1.0, kappa + half))
