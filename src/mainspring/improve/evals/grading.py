"""Grades a trial: runs its graders, cheapest first, and makes one verdict of their grades.

Constraints come first: one that fails, or that has no verdict, fails the case whatever the rest
says. The reward is the weighted mean of the incentives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, assert_never, get_args

import msgspec

from mainspring.core.errors import MainspringError
from mainspring.core.events import EvalCheck, EvalGrade
from mainspring.improve.evals import answer_checks, trajectory_checks, workspace_checks
from mainspring.improve.evals import graders as specs
from mainspring.improve.evals.evidence import Evidence
from mainspring.improve.evals.graders import Grader, grader_name
from mainspring.improve.evals.judges import Judges

Deterministic: TypeAlias = (
    specs.Contains
    | specs.NotContains
    | specs.Equals
    | specs.Regex
    | specs.Schema
    | specs.Bounds
    | specs.Measure
    | specs.NoPromptLeak
    | specs.Citations
    | specs.FileCheck
    | specs.CommandCheck
    | specs.Trajectory
    | specs.Retrieval
    | specs.Similarity
)
_COST_ORDER: dict[type, int] = {kind: at for at, kind in enumerate(get_args(Grader))}


async def grade_trial(
    graders: Sequence[Grader], evidence: Evidence, judges: Judges
) -> tuple[EvalGrade, ...]:
    """Judges, which cost money, are not asked once a constraint is broken."""
    grades: list[EvalGrade] = []
    if evidence.case.expect is not None:
        checks = trajectory_checks.expectation(evidence.case.expect, evidence)
        grades.append(_grade(f"expect {evidence.case.expect}", None, checks))
    for number, grader in enumerate(sorted(graders, key=lambda item: _COST_ORDER[type(item)])):
        if isinstance(grader, specs.Judge | specs.Pairwise) and not holds_constraints(grades):
            continue
        grades.append(await _graded(grader, evidence, number, judges))
    return tuple(grades)


async def _graded(grader: Grader, evidence: Evidence, number: int, judges: Judges) -> EvalGrade:
    """A grader that cannot judge gives a failed grade with its error, never a pass."""
    name, weight = grader_name(grader), grader.weight
    try:
        if isinstance(grader, specs.Judge | specs.Pairwise):
            judge = judges.judge if isinstance(grader, specs.Judge) else judges.pairwise
            score, checks = await judge(grader, evidence)  # pyright: ignore[reportArgumentType] (as chosen)
            grade = _grade(name, weight, checks, score)
            return msgspec.structs.replace(grade, note=judges.note(grader))
        checks, score = await _judged(grader, evidence, number)
    except MainspringError as error:
        return EvalGrade(grader=name, passed=False, score=0.0, weight=weight, error=str(error))
    return _grade(name, weight, checks, score)


async def _judged(
    grader: Deterministic, evidence: Evidence, number: int
) -> tuple[list[EvalCheck], float | None]:
    match grader:
        case specs.FileCheck():
            return await workspace_checks.file(grader, evidence), None
        case specs.CommandCheck():
            return await workspace_checks.command(grader, evidence, number), None
        case specs.Similarity():
            score, checks = answer_checks.similarity(grader, evidence)
            return checks, score
        case specs.Measure():
            return [], answer_checks.measure_score(grader, evidence)
        case _:
            return _text_checks(grader, evidence), None


def _text_checks(
    grader: specs.Contains
    | specs.NotContains
    | specs.Equals
    | specs.Regex
    | specs.Schema
    | specs.Bounds
    | specs.NoPromptLeak
    | specs.Citations
    | specs.Trajectory
    | specs.Retrieval,
    evidence: Evidence,
) -> list[EvalCheck]:
    match grader:
        case specs.Contains():
            return answer_checks.contains(grader, evidence)
        case specs.NotContains():
            return answer_checks.not_contains(grader, evidence)
        case specs.Equals():
            return answer_checks.equals(grader, evidence)
        case specs.Regex():
            return answer_checks.regex(grader, evidence)
        case specs.Schema():
            return answer_checks.schema(grader, evidence)
        case _:
            return _log_checks(grader, evidence)


def _log_checks(
    grader: specs.Bounds
    | specs.NoPromptLeak
    | specs.Citations
    | specs.Trajectory
    | specs.Retrieval,
    evidence: Evidence,
) -> list[EvalCheck]:
    match grader:
        case specs.Bounds():
            return answer_checks.bounds(grader, evidence)
        case specs.NoPromptLeak():
            return answer_checks.no_prompt_leak(grader, evidence)
        case specs.Citations():
            return answer_checks.citations(grader, evidence)
        case specs.Trajectory():
            return trajectory_checks.trajectory(grader, evidence)
        case specs.Retrieval():
            return trajectory_checks.retrieval(grader, evidence)
        case _:
            assert_never(grader)


def _grade(
    name: str, weight: float | None, checks: Sequence[EvalCheck], score: float | None = None
) -> EvalGrade:
    passed = all(item.passed for item in checks)
    if score is None:
        score = sum(item.passed for item in checks) / len(checks) if checks else float(passed)
    return EvalGrade(
        grader=name, passed=passed, score=round(score, 6), checks=tuple(checks), weight=weight
    )


def holds_constraints(grades: Iterable[EvalGrade]) -> bool:
    return all(grade.passed for grade in grades if grade.weight is None)


def reward(grades: Sequence[EvalGrade]) -> float:
    """0 if a constraint is broken, else the weighted mean of the incentives; 1 without any."""
    if not holds_constraints(grades):
        return 0.0
    incentives = [(grade.weight, grade.score) for grade in grades if grade.weight is not None]
    total = sum(weight for weight, _ in incentives)
    return sum(weight * score for weight, score in incentives) / total if total else 1.0


def is_passed(grades: Sequence[EvalGrade], *, pass_score: float) -> bool:
    """Without any grade there is no verdict, so nothing passes."""
    has_errors = any(grade.error is not None for grade in grades)
    return (
        bool(grades)
        and not has_errors
        and holds_constraints(grades)
        and reward(grades) >= pass_score
    )
