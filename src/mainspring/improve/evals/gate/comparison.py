"""Compares the results of runs with each other: all cases together by a paired test, and each case
by its own trials. `gate` decides whether a change may be merged."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events import EvalCaseEnded
from mainspring.improve.evals.gate.case_evidence import CASE_SHARE, CaseEvidence, case_evidence
from mainspring.improve.evals.statistics import (
    Interval,
    PairedTest,
    Passes,
    mean_interval,
    paired_test,
    pass_all_k,
    pass_at_k,
    squared_distance,
)

Verdict: TypeAlias = Literal["better", "worse", "no difference", "not enough cases"]
EFFECT = 0.1
"""The difference in pass rate that a comparison should be able to find."""
_MAX_TRIALS = 100
"""The most trials that a suite may ask for; more are no advice."""


class CaseResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The results of all trials of a case."""

    trials: tuple[float, ...]
    """1 for a trial that passed, 0 for one that failed."""
    rewards: tuple[float, ...] = ()
    tags: tuple[str, ...] = ()
    hash: str = ""
    errors: int = 0
    """Trials without a verdict. They count neither as passes nor as failures."""

    @property
    def passes(self) -> Passes:
        return Passes(sum(value >= 0.5 for value in self.trials), len(self.trials))

    @property
    def rate(self) -> float:
        return fmean(self.trials)

    @property
    def is_flaky(self) -> bool:
        return 0 < self.rate < 1


CaseResults: TypeAlias = Mapping[str, CaseResult]


