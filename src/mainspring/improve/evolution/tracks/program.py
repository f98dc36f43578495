"""A program that campaigns improve: `program.md` names the one place that may change, the command
that is measured, and its cases. The boundary is enforced, not asked for: each experiment runs in a
sandbox on a copy that has neither the expected outputs nor the results of earlier ones, gets its
inputs on stdin, and its answers are compared here."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TypeAlias, cast

import msgspec
import yaml
from anyio import to_thread
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.ports import ExecRequest, ExecResult
from mainspring.files.atomic_file import read_bounded
from mainspring.improve.evals.scoring.grading_context import RunProgram
from mainspring.improve.evals.suite import Case, Script, Split, Suite, SuiteFile
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.observation import Fact, Observation, Trial
from mainspring.improve.evolution.tracks.folder_texts import copy_with

FILE = "program.md"
_MAX_CASES_BYTES = 50_000_000  # of the file of cases
_MAX_OUTPUT_BYTES = 5_000_000  # of the program under improvement
_MAX_SHOWN = 300
"""Characters of an answer that the improver reads."""
_SECONDS = 300.0
"""The default time of an experiment."""
_ENCODER = msgspec.json.Encoder(order="deterministic")
Json: TypeAlias = object


class ProgramSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The front matter of `program.md`; its text is for the improver."""

    file: str
    """The one file that may change."""
    run: str
    """The command: it reads a JSON object with `id` and `input` per line and writes one with `id`
    and `output` per line."""
    cases: str
    """A JSON Lines file with `id`, `input`, `output`, and perhaps `split`, `tags`, `must_pass`."""
    seconds: Annotated[float, Meta(gt=0, le=86_400)] = _SECONDS
    """The longest that one experiment may take."""
    runs: Annotated[int, Meta(ge=1, le=20)] = 1
    """How often each case runs; it passes only if all its runs pass."""
    never: dict[str, Json] = {}
    """Values of the output that are hard constraints: an output with one of them is a violation."""
    text: str = ""


class ProgramCase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1, max_length=200)]
    input: Json
    output: Json
    split: Split = "val"
    tags: tuple[str, ...] = ()
    must_pass: bool = False


