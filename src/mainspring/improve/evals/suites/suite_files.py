"""Reads and validates suites: `evals/*.yaml` and `evals/*.jsonl` of an agent's folder. Every
problem names its file and line."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar, cast

import msgspec
import re2
import yaml

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded
from mainspring.improve.evals.graders import (
    CommandCheck,
    FileCheck,
    Grader,
    Measure,
    NumberSource,
    Regex,
    as_texts,
)
from mainspring.improve.evals.scoring.measured_numbers import number_problems
from mainspring.improve.evals.suite import ENCODER, Case, Suite, SuiteFile
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.yaml_reader import Node, YamlReader, YamlValueError

EVALS_FOLDER = "evals"
_SUFFIXES = (".yaml", ".yml", ".jsonl")
_MAX_BYTES = 50_000_000  # of one suite
_MAX_VALUES = 2_000_000  # of its YAML, against aliases that multiply
_MAX_FOLDER_BYTES = 100_000_000  # of all files of a case
_PLACE = re.compile(r" - at `\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
T = TypeVar("T")
_CASE_FILES = "case_files"
"""The key in a YAML suite of files with more cases, one JSON object per line."""


class SuiteProblems(InvalidInput):
    """A suite is invalid; every finding names its place."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(map(str, self.findings)))


def find_suites(folder: Path) -> list[Path]:
    """The files of all suites of an agent, by name."""
    try:
        files = sorted((folder / EVALS_FOLDER).iterdir())
    except OSError:
        return []
    return [file for file in files if file.suffix in _SUFFIXES and file.is_file()]


def read_suite(file: Path, *, display_path: str | None = None) -> SuiteFile:
    """
    Raises:
        SuiteProblems: it is invalid. InvalidInput: there is no such file.
    """
    content = read_bounded(file, max_bytes=_MAX_BYTES)
    if content is None:
        raise InvalidInput(f"{file}: there is no such suite")
    reader = _SuiteReader(file, display_path or file.name)
    suite = reader.suite(content.decode("utf-8", "replace"))
    if reader.findings or suite is None:
        raise SuiteProblems(reader.findings)
    return SuiteFile(suite=suite, file=file, hash=_suite_hash(suite, file.parent))


class _SuiteReader:
    def __init__(self, file: Path, display_path: str) -> None:
        self._file = file
        self._display_path = display_path
        self.findings: list[Finding] = []
        self._case_lines: dict[str, tuple[str, int]] = {}

    def suite(self, text: str) -> Suite | None:
        stem = self._file.name.removesuffix(self._file.suffix)
        if self._file.suffix == ".jsonl":
            cases = tuple(self._json_lines(text, self._display_path))
            suite = Suite(name=stem, cases=cases)
        else:
            suite = self._yaml(text, stem)
        if suite is not None:
            self._check(suite)
        return suite

    def _yaml(self, text: str, stem: str) -> Suite | None:
        reader = YamlReader(self._display_path, self.findings, _MAX_VALUES)
        root = reader.root(text)
        if root is None:
            self._problem(1, "the suite is empty") if not self.findings else None
            return None
        try:
            fields = reader.mapping(root)
        except YamlValueError as error:
            reader.note("error", error.node, f"a suite {error}")
            return None
        case_nodes = _list_nodes(root, "cases")
        values = cast("list[object]", fields.pop("cases", None) or [])
        cases = [
            case
            for value, node in zip(values, case_nodes, strict=False)
            if (case := self._case(value, node, self._display_path)) is not None
        ]
        for name in cast("list[str]", fields.pop(_CASE_FILES, None) or []):
            cases += self._case_file(str(name), root)
        suite = self._convert({"name": stem, **fields}, root, Suite)
        return None if suite is None else msgspec.structs.replace(suite, cases=tuple(cases))

    def _case_file(self, name: str, root: Node) -> list[Case]:
        content = read_bounded(self._file.parent / name, max_bytes=_MAX_BYTES)
        if content is None:
            self._problem(root.start_mark.line + 1, f"{name}: there is no such file")
            return []
        display_path = str(PurePosixPath(self._display_path).parent / name)
        return list(self._json_lines(content.decode("utf-8", "replace"), display_path))

    def _json_lines(self, text: str, display_path: str) -> Iterator[Case]:
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                case = msgspec.json.decode(line, type=Case)
            except (msgspec.MsgspecError, RecursionError) as error:
                self._problem(number, str(error), display_path)
                continue
            if self._is_new(case, display_path, number):
                yield case

    def _case(self, value: object, node: Node, display_path: str) -> Case | None:
        case = self._convert(value, node, Case)
        if case is None or not self._is_new(case, display_path, node.start_mark.line + 1):
            return None
        return case

    def _is_new(self, case: Case, display_path: str, line: int) -> bool:
        if (first := self._case_lines.get(case.id)) is not None:
            self._problem(line, f"case {case.id} is at {first[0]}:{first[1]} already", display_path)
            return False
        self._case_lines[case.id] = (display_path, line)
        return True

    def _convert(self, value: object, node: Node, kind: type[T]) -> T | None:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            what = str(error)
            place = _PLACE.search(what)
            line = _line_at(node, place[1]) if place else node.start_mark.line + 1
            self._problem(line, what.replace("`$", "`") if place is None else _without_root(what))
            return None

    def _check(self, suite: Suite) -> None:
        """Check patterns and files, which types cannot express."""
        if not suite.cases and not self.findings:
            self._problem(1, "the suite has no cases")
        for case in suite.cases:
            display_path, line = self._case_lines[case.id]
            for what in _case_problems(case, suite, self._file.parent):
                self._problem(line, f"case {case.id}: {what}", display_path)

    def _problem(self, line: int, what: str, display_path: str | None = None) -> None:
        finding = Finding(
            level="error", file=display_path or self._display_path, line=line, what=what
        )
        self.findings.append(finding)


