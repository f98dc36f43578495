"""How often a gate closes although nothing has changed. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist, fmean

from mainspring.improve.evals.gate.case_evidence import CASE_SHARE
from mainspring.improve.evals.gate.comparison import CaseResults
from mainspring.improve.evals.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingChance:
    comparison: float
    """By the paired test or the evidence of a case, at most."""
    required: float
    """By a case that must pass, if cases pass as often as before."""
    min_rate: float
    """By the pass rate."""

    @property
    def total(self) -> float:
        return 1 - (1 - self.comparison) * (1 - self.required) * (1 - self.min_rate)

    @property
    def text(self) -> str:
        """The part of each rule that is not the comparison."""
        parts = [
            f"{self.required:.1%} by cases that must pass" if self.required else "",
            f"{self.min_rate:.1%} by the pass rate" if self.min_rate >= 0.0005 else "",
        ]
        return ", ".join(filter(None, parts))


def closing_chance(
    suite: Suite,
    before: CaseResults | None,
    after: CaseResults,
    *,
    min_rate: float | None,
) -> ClosingChance:
    """The chance for cases that pass as often as in `before`, with the trials of `after`. Without a
    baseline, nothing is compared, and cases pass as often as in `after`."""
    is_compared = before is not None
    before = after if before is None else before
    required = {case.id for case in suite.cases if case.must_pass}
    luck = 1.0
    for name in required & before.keys() & after.keys():
        luck *= before[name].rate ** len(after[name].trials)
    alpha = suite.gate.alpha
    return ClosingChance(
        comparison=1 - (1 - alpha) * (1 - alpha * CASE_SHARE) if is_compared else 0.0,
        required=1 - luck,
        min_rate=0.0 if min_rate is None else _below(before, after, min_rate),
    )


def _below(before: CaseResults, after: CaseResults, min_rate: float) -> float:
    """How likely fewer cases pass than this share."""
    shared = [name for name in before if name in after]
    if not shared:
        return 0.0
    if min_rate >= 1:
        return 1 - math.prod(before[name].rate ** len(after[name].trials) for name in shared)
    rates = [before[name].rate for name in shared]
    variances = [
        rate * (1 - rate) / len(after[name].trials)
        for name, rate in zip(shared, rates, strict=True)
    ]
    error = math.sqrt(sum(variances)) / len(shared)
    if not error:
        return float(fmean(rates) < min_rate)
    return NormalDist(fmean(rates), error).cdf(min_rate)