def read_program(folder: Path, name: str = FILE) -> tuple[ProgramSettings, tuple[ProgramCase, ...]]:
    """Raises: InvalidInput: there is none, or it has mistakes."""
    content = read_bounded(folder / name, max_bytes=1_000_000)
    if content is None:
        raise InvalidInput(f"there is no {name} in {folder}")
    _, fence, rest = content.decode(errors="replace").partition("---\n")
    head, end, text = rest.partition("\n---\n")
    if not fence or not end:
        raise InvalidInput(f"{folder / name}: its settings stand between two lines of ---")
    try:
        fields = yaml.safe_load(head)
        program = msgspec.convert({**fields, "text": text.strip()}, ProgramSettings)
        lines = read_bounded(folder / program.cases, max_bytes=_MAX_CASES_BYTES) or b""
        decoder = msgspec.json.Decoder(ProgramCase)
        cases = tuple(decoder.decode(line) for line in lines.splitlines() if line.strip())
    except (TypeError, yaml.YAMLError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{folder / name}: {error}") from error
    if not cases:
        raise InvalidInput(f"{folder / program.cases}: there are no cases")
    return program, cases


def program_suite(
    folder: Path, program: ProgramSettings, cases: Sequence[ProgramCase]
) -> SuiteFile:
    """The cases as a suite, so that the same gate, splits and leak checks apply."""
    suite = Suite(
        name=Path(program.file).stem.replace("_", "-").casefold() or "program",
        cases=tuple(
            Case(
                id=case.id,
                input=_text(case.input),
                gold=_text(case.output),
                tags=case.tags,
                split=case.split,
                must_pass=case.must_pass,
            )
            for case in cases
        ),
    )
    digest = sha256(_ENCODER.encode([program, cases])).hexdigest()
    return SuiteFile(suite=suite, file=folder / FILE, hash=f"sha256:{digest}")


def _text(value: Json) -> str:
    return _ENCODER.encode(value).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFile:
    """A program, its cases, and how it is run."""

    program: ProgramSettings
    cases: tuple[ProgramCase, ...]
    run_program: RunProgram

    @property
    def file(self) -> str:
        return self.program.file

    def read(self, folder: Path) -> Candidate:
        """Raises: InvalidInput."""
        content = read_bounded(folder / self.file, max_bytes=1_000_000)
        if content is None:
            raise InvalidInput(f"there is no {self.file} in {folder}")
        return Candidate({self.file: content.decode(errors="replace")})

    def trials(self, folder: Path, base: Candidate) -> ProgramTrials:
        return ProgramTrials(
            folder=folder,
            base=base,
            program=self.program,
            cases={case.id: case for case in self.cases},
            run_program=self.run_program,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTrials:
    """Runs trials of a program, all of a batch in one process."""

    folder: Path
    base: Candidate
    """The texts that the folder has."""
    program: ProgramSettings
    cases: Mapping[str, ProgramCase]
    run_program: RunProgram

    async def run(
        self,
        candidate: Candidate,
        trials: Sequence[Trial],
        key: str,
        *,
        budget_usd: Decimal | None = None,
        scripts: Mapping[str, Script] | None = None,
    ) -> list[Observation]:
        """`budget_usd`: unused, a program costs nothing."""
        if scripts is not None:  # a control: the answers are given
            return [self._scripted(trial, scripts[trial.case_id]) for trial in trials]
        results = [_Answers({}, "")] * self.program.runs
        for number in range(self.program.runs):
            results[number] = await self._answers(candidate, trials, f"{key}-{number}")
        return [self._observation(trial, results) for trial in trials]

    async def _answers(self, candidate: Candidate, trials: Sequence[Trial], key: str) -> _Answers:
        """Each run has a fresh copy, so that no run can leave something for the next."""
        names = list(dict.fromkeys(trial.case_id for trial in trials))
        lines = [_ENCODER.encode({"id": name, "input": self.cases[name].input}) for name in names]
        with TemporaryDirectory(prefix="mainspring-program-") as place:
            copy = await to_thread.run_sync(
                copy_with, self.folder, candidate, self.base, Path(place)
            )
            hidden = (copy / FILE, copy / self.program.cases)
            for path in hidden:
                await to_thread.run_sync(_remove, path)
            result = await self.run_program(
                copy,
                ExecRequest(
                    key=key,
                    argv=tuple(shlex.split(self.program.run)),
                    stdin=b"".join(line + b"\n" for line in lines),
                    wall_seconds=self.program.seconds,
                    max_bytes=_MAX_OUTPUT_BYTES,
                ),
            )
        return _Answers(dict(_rows(result)), _error(result))

    def _scripted(self, trial: Trial, script: Script) -> Observation:
        says = str(script.steps[0].get("says", "")) if script.steps else ""
        try:
            rows = {trial.case_id: msgspec.json.decode(says)}
        except (msgspec.DecodeError, RecursionError):
            rows = {}
        return self._observation(trial, [_Answers(rows, "")])

    def _observation(self, trial: Trial, results: Sequence[_Answers]) -> Observation:
        case = self.cases[trial.case_id]
        outputs = [answers.rows.get(case.id, _MISSING) for answers in results]
        violation = next((why for output in outputs if (why := self._violation(output))), None)
        wrong = [at for at, output in enumerate(outputs) if not _is_equal(output, case.output)]
        if not wrong and violation is None:
            return Observation(case_id=case.id, number=trial.number, score=1.0)
        output = outputs[wrong[0] if wrong else 0]
        is_missing = output is _MISSING
        group = case.tags[0] if case.tags else ""
        check = "no answer" if is_missing else f"wrong output {group}".strip()
        shown = (results[wrong[0] if wrong else 0].error or "no answer") if is_missing else ""
        return Observation(
            case_id=case.id,
            number=trial.number,
            score=0.0,
            failed_checks=(check,),
            facts=(Fact("harness_error", check),),
            violation=violation,
            group=group,
            critique=f"input: {_text(case.input)[:_MAX_SHOWN]}\n  "
            + (shown or f"output: {_text(output)}")[:_MAX_SHOWN],
        )

    def _violation(self, output: Json) -> str | None:
        if isinstance(output, dict):
            fields = cast("dict[str, Json]", output)
            for name, value in self.program.never.items():
                if name in fields and _is_equal(fields[name], value):
                    return f"{name} is {_text(value)}"
        return None


class _Row(Struct, frozen=True):
    id: str
    output: Json


class _Answers(Struct, frozen=True):
    """What one process has answered, by case, and what it printed if it failed."""

    rows: dict[str, Json]
    error: str


_MISSING: Json = object()


def _is_equal(one: Json, other: Json) -> bool:
    """Of plain JSON: types count, so that no object and no `True` equals everything."""
    return one is not _MISSING and _text(one) == _text(other)


def _rows(result: ExecResult) -> Iterator[tuple[str, Json]]:
    """Answers in plain JSON; a case that is answered twice has no answer."""
    rows: dict[str, Json] = {}
    for line in (result.stdout.head + result.stdout.tail).splitlines():
        try:
            row = msgspec.json.decode(line, type=_Row)
        except (msgspec.DecodeError, RecursionError):  # whatever else it printed
            continue
        rows[row.id] = _MISSING if row.id in rows else row.output
    yield from ((name, output) for name, output in rows.items() if output is not _MISSING)


def _error(result: ExecResult) -> str:
    text = result.stderr.tail or result.stderr.head
    cause = f"stopped: {result.stop_cause}; " if result.stop_cause else ""
    return f"{cause}exit status {result.status}: {text.decode(errors='replace')[-_MAX_SHOWN:]}"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
