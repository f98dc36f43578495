"""Measures judges: how well they agree with people on labelled answers, and whether padding sways
them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mainspring.core.errors import InvalidInput
from mainspring.core.ports import ExecRequest, ExecResult
from mainspring.improve.evals.evidence import Evidence
from mainspring.improve.evals.graders import Judge
from mainspring.improve.evals.judges import Calibration, Judges, grader_hash
from mainspring.improve.evals.labels import Agreement, Label, agreement, latest_labels
from mainspring.improve.evals.suite import Case, SuiteFile
from mainspring.improve.evals.trajectory import TrajectoryLog

_PROBED = 10
"""Labelled answers that are asked about again, padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    grader: str
    model: str
    agreement: Agreement
    padding_flips: float | None
    """How often a padded copy of an answer gets another verdict than the answer."""
    malformed: int
    """Answers on which the judge gave no verdict."""
    calibration: Calibration


async def calibrate_judges(
    judges: Judges, suite_file: SuiteFile, labels: Sequence[Label]
) -> list[JudgeReport]:
    """Every judge of the suite on every label of its cases.

    Raises: InvalidInput: no label is of a case with a judge.
    """
    cases = {case.id: case for case in suite_file.suite.cases}
    measured: dict[str, tuple[Judge, list[Label]]] = {}
    for label in latest_labels(labels):
        if label.case_id not in cases:
            continue
        for grader in _judges_of(suite_file, cases[label.case_id]):
            key = grader_hash(grader, grader.model or judges.default_model)
            measured.setdefault(key, (grader, []))[1].append(label)
    if not measured:
        raise InvalidInput("no label is of a case with a judge; `mainspring eval label` adds them")
    return [
        await _measure(judges, grader, suite_file, labelled)
        for grader, labelled in measured.values()
    ]


def _judges_of(suite_file: SuiteFile, case: Case) -> Iterator[Judge]:
    yield from (item for item in suite_file.suite.graders_of(case) if isinstance(item, Judge))


async def _measure(
    judges: Judges, grader: Judge, suite_file: SuiteFile, labels: Sequence[Label]
) -> JudgeReport:
    cases = {case.id: case for case in suite_file.suite.cases}
    people: list[bool] = []
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
        people.append(label.passed)
        verdicts.append(verdict)
    found = agreement(people, verdicts)
    model = grader.model or judges.default_model
    return JudgeReport(
        grader=grader.name or "judge",
        model=model,
        agreement=found,
        padding_flips=sum(flips) / len(flips) if flips else None,
        malformed=len(labels) - len(verdicts),
        calibration=Calibration(
            judge=grader_hash(grader, model),
            labels=found.labels,
            agreement=found.agreement,
            kappa=found.kappa,
            kappa_low=found.interval.low,
            kappa_high=found.interval.high,
        ),
    )


async def _passes(
    judges: Judges, grader: Judge, suite_file: SuiteFile, case: Case, answer: str
) -> bool:
    evidence = Evidence(
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
    _, checks = await judges.judge(grader, evidence)
    return all(item.passed for item in checks)


async def _no_program(folder: Path, program: ExecRequest) -> ExecResult:
    raise InvalidInput(f"a judge runs no programs: {program.argv} in {folder}")