def _without_root(what: str) -> str:
    return what.replace("`$.", "`").replace("`$", "`")


def _list_nodes(root: Node, key: str) -> list[Node]:
    if not isinstance(root, yaml.MappingNode):
        return []
    for name, value in root.value:
        if name.value == key and isinstance(value, yaml.SequenceNode):
            return value.value
    return []


def _line_at(node: Node, path: str) -> int:
    """The line of a value, from the path that msgspec names."""
    for name, index in _STEP.findall(path):
        if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
            node = node.value[int(index)]
        elif isinstance(node, yaml.MappingNode):
            values = [value for key, value in node.value if key.value == name]
            if not values:
                break
            node = values[-1]
        else:
            break
    return node.start_mark.line + 1


def _case_problems(case: Case, suite: Suite, folder: Path) -> Iterator[str]:
    graders = suite.graders_of(case)
    if not case.messages or not all(case.messages):
        yield "`input` is empty"
    if not graders and case.expect is None:
        yield "it has no `graders` and no `expect`, so nothing would be graded"
    scripts = (script.files for script in (case.solution, case.failure) if script is not None)
    folders = (case.workspace, *scripts, *(_folder_of(grader) for grader in graders))
    for name in folders:
        if name is not None and not (folder / name).is_dir():
            yield f"{name}: there is no such folder beside the suite"
    if case.recording is not None and not (folder / case.recording).is_file():
        yield f"{case.recording}: there is no such file beside the suite"
    for pattern in (*case.masks, *(item for grader in graders for item in _patterns_of(grader))):
        yield from _pattern_problems(pattern)
    yield from _path_problems(case, graders)
    for source in _number_sources(graders):
        yield from number_problems(source)


def _path_problems(case: Case, graders: Sequence[Grader]) -> Iterator[str]:
    file_checks = [grader for grader in graders if isinstance(grader, FileCheck)]
    measured = [item.file for item in _number_sources(graders) if item.file]
    for path in (*case.files, *(grader.path for grader in file_checks), *measured):
        if not is_inside(path):
            yield f"{path!r} is not a path inside the workspace"
    for grader in file_checks:
        if grader.unchanged and grader.path not in case.files and case.workspace is None:
            yield f"the case has no file {grader.path}, so `unchanged` checks nothing"


def _number_sources(graders: Sequence[Grader]) -> list[NumberSource]:
    values = (grader.value for grader in graders if isinstance(grader, Measure))
    return [value for value in values if isinstance(value, NumberSource)]


def _folder_of(grader: Grader) -> str | None:
    return grader.tests if isinstance(grader, CommandCheck) else None


def _patterns_of(grader: Grader) -> tuple[str, ...]:
    match grader:
        case Regex(pattern=patterns):
            return as_texts(patterns)
        case FileCheck(pattern=str(pattern)) | CommandCheck(pattern=str(pattern)):
            return (pattern,)
        case Measure(value=NumberSource(pattern=str(pattern))):
            return (pattern,)
        case _:
            return ()


def _pattern_problems(pattern: str) -> Iterator[str]:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        yield f"{pattern!r} is not an RE2 pattern: {error}"


def is_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path


def _suite_hash(suite: Suite, folder: Path) -> str:
    digest = hashlib.sha256(ENCODER.encode(suite))
    for case in suite.cases:
        digest.update(case_content_hash(suite, case, folder).encode())
    return digest.hexdigest()


def case_content_hash(suite: Suite, case: Case, folder: Path) -> str:
    """The hash of everything that a verdict on the case depends on, except the agent and its
    model."""
    graders = suite.graders_of(case)
    judged = msgspec.structs.replace(case, graders=graders, solution=None, failure=None, tags=())
    digest = hashlib.sha256(ENCODER.encode(judged))
    tests = [grader.tests for grader in graders if isinstance(grader, CommandCheck)]
    for name in (case.workspace, *tests):
        if name is not None:
            digest.update(folder_hash(folder / name).encode())
    if case.recording is not None:
        digest.update(read_bounded(folder / case.recording, max_bytes=_MAX_BYTES) or b"")
    return digest.hexdigest()


def folder_hash(folder: Path) -> str:
    """The hash of the names, modes and contents of all files below a folder. Raises: InvalidInput:
    they are too large."""
    digest, size = hashlib.sha256(), 0
    for path in sorted(_files_below(folder)):
        content = read_bounded(path, max_bytes=_MAX_FOLDER_BYTES) or b""
        size += len(content)
        if size > _MAX_FOLDER_BYTES:
            raise InvalidInput(f"{folder}: more than {_MAX_FOLDER_BYTES} bytes")
        name = path.relative_to(folder).as_posix()
        is_program = os.access(path, os.X_OK)
        digest.update(ENCODER.encode((name, is_program, hashlib.sha256(content).hexdigest())))
    return digest.hexdigest()


def _files_below(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (path for name in names if (path := Path(place, name)).is_file())


def named_suite(folder: Path, name: str, *, field: str) -> SuiteFile:
    """Read a suite of the folder in which the service runs. Blocks.

    Raises: InvalidInput: there is no such suite; the message begins with `field`.
    """
    files = {file.stem: file for file in find_suites(folder)}
    if name not in files:
        names = ", ".join(files) or "none"
        raise InvalidInput(
            f"{field}: no suite {name} in the folder of the service; its suites: {names}"
        )
    return read_suite(files[name])
