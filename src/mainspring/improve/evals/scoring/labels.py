"""Labels: people's verdicts on answers, and the agreement of judges with them. Both are stored in
git, in `evals/labels/` beside the suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.events import FeedbackGiven
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.improve.evals.scoring.judges import Calibration
from mainspring.improve.evals.statistics import Interval, cohen_kappa
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.trajectory import read_trajectory

_MAX_BYTES = 50_000_000  # of the file of labels, which is read whole


class Label(Struct, frozen=True, kw_only=True):
    """A person's verdict on one answer."""

    case_id: str
    session_id: str
    answer: str
    passed: bool
    by: str
    time: datetime
    text: str = ""
    model: str = ""
    """The model that gave the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The agreement of a judge with people."""

    labels: int
    agreement: float
    kappa: float
    interval: Interval
    both_pass: int
    both_fail: int
    judge_only: int
    """The number of answers that the judge passes and people fail."""
    people_only: int

    def calibration(self, judge: str, *, labels: int, length_bias: float = 0.0) -> Calibration:
        return Calibration(
            judge=judge,
            labels=labels,
            agreement=self.agreement,
            kappa=self.kappa,
            kappa_low=self.interval.low,
            kappa_high=self.interval.high,
            length_bias=length_bias,
        )


def labels_file(suite_file: SuiteFile) -> Path:
    return suite_file.folder / "labels" / f"{suite_file.suite.name}.jsonl"


def read_labels(suite_file: SuiteFile) -> list[Label]:
    """Raises: InvalidInput: a line is damaged; the message names it."""
    file = labels_file(suite_file)
    content = read_bounded(file, max_bytes=_MAX_BYTES) or b""
    labels: list[Label] = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            labels.append(msgspec.json.decode(line, type=Label))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidInput(f"{file.name}:{number}: {error}") from error
    return labels


def add_label(suite_file: SuiteFile, label: Label) -> None:
    """Add a label. Only the last label of a session counts."""
    labels = [*read_labels(suite_file), label]
    content = b"".join(msgspec.json.encode(item) + b"\n" for item in labels)
    write_atomic(labels_file(suite_file), content)


def feedback_label(case_id: str, session_id: str, log: Sequence[Event]) -> Label | None:
    """The last feedback on a session, or on a message in it, as a label; `None` without
    feedback."""
    ratings = [
        (event, event.payload)
        for event in log
        if isinstance(event.payload, FeedbackGiven)
        and event.payload.subject.type in ("session", "message")
    ]
    if not ratings:
        return None
    event, feedback = ratings[-1]
    trajectory = read_trajectory(log)
    return Label(
        case_id=case_id,
        session_id=session_id,
        answer=trajectory.answer,
        passed=feedback.rating == "good",
        by=event.sender.id if event.sender is not None else "unknown",
        time=event.time,
        text=feedback.text or "",
    )


def latest_labels(labels: Sequence[Label]) -> list[Label]:
    return list({label.session_id: label for label in labels}.values())


def agreement(people: Sequence[bool], judge: Sequence[bool]) -> Agreement:
    pairs = list(zip(people, judge, strict=True))
    count = len(pairs)
    kappa, interval = cohen_kappa(people, judge)
    return Agreement(
        labels=count,
        agreement=sum(person == model for person, model in pairs) / count if count else 0.0,
        kappa=kappa,
        interval=interval,
        both_pass=pairs.count((True, True)),
        both_fail=pairs.count((False, False)),
        judge_only=pairs.count((False, True)),
        people_only=pairs.count((True, False)),
    )


def _calibrations_file(suite_file: SuiteFile) -> Path:
    return suite_file.folder / "labels" / f"{suite_file.suite.name}.calibration.json"


def read_calibrations(suite_file: SuiteFile) -> dict[str, Calibration]:
    content = read_bounded(_calibrations_file(suite_file), max_bytes=_MAX_BYTES)
    try:
        return {} if content is None else msgspec.json.decode(content, type=dict[str, Calibration])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{_calibrations_file(suite_file)}: {error}") from error


def save_calibration(suite_file: SuiteFile, calibration: Calibration) -> None:
    calibrations = {**read_calibrations(suite_file), calibration.judge: calibration}
    content = msgspec.json.format(msgspec.json.encode(calibrations, order="sorted"), indent=1)
    write_atomic(_calibrations_file(suite_file), content + b"\n")