def case_results(results: Iterable[EvalCaseEnded]) -> dict[str, CaseResult]:
    """The results by case. A trial with an error has no verdict: it does not count, and a case
    without any verdict is left out."""
    judged: dict[str, list[EvalCaseEnded]] = {}
    errors: dict[str, int] = {}
    for item in results:
        if item.outcome == "error":
            errors[item.case_id] = errors.get(item.case_id, 0) + 1
        else:
            judged.setdefault(item.case_id, []).append(item)
    return {
        name: CaseResult(
            trials=tuple(float(item.outcome == "passed") for item in items),
            rewards=tuple(item.score for item in items),
            tags=items[0].tags,
            hash=items[0].case_hash,
            errors=errors.get(name, 0),
        )
        for name, items in sorted(judged.items())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSummary:
    cases: int
    pass_rate: float
    interval: Interval
    trials: int
    """The number of trials of the case with the fewest."""
    pass_at: float | None
    """pass@k with that many trials."""
    pass_all: float | None
    """pass^k."""
    reward: float
    flaky: tuple[str, ...]
    tags: Mapping[str, tuple[int, float]]
    """Cases and pass rate by tag."""


def summarize(results: CaseResults) -> ResultSummary:
    cases = list(results.values())
    rates = [case.rate for case in cases]
    k = min((len(case.trials) for case in cases), default=0)
    counts = [(len(case.trials), round(sum(case.trials))) for case in cases]
    tags: dict[str, list[float]] = {}
    for case in cases:
        for tag in case.tags:
            tags.setdefault(tag, []).append(case.rate)
    return ResultSummary(
        cases=len(cases),
        pass_rate=fmean(rates) if rates else 0.0,
        interval=mean_interval(rates),
        trials=k,
        pass_at=_mean(pass_at_k(*count, k) for count in counts) if k else None,
        pass_all=_mean(pass_all_k(*count, k) for count in counts) if k else None,
        reward=fmean([fmean(case.rewards or (0.0,)) for case in cases]) if cases else 0.0,
        flaky=tuple(name for name, case in results.items() if case.is_flaky),
        tags={
            tag: (len(rates_of_tag), fmean(rates_of_tag))
            for tag, rates_of_tag in sorted(tags.items())
        },
    )


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    test: PairedTest
    verdict: Verdict
    effect: float
    """The difference that the comparison should find with a probability of 80 %."""
    more_cases: int
    """The number of further cases needed to find it."""
    trials_needed: int | None
    """With so many trials of each case, no further cases are needed; `None` if no number of trials
    is enough."""
    evidence: CaseEvidence
    regressed: tuple[str, ...]
    """Cases whose own trials prove that they pass less often."""
    improved: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    tags: Mapping[str, PairedTest]

    @property
    def text(self) -> str:
        test = self.test
        what = (
            f"{test.difference * 100:+.1f} points on {test.cases} cases"
            f" ({test.wins} better, {test.losses} worse; 95 %: {test.interval.low * 100:+.1f} to"
            f" {test.interval.high * 100:+.1f}; {test.method}:"
            f" p(better) {test.p_better:.3f}, p(worse) {test.p_worse:.3f})"
        )
        if self.verdict == "not enough cases":
            return f"not enough cases: {self.lacking} {what}"
        return f"{self.verdict}: {what}"

    @property
    def lacking(self) -> str:
        """What is lacking to find the difference; empty if nothing is."""
        if not self.more_cases:
            return ""
        trials = f", or {self.trials_needed} trials of each," if self.trials_needed else ""
        return (
            f"{self.more_cases} more{trials} would find a difference of {self.effect * 100:.0f}"
            " points four times in five."
        )


def compare(
    before: CaseResults,
    after: CaseResults,
    *,
    alpha: float = 0.05,
    effect: float = EFFECT,
    apart: Collection[str] = (),
) -> Comparison:
    """Compare two runs on the cases that both have. The verdict is `better` or `worse` at the level
    `alpha`; otherwise it says whether there were enough cases to decide. Cases are called regressed
    or improved at a tenth of that level for all of them together, except those that are judged
    `apart`."""
    shared = [name for name in before if name in after]
    test = _paired(before, after, shared, alpha)
    needed, trials = _needed(before, after, test, alpha=alpha, effect=effect)
    verdict: Verdict = "no difference"
    if test.p_better < alpha:
        verdict = "better"
    elif test.p_worse < alpha:
        verdict = "worse"
    elif test.cases < needed:
        verdict = "not enough cases"
    tags = sorted({tag for name in shared for tag in after[name].tags})
    evidence = case_evidence(
        {name: before[name].passes for name in shared if name not in apart},
        {name: after[name].passes for name in shared if name not in apart},
        level=alpha * CASE_SHARE,
    )
    return Comparison(
        test=test,
        verdict=verdict,
        effect=effect,
        more_cases=max(0, needed - test.cases),
        trials_needed=trials,
        evidence=evidence,
        regressed=tuple(change.case_id for change in evidence.worse),
        improved=tuple(change.case_id for change in evidence.better),
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        tags={
            tag: _paired(before, after, [name for name in shared if tag in after[name].tags], alpha)
            for tag in tags
        },
    )


def _needed(
    before: CaseResults, after: CaseResults, test: PairedTest, *, alpha: float, effect: float
) -> tuple[int, int | None]:
    """How many cases, or how many trials of each case, would find a change by `effect`.

    A difference between runs varies with the luck of trials, which more trials reduce, and with
    what a change does to each case, which they do not. The luck is computed for cases that lose
    `effect`: cases that always pass do not vary until they change.
    """
    shared = [name for name in before if name in after]
    passes = [(before[name].passes, after[name].passes) for name in shared]
    all_passed = sum(one.passed + other.passed for one, other in passes)
    all_trials = sum(one.trials + other.trials for one, other in passes)
    mean = (all_passed + 0.5) / (all_trials + 1)
    luck = noise = one_trial = 0.0
    for one, other in passes:
        rate = (one.passed + other.passed + mean) / (one.trials + other.trials + 1)
        lower = max(0.0, rate - effect)
        variance, lower_variance = rate * (1 - rate), lower * (1 - lower)
        luck += variance / one.trials + lower_variance / other.trials
        noise += variance / one.trials + variance / other.trials
        one_trial += variance + lower_variance
    count = max(1, len(passes))
    changes = max(0.0, test.spread**2 - noise / count)
    distance = squared_distance(alpha)
    needed = math.ceil(distance * ((luck / count + changes) if passes else 0.25) / effect**2)
    left = count * effect**2 / distance - changes
    trials = math.ceil(one_trial / count / left) if left > 0 else None
    return needed, None if trials is None or trials > _MAX_TRIALS else trials


def _paired(
    before: CaseResults, after: CaseResults, names: Sequence[str], alpha: float
) -> PairedTest:
    return paired_test(
        [before[name].trials for name in names],
        [after[name].trials for name in names],
        alpha=alpha,
    )
