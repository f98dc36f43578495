"""Measures judges: how well they agree with people on labelled answers, and whether padding or
answers of their own model family change their verdicts. `pair_calibration` measures judges of
pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from mainspring.core.errors import InvalidInput
from mainspring.core.ports import ExecRequest, ExecResult
from mainspring.improve.evals.graders import Judge, Pairwise
from mainspring.improve.evals.quality.pair_calibration import PairReport, calibrate_pairs
from mainspring.improve.evals.scoring.grading_context import GradingContext
from mainspring.improve.evals.scoring.judges import Calibration, Judges, grader_hash, model_family
from mainspring.improve.evals.scoring.labels import Agreement, Label, agreement, latest_labels
from mainspring.improve.evals.suite import Case, SuiteFile
from mainspring.improve.evals.trajectory import TrajectoryLog

_PROBED = 10
"""The number of labelled answers that are also judged with padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    grader: str
    model: str
    agreement: Agreement
    padding_flips: float | None
    """How often a padded copy of an answer gets a different verdict."""
    own_family: float | None
    """How much more often it wrongly passes answers of its own model family than other answers (0
    to 1); `None` without labelled answers of both kinds."""
    malformed: int
    """The number of answers that got no verdict."""
    calibration: Calibration


async def calibrate_judges(
    judges: Judges, suite_file: SuiteFile, labels: Sequence[Label]
) -> list[JudgeReport | PairReport]:
    """Measure every judge of the suite on all labels of its cases.

    Raises: InvalidInput: no label belongs to a case with a judge.
    """
    cases = {case.id: case for case in suite_file.suite.cases}
    labels_by_judge: dict[str, tuple[Judge | Pairwise, list[Label]]] = {}
    for label in latest_labels(labels):
        if label.case_id not in cases:
            continue
        for grader in suite_file.suite.graders_of(cases[label.case_id]):
            if isinstance(grader, Judge | Pairwise):
                key = grader_hash(grader, grader.model or judges.default_model)
                labels_by_judge.setdefault(key, (grader, []))[1].append(label)
    if not labels_by_judge:
        raise InvalidInput(
            "no label belongs to a case with a judge; `mainspring eval label` adds labels"
        )
    return [
        await calibrate_pairs(judges, grader, suite_file, judge_labels)
        if isinstance(grader, Pairwise)
        else await _measure(judges, grader, suite_file, judge_labels)
        for grader, judge_labels in labels_by_judge.values()
    ]


async def _measure(
    judges: Judges, grader: Judge, suite_file: SuiteFile, labels: Sequence[Label]
) -> JudgeReport:
    cases = {case.id: case for case in suite_file.suite.cases}
    judged_labels: list[Label] = []
    verdicts: list[bool] = []
    flips: list[bool] = []
    for label in labels:
        case = cases[label.case_id]
        try:
            verdict = await _passes(judges, grader, suite_file, case, label.answer)
            if len(flips) < _PROBED:
                padded = f"{label.answer}\n\nIn other words:\n\n{label.answer}"
                flips.append(await _passes(judges, grader, suite_file, case, padded) != verdict)
        except InvalidInput:
            continue
        judged_labels.append(label)
        verdicts.append(verdict)
    result = agreement([label.passed for label in judged_labels], verdicts)
    model = grader.model or judges.default_model
    return JudgeReport(
        grader=grader.name or "judge",
        model=model,
        agreement=result,
        padding_flips=sum(flips) / len(flips) if flips else None,
        own_family=_own_family(model_family(model), judged_labels, verdicts),
        malformed=len(labels) - len(verdicts),
        calibration=result.calibration(grader_hash(grader, model), labels=result.labels),
    )


def _own_family(family: str, labels: Sequence[Label], verdicts: Sequence[bool]) -> float | None:
    excess: dict[bool, list[int]] = {True: [], False: []}
    for label, verdict in zip(labels, verdicts, strict=True):
        if label.model:
            excess[model_family(label.model) == family].append(verdict - label.passed)
    own_family, other_families = excess[True], excess[False]
    if not own_family or not other_families:
        return None
    return fmean(own_family) - fmean(other_families)


async def _passes(
    judges: Judges, grader: Judge, suite_file: SuiteFile, case: Case, answer: str
) -> bool:
    _, checks = await judges.judge(grader, answer_context(suite_file, case, answer))
    return all(item.passed for item in checks)


def answer_context(suite_file: SuiteFile, case: Case, answer: str) -> GradingContext:
    """The grading context of an answer without a session."""
    return GradingContext(
        case=case,
        trajectory=TrajectoryLog(answers=[answer]),
        seconds=0.0,
        instructions="",
        suite_folder=suite_file.folder,
        workspace=None,
        scratch=suite_file.folder,
        run_program=_no_program,
        key="",
    )


async def _no_program(folder: Path, program: ExecRequest) -> ExecResult:
    raise InvalidInput(f"a judge runs no programs: {program.argv} in {folder}")
