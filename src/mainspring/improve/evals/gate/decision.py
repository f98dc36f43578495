"""Decides whether a change may be merged, and whether a run may become the baseline.

Three rules are judged apart, each with an error rate that is known: the paired test over all cases,
the evidence of single cases, and the cases that must pass. Trials with errors count for none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mainspring.improve.evals.gate.baseline import Baseline
from mainspring.improve.evals.gate.comparison import (
    CaseResults,
    Comparison,
    ResultSummary,
    case_results,
    compare,
    summarize,
)
from mainspring.improve.evals.gate.false_alarms import closing_chance
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.improve.evals.statistics import trials_to_see_failure
from mainspring.improve.evals.suite import Suite

_MAX_NAMES = 10
"""The most cases that a sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    is_open: bool
    """Whether the change may be merged."""
    reasons: tuple[str, ...]
    """The reasons if it may not."""
    notes: tuple[str, ...]
    comparison: Comparison | None
    summary: ResultSummary


def gate(suite: Suite, run: EvalRun, baseline: Baseline | None) -> GateResult:
    """Open the gate only if the run is complete, required cases pass, no more cases have regressed
    than allowed, and the paired test does not find the run worse. Without a baseline, every case
    must pass."""
    min_rate = suite.gate.min_pass_rate
    if min_rate is None and baseline is None:
        min_rate = 1.0
    return _judge(suite, run, baseline, min_rate)


def baseline_check(suite: Suite, run: EvalRun, baseline: Baseline | None) -> GateResult:
    """Whether a run may become the baseline. The first one need not pass every case; later ones
    must pass the gate."""
    return _judge(suite, run, baseline, suite.gate.min_pass_rate)


def _judge(
    suite: Suite, run: EvalRun, baseline: Baseline | None, min_rate: float | None
) -> GateResult:
    results = case_results(run.results.values())
    summary = summarize(results)
    reasons = [*_run_reasons(run, results), *_required_reasons(suite, results)]
    if min_rate is not None and summary.pass_rate < min_rate:
        reasons.append(f"{summary.pass_rate:.1%} of the cases pass, less than {min_rate:.1%}")
    notes: list[str] = []
    comparison: Comparison | None = None
    if baseline is not None:
        comparison = _compare(suite, baseline.cases, results)
        reasons += _comparison_reasons(suite, comparison)
        notes += _comparison_notes(comparison, run, baseline)
    notes += _error_notes(results)
    notes += _reach_notes(suite, None if baseline is None else baseline.cases, results, min_rate)
    return GateResult(
        is_open=not reasons,
        reasons=tuple(reasons),
        notes=tuple(notes),
        comparison=comparison,
        summary=summary,
    )


def _compare(suite: Suite, before: CaseResults, after: CaseResults) -> Comparison:
    required = {case.id for case in suite.cases if case.must_pass}
    settings = suite.gate
    return compare(before, after, alpha=settings.alpha, effect=settings.effect, apart=required)


def _run_reasons(run: EvalRun, results: CaseResults) -> Iterator[str]:
    if run.ended is None:
        yield "the run has not ended"
        return
    started = {name for name, _ in run.results}
    missing = len(run.created.cases) - len(started)
    if run.ended.status != "completed" or missing:
        yield f"the budget was reached: {missing} cases were not run"
    if without := sorted(started - results.keys()):
        yield (
            f"no verdict because of errors: {_names(without)}; the same command runs only these"
            " again"
        )


def _required_reasons(suite: Suite, results: CaseResults) -> Iterator[str]:
    required = {case.id for case in suite.cases if case.must_pass}
    failed = [
        f"{name} (passed {case.passes} trials)"
        for name, case in results.items()
        if name in required and case.rate < 1
    ]
    if failed:
        yield f"must pass: {_names(failed)}"


def _comparison_reasons(suite: Suite, comparison: Comparison) -> Iterator[str]:
    worse = comparison.evidence.worse
    if len(worse) > suite.gate.max_regressed:
        yield f"regressed: {_names([change.text for change in worse])}"
    if comparison.verdict == "worse":
        yield comparison.text


def _comparison_notes(comparison: Comparison, run: EvalRun, baseline: Baseline) -> Iterator[str]:
    if comparison.verdict != "worse":
        yield comparison.text
    evidence = comparison.evidence
    if evidence.undecided:
        yield (
            f"perhaps regressed: {_names([change.text for change in evidence.undecided])}; so few"
            " trials cannot tell a change of one case from chance, "
            f"{evidence.trials_needed} trials in both runs can"
        )
    if baseline.model != run.created.model:
        yield f"the baseline was run with {baseline.model}, not {run.created.model}"
    if comparison.removed:
        yield f"in the baseline only: {_names(comparison.removed)}"


def _error_notes(results: CaseResults) -> Iterator[str]:
    errors = {name: case.errors for name, case in results.items() if case.errors}
    if errors:
        yield (
            f"{sum(errors.values())} trials ended with errors and count neither as passed nor as"
            f" failed: {_names(errors)}"
        )


def _reach_notes(
    suite: Suite, before: CaseResults | None, after: CaseResults, min_rate: float | None
) -> Iterator[str]:
    """What the gate can see with these cases and trials, and how often it closes by chance."""
    chance = closing_chance(suite, before, after, min_rate=min_rate)
    yield f"if nothing has changed, this gate closes in at most {chance.total:.1%} of runs" + (
        f" ({chance.text})" if chance.text else ""
    )
    required = [case.id for case in suite.cases if case.must_pass and case.id in after]
    needed = trials_to_see_failure(suite.gate.effect)
    trials = min((after[name].passes.trials for name in required), default=needed)
    if trials < needed:
        found = 1 - (1 - suite.gate.effect) ** trials
        yield (
            f"must pass: of cases that fail in {suite.gate.effect:.0%} of their trials,"
            f" {trials} {'trial finds' if trials == 1 else 'trials find'} {found:.0%}; {needed}"
            " trials find 80%"
        )


def plan_notes(suite: Suite, results: CaseResults) -> list[str]:
    """What a gate with this baseline will see, and what it lacks."""
    comparison = _compare(suite, results, results)
    lacking = f"the suite has too few cases: {comparison.lacking}" if comparison.lacking else ""
    notes = _reach_notes(suite, results, results, suite.gate.min_pass_rate)
    return [*notes, *filter(None, [lacking])]


def _names(names: Collection[str]) -> str:
    more = len(names) - _MAX_NAMES
    shown = ", ".join(list(names)[:_MAX_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown
