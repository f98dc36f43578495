"""Finds outcomes with a high score that miss the intent of the case: its failing script, an agent
that does nothing, the solution of another case, and answers that a person has failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mainspring.core.events import EvalCaseEnded, EvalGrade
from mainspring.improve.evals.quality.suite_health import ScriptRuns, run_scripts
from mainspring.improve.evals.runs.run_log import MAX_EARLIER_RUNS, existing_runs
from mainspring.improve.evals.runs.runner import SuiteRunner
from mainspring.improve.evals.scoring.grading import weighted_incentives
from mainspring.improve.evals.scoring.labels import latest_labels, read_labels
from mainspring.improve.evals.suite import SuiteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class HighScore:
    """An outcome that misses the intent of its case, and its score."""

    case_id: str
    outcome: str
    """The kind of outcome: a failing script, nothing, another case's solution, or an answer that a
    person failed."""
    passed: bool
    """Whether the outcome passes, which means that the case has a defect. A high score that a
    constraint cancels is not a defect."""
    incentives: float | None
    """The weighted mean of its incentives, regardless of constraints; `None` without incentives."""
    solution: float | None
    """The same for the case's solution; `None` without one."""
    constraints: tuple[str, ...]
    """The constraints that fail; only they prevent a pass."""


async def check_reward(runner: SuiteRunner, suite_file: SuiteFile) -> list[HighScore]:
    """The high scores, worst first. Scripted models play the outcomes; the judges are real."""
    runs = await run_scripts(runner, suite_file)
    solutions = {
        item.case_id: weighted_incentives(item.grades) for item in _results(runs, "oracle")
    }
    outcomes = {
        "its failing script": _results(runs, "failure"),
        "doing nothing": _results(runs, "no-op"),
        "another case's solution": _results(runs, "shuffled"),
        "an answer that a person failed": await _failed_by_people(runner, suite_file),
    }
    scores = [
        _score(item, outcome, solutions.get(item.case_id))
        for outcome, items in outcomes.items()
        for item in items
    ]
    return sorted(
        filter(_is_high, scores),
        key=lambda score: (not score.passed, -(score.incentives or 0.0), score.case_id),
    )


def _results(runs: ScriptRuns, purpose: str) -> Sequence[EvalCaseEnded]:
    run = runs[purpose]
    return () if run is None else run.sorted_results


async def _failed_by_people(runner: SuiteRunner, suite_file: SuiteFile) -> list[EvalCaseEnded]:
    log, name = runner.runtime.log, suite_file.suite.name
    failed = {
        label.session_id for label in latest_labels(read_labels(suite_file)) if not label.passed
    }
    if not failed:
        return []
    runs = await existing_runs(log, runner.agent.name, name, newest=MAX_EARLIER_RUNS)
    results = {item.session_id: item for run in runs for item in run.results.values()}
    return [item for session_id, item in sorted(results.items()) if session_id in failed]


def _score(item: EvalCaseEnded, outcome: str, solution: float | None) -> HighScore:
    return HighScore(
        case_id=item.case_id,
        outcome=outcome,
        passed=item.outcome == "passed",
        incentives=weighted_incentives(item.grades),
        solution=solution,
        constraints=tuple(_failed_constraints(item.grades)),
    )


def _failed_constraints(grades: Sequence[EvalGrade]) -> Iterator[str]:
    for grade in grades:
        if grade.weight is None and not grade.passed:
            names = ", ".join(check.name for check in grade.checks if not check.passed)
            yield f"{grade.grader}: {names or grade.error or 'failed'}"


def _is_high(score: HighScore) -> bool:
    """Whether it passes, or its incentives are at least as high as the solution's."""
    limit = 1.0 if score.solution is None else score.solution
    return score.passed or (score.incentives is not None and score.incentives >= limit)
