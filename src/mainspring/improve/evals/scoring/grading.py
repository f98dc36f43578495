"""Grades a trial: runs its graders, the cheapest first, and combines their grades into a verdict.

A constraint that fails, or has no verdict, fails the case, whatever the other graders say. The
reward is the weighted mean of the incentives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, get_args

import msgspec

from mainspring.core.errors import MainspringError
from mainspring.core.events import EvalCheck, EvalGrade
from mainspring.improve.evals import graders as specs
from mainspring.improve.evals.graders import Grader, grader_name
from mainspring.improve.evals.scoring import (
    answer_checks,
    measured_numbers,
    trajectory_checks,
    workspace_checks,
)
from mainspring.improve.evals.scoring.grading_context import GradingContext
from mainspring.improve.evals.scoring.judges import Judges

Grading: TypeAlias = tuple[float | None, Sequence[EvalCheck]]
"""A score and the checks; without a score, it is the share of checks that passed."""
# Any: each function takes the grader of its key
_CHECKS: dict[type, Callable[[Any, GradingContext], Iterable[EvalCheck]]] = {
    specs.Contains: answer_checks.contains,
    specs.NotContains: answer_checks.not_contains,
    specs.Equals: answer_checks.equals,
    specs.Regex: answer_checks.regex,
    specs.Schema: answer_checks.schema,
    specs.Bounds: answer_checks.bounds,
    specs.NoPromptLeak: answer_checks.no_prompt_leak,
    specs.Citations: answer_checks.citations,
    specs.Trajectory: trajectory_checks.trajectory,
    specs.Retrieval: trajectory_checks.retrieval,
}
"""The function of each type of grader whose score is the share of checks that passed."""


async def _run_grader(grader: Grader, context: GradingContext, judges: Judges) -> Grading:
    match grader:
        case specs.FileCheck():
            return None, await workspace_checks.file(grader, context)
        case specs.CommandCheck():
            return None, await workspace_checks.command(grader, context)
        case specs.Measure():
            return await measured_numbers.measure(grader, context)
        case specs.Similarity():
            return answer_checks.similarity(grader, context)
        case specs.Judge():
            return await judges.judge(grader, context)
        case specs.Pairwise():
            return await judges.pairwise(grader, context)
        case _:
            return None, list(_CHECKS[type(grader)](grader, context))


_COST_ORDER: dict[type, int] = {kind: index for index, kind in enumerate(get_args(Grader))}


async def grade_trial(
    graders: Sequence[Grader], context: GradingContext, judges: Judges
) -> tuple[EvalGrade, ...]:
    """Run the graders of a trial. Judges, which cost money, are skipped once a constraint has
    failed."""
    grades: list[EvalGrade] = []
    if context.case.expect is not None:
        checks = trajectory_checks.expectation(context.case.expect, context)
        grades.append(_grade(f"expect {context.case.expect}", None, checks))
    for number, grader in enumerate(sorted(graders, key=lambda item: _COST_ORDER[type(item)])):
        if isinstance(grader, specs.Judge | specs.Pairwise) and not meets_constraints(grades):
            continue
        grades.append(await _grade_with(grader, replace(context, grader_number=number), judges))
    return tuple(grades)


async def _grade_with(grader: Grader, context: GradingContext, judges: Judges) -> EvalGrade:
    """Run one grader; an error gives a failed grade, never a pass."""
    name, weight = grader_name(grader), grader.weight
    try:
        score, checks = await _run_grader(grader, context, judges)
    except MainspringError as error:
        return EvalGrade(grader=name, passed=False, score=0.0, weight=weight, error=str(error))
    grade = _grade(name, weight, checks, score)
    if isinstance(grader, specs.Judge | specs.Pairwise):
        return msgspec.structs.replace(grade, note=judges.note(grader))
    return grade


def _grade(
    name: str, weight: float | None, checks: Sequence[EvalCheck], score: float | None = None
) -> EvalGrade:
    passed = all(item.passed for item in checks)
    if score is None:
        score = sum(item.passed for item in checks) / len(checks) if checks else float(passed)
    return EvalGrade(
        grader=name, passed=passed, score=round(score, 6), checks=tuple(checks), weight=weight
    )


def meets_constraints(grades: Iterable[EvalGrade]) -> bool:
    return all(grade.passed for grade in grades if grade.weight is None)


def reward(grades: Sequence[EvalGrade]) -> float:
    """0 if a constraint has failed, else the weighted mean of the incentives, or 1 if there are
    none."""
    if not meets_constraints(grades):
        return 0.0
    incentives = weighted_incentives(grades)
    return 1.0 if incentives is None else incentives


def weighted_incentives(grades: Sequence[EvalGrade]) -> float | None:
    incentives = [(grade.weight, grade.score) for grade in grades if grade.weight is not None]
    total = sum(weight for weight, _ in incentives)
    return sum(weight * score for weight, score in incentives) / total if total else None


def is_passed(grades: Sequence[EvalGrade], *, pass_score: float) -> bool:
    """Whether the trial passed; without grades it did not."""
    has_errors = any(grade.error is not None for grade in grades)
    return (
        bool(grades)
        and not has_errors
        and meets_constraints(grades)
        and reward(grades) >= pass_score
    )
