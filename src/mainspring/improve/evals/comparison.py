"""Compares the results of runs with each other and with a baseline, and decides whether a change
may be merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.events import EvalCaseEnded
from mainspring.files.atomic_file import read_bounded
from mainspring.improve.evals.run_log import EvalRun
from mainspring.improve.evals.statistics import (
    Interval,
    PairedTest,
    mean_interval,
    paired_test,
    pass_all_k,
    pass_at_k,
)
from mainspring.improve.evals.suite import Suite

Verdict: TypeAlias = Literal["better", "worse", "no difference", "not enough cases"]
_EFFECT = 0.1
"""The difference in pass rate that a comparison should be able to find."""
_REGRESSED = 0.5
"""A case has regressed if it passes this much less often."""


class CaseResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The results of all trials of a case."""

    trials: tuple[float, ...]
    """1 for a trial that passed, 0 for others."""
    rewards: tuple[float, ...] = ()
    tags: tuple[str, ...] = ()
    hash: str = ""

    @property
    def rate(self) -> float:
        return fmean(self.trials)

    @property
    def is_flaky(self) -> bool:
        return 0 < self.rate < 1


CaseResults: TypeAlias = Mapping[str, CaseResult]


def case_results(results: Iterable[EvalCaseEnded]) -> dict[str, CaseResult]:
    """The results by case; errors count as failures."""
    results_by_case: dict[str, list[EvalCaseEnded]] = {}
    for item in results:
        results_by_case.setdefault(item.case_id, []).append(item)
    return {
        name: CaseResult(
            trials=tuple(float(item.outcome == "passed") for item in items),
            rewards=tuple(item.score for item in items),
            tags=items[0].tags,
            hash=items[0].case_hash,
        )
        for name, items in sorted(results_by_case.items())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
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


def summarize(results: CaseResults) -> Summary:
    cases = list(results.values())
    rates = [case.rate for case in cases]
    k = min((len(case.trials) for case in cases), default=0)
    counts = [(len(case.trials), round(sum(case.trials))) for case in cases]
    tags: dict[str, list[float]] = {}
    for case in cases:
        for tag in case.tags:
            tags.setdefault(tag, []).append(case.rate)
    return Summary(
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
    more_cases: int
    """The number of further cases needed to find a difference of ten points."""
    regressed: tuple[str, ...]
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
            return (
                f"not enough cases: {self.more_cases} more would find a difference of"
                f" {_EFFECT * 100:.0f} points; these find {test.detectable * 100:.0f}. {what}"
            )
        return f"{self.verdict}: {what}"


def compare(before: CaseResults, after: CaseResults, *, alpha: float = 0.05) -> Comparison:
    """Compare two runs on the cases that both have. The verdict is `better` or `worse` at the level
    `alpha`; otherwise it says whether there were enough cases to decide."""
    shared = [name for name in before if name in after]
    test = _paired(before, after, shared, alpha)
    needed = test.cases_needed(_EFFECT, alpha=alpha)
    verdict: Verdict = "no difference"
    if test.p_better < alpha:
        verdict = "better"
    elif test.p_worse < alpha:
        verdict = "worse"
    elif test.cases < needed:
        verdict = "not enough cases"
    changes = {name: after[name].rate - before[name].rate for name in shared}
    tags = sorted({tag for name in shared for tag in after[name].tags})
    return Comparison(
        test=test,
        verdict=verdict,
        more_cases=max(0, needed - test.cases),
        regressed=tuple(name for name, change in changes.items() if change <= -_REGRESSED),
        improved=tuple(name for name, change in changes.items() if change >= _REGRESSED),
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        tags={
            tag: _paired(before, after, [name for name in shared if tag in after[name].tags], alpha)
            for tag in tags
        },
    )


def _paired(
    before: CaseResults, after: CaseResults, names: Sequence[str], alpha: float
) -> PairedTest:
    return paired_test(
        [before[name].trials for name in names],
        [after[name].trials for name in names],
        alpha=alpha,
    )


class Baseline(Struct, frozen=True, kw_only=True):
    """The results that a gate compares with, stored in a file in git."""

    suite: str
    suite_hash: str
    model: str
    run_id: str
    time: datetime
    cases: dict[str, CaseResult]
    cost_usd: str
    agent_version: str | None = None


def baseline_of(run: EvalRun) -> Baseline:
    created = run.created
    return Baseline(
        suite=created.suite,
        suite_hash=created.suite_hash,
        model=created.model,
        run_id=run.id,
        time=run.started,
        cases=case_results(run.results.values()),
        cost_usd=str(sum((Decimal(item.cost_usd) for item in run.results.values()), Decimal(0))),
        agent_version=created.agent_version,
    )


def encode_baseline(baseline: Baseline) -> bytes:
    """Encode it with a line for each case, for readable diffs."""
    return msgspec.json.format(msgspec.json.encode(baseline, order="sorted"), indent=1) + b"\n"


def read_baseline(file: Path) -> Baseline | None:
    """`None` if there is none. Raises: InvalidInput: it is damaged."""
    content = read_bounded(file, max_bytes=50_000_000)
    try:
        return None if content is None else msgspec.json.decode(content, type=Baseline)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{file}: {error}; --save-baseline writes a new one") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    is_open: bool
    """Whether the change may be merged."""
    reasons: tuple[str, ...]
    """The reasons if it may not."""
    notes: tuple[str, ...]
    comparison: Comparison | None
    summary: Summary


def gate(suite: Suite, run: EvalRun, baseline: Baseline | None) -> GateResult:
    """Open the gate only if the run is complete, required cases pass, no more cases have regressed
    than allowed, and the paired test does not find the run worse."""
    results = case_results(run.results.values())
    summary = summarize(results)
    comparison = (
        None if baseline is None else compare(baseline.cases, results, alpha=suite.gate.alpha)
    )
    reasons = [*_run_reasons(run), *_case_reasons(suite, results)]
    min_rate = suite.gate.min_pass_rate
    min_rate = 1.0 if min_rate is None and baseline is None else min_rate
    if min_rate is not None and summary.pass_rate < min_rate:
        reasons.append(f"{summary.pass_rate:.1%} of the cases pass, less than {min_rate:.1%}")
    notes: list[str] = []
    if comparison is not None and baseline is not None:
        if len(comparison.regressed) > suite.gate.max_regressed:
            reasons.append(f"regressed: {', '.join(comparison.regressed)}")
        if comparison.verdict == "worse":
            reasons.append(comparison.text)
        notes = [comparison.text] if comparison.verdict != "worse" else []
        if baseline.model != run.created.model:
            notes.append(f"the baseline was run with {baseline.model}, not {run.created.model}")
        if comparison.removed:
            notes.append(f"in the baseline only: {', '.join(comparison.removed)}")
    return GateResult(
        is_open=not reasons,
        reasons=tuple(reasons),
        notes=tuple(notes),
        comparison=comparison,
        summary=summary,
    )


def _run_reasons(run: EvalRun) -> list[str]:
    if run.ended is None:
        return ["the run has not ended"]
    missing = len(run.created.cases) - len({name for name, _ in run.results})
    if run.ended.status == "completed" and not missing:
        return []
    return [f"the budget was reached: {missing} cases were not run"]


def _case_reasons(suite: Suite, results: CaseResults) -> list[str]:
    required = {case.id for case in suite.cases if case.must_pass}
    failed = [name for name, case in results.items() if name in required and case.rate < 1]
    return [f"must pass: {', '.join(failed)}"] if failed else []
