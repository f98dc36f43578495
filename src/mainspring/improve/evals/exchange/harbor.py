"""Harbor's task folders: `task.toml`, `instruction.md`, `environment/`, `tests/`, `solution/`.

Harbor runs tests in a container with `/tests`, `/logs` and a working folder; here they run in a
sandbox over a copy of the workspace, so these paths are rewritten. Images are not built.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded
from mainspring.improve.evals.exchange.imported_suite import ImportedSuite, as_id
from mainspring.improve.evals.graders import CommandCheck, FileCheck, as_texts, grader_name
from mainspring.improve.evals.suite import Case, Script, Suite

_MAX_BYTES = 20_000_000  # of one file of a task
_MAX_FILES = 2_000  # of one task
_IMAGE_FILES = ("Dockerfile", "docker-compose.yaml", "docker-compose.yml")
_WORKDIR = re.compile(r"^\s*WORKDIR\s+(\S+)", re.MULTILINE)
_REWARD = (
    "mkdir -p logs/verifier; sh tests/test.sh 1>&2;"
    " cat logs/verifier/reward.txt 2>/dev/null || cat logs/verifier/reward.json"
)
_FULL_REWARD = r'^(1(\.0+)?|\{"reward": *1(\.0+)?\})\s*$'


class _Timeout(Struct, frozen=True):
    timeout_sec: float | None = None


class _Task(Struct, frozen=True):
    name: str = ""
    description: str = ""
    keywords: tuple[str, ...] = ()


class _Settings(Struct, frozen=True):
    task: _Task = _Task()
    metadata: dict[str, object] = {}
    verifier: _Timeout = _Timeout()
    agent: _Timeout = _Timeout()


def is_task(folder: Path) -> bool:
    return (folder / "task.toml").is_file() and (folder / "instruction.md").is_file()


def read_tasks(folder: Path) -> ImportedSuite:
    """Read a task, or a folder of tasks. Raises: InvalidInput: there is none, or one is damaged."""
    tasks = [folder] if is_task(folder) else sorted(filter(is_task, folder.iterdir()))
    if not tasks:
        raise InvalidInput(f"{folder}: has no Harbor task")
    name = as_id(folder.name)
    result = ImportedSuite(suite=Suite(name=name))
    cases = tuple(_read_task(task, name, result) for task in tasks)
    result.suite = msgspec.structs.replace(result.suite, cases=cases)
    return result


def _read_task(task: Path, suite: str, result: ImportedSuite) -> Case:
    try:
        settings = msgspec.convert(tomllib.loads(_text(task / "task.toml")), _Settings)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidInput(f"{task / 'task.toml'}: {error}") from error
    case_id, place = as_id(task.name), f"harbor/{suite}/{as_id(task.name)}"
    dockerfile = task / "environment/Dockerfile"
    folders = _WORKDIR.findall(_text(dockerfile)) if dockerfile.is_file() else []
    workdir = folders[-1] if folders else "/app"
    if dockerfile.is_file():
        result.notes.append(f"case {case_id}: its image is not built; only its files are copied")
    files = list(_files(task / "environment", _IMAGE_FILES))
    for path, content in files:
        result.files[f"{place}/workspace/{path}"] = content
    tests = list(_files(task / "tests"))
    if not any(path == "test.sh" for path, _ in tests):
        raise InvalidInput(f"{task}: there is no tests/test.sh")
    for path, content in tests:
        result.files[f"{place}/tests/tests/{path}"] = _relocate(content, workdir)
    solve = task / "solution/solve.sh"
    return Case(
        id=case_id,
        input=_relocate(_text(task / "instruction.md").encode(), workdir).decode(),
        workspace=f"{place}/workspace" if files else None,
        mode="bypassPermissions",
        tags=tuple(map(str, settings.task.keywords)),
        timeout_seconds=settings.agent.timeout_sec,
        graders=(
            CommandCheck(
                name="tests/test.sh",
                run=_REWARD,
                tests=f"{place}/tests",
                status=None,
                pattern=_FULL_REWARD,
                timeout_seconds=settings.verifier.timeout_sec or 600.0,
            ),
        ),
        solution=_solution(_relocate(solve.read_bytes(), workdir)) if solve.is_file() else None,
    )


def _solution(script: bytes) -> Script:
    call = {"tool": "bash", "input": {"command": script.decode("utf-8", "replace")}}
    return Script(steps=({"calls": [call]}, {"says": "Done."}))


def _relocate(content: bytes, workdir: str) -> bytes:
    """Replace the container's paths with those of the sandbox."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    for old, new in (("/logs", "logs"), ("/tests", "tests"), (workdir.rstrip("/"), ".")):
        text = re.sub(rf"(?<![\w./-]){re.escape(old)}(?![\w.-])", new, text) if old else text
    return text.encode()


def _text(file: Path) -> str:
    content = read_bounded(file, max_bytes=_MAX_BYTES)
    if content is None:
        raise InvalidInput(f"{file}: there is no such file")
    return content.decode("utf-8", "replace")


def _files(folder: Path, leave_out: tuple[str, ...] = ()) -> Iterator[tuple[str, bytes]]:
    count = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_file() or name in leave_out:
            continue
        count += 1
        if count > _MAX_FILES:
            raise InvalidInput(f"{folder}: more than {_MAX_FILES} files")
        content = read_bounded(path, max_bytes=_MAX_BYTES)
        if content is not None:
            yield name, content


_DOCKERFILE = "FROM python:3.12-slim\nWORKDIR /app\nCOPY . /app\n"
_TEST = (
    "#!/bin/sh\nmkdir -p /logs/verifier\ncd /app\n"
    "if python3 /tests/check.py; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
)
_CHECK = '''\
"""Checks an agent's work with the commands and files that checks.json names."""
import json, pathlib, re, shutil, subprocess, sys

def command(check):
    if (hidden := pathlib.Path("/tests/hidden", str(check["number"]))).is_dir():
        shutil.copytree(hidden, ".", dirs_exist_ok=True)
    ran = subprocess.run(check["run"], shell=isinstance(check["run"], str), text=True,
                         input=check["stdin"], capture_output=True,
                         timeout=check["timeout_seconds"])
    out = ran.stdout.strip()
    return (check["status"] in (None, ran.returncode)
            and (check["stdout"] is None or out == check["stdout"].strip())
            and (check["stdout_json"] is None or json.loads(out) == check["stdout_json"])
            and all(text in ran.stdout for text in check["contains"])
            and not any(text in ran.stdout for text in check["not_contains"])
            and (check["pattern"] is None or bool(re.search(check["pattern"], ran.stdout))))

def file(check):
    path = pathlib.Path(check["path"])
    if not path.is_file() or not check["exists"]:
        return path.is_file() == check["exists"]
    text = path.read_text()
    return (all(part in text for part in check["contains"])
            and not any(part in text for part in check["not_contains"])
            and (check["equals"] is None or text.strip() == check["equals"].strip())
            and (check["pattern"] is None or bool(re.search(check["pattern"], text))))

checks = json.loads(pathlib.Path("/tests/checks.json").read_text())
sys.exit(not all({"command": command, "file": file}[check["type"]](check) for check in checks))
'''


def write_tasks(suite: Suite, folder: Path) -> tuple[dict[str, bytes], list[str]]:
    """The files of a folder of tasks, and notes on the parts of the suite that have no counterpart.
    `folder` is the suite's."""
    files: dict[str, bytes] = {}
    notes: list[str] = []
    for case in suite.cases:
        files |= {f"{case.id}/{name}": text for name, text in _task(suite, case, folder, notes)}
    return files, notes


def _task(suite: Suite, case: Case, folder: Path, notes: list[str]) -> Iterator[tuple[str, bytes]]:
    seconds = case.timeout_seconds or suite.timeout_seconds
    keywords = msgspec.json.encode(list(case.tags)).decode()
    yield (
        "task.toml",
        (
            f'schema_version = "1.1"\n\n[task]\nname = "mainspring/{case.id}"\n'
            f"keywords = {keywords}\n\n[verifier]\ntimeout_sec = 600.0\n\n"
            f"[agent]\ntimeout_sec = {seconds}\n\n[environment]\ncpus = 1\nmemory_mb = 2048\n"
        ).encode(),
    )
    yield "instruction.md", "\n\n".join(case.messages).encode()
    yield "environment/Dockerfile", _DOCKERFILE.encode()
    if case.workspace is not None:
        for path, content in _files(folder / case.workspace):
            yield f"environment/{path}", content
    yield from ((f"environment/{path}", text.encode()) for path, text in case.files.items())
    yield from _tests(suite, case, folder, notes)


def _tests(suite: Suite, case: Case, folder: Path, notes: list[str]) -> Iterator[tuple[str, bytes]]:
    checks: list[dict[str, object]] = []
    for number, grader in enumerate(suite.graders_of(case)):
        if isinstance(grader, CommandCheck):
            checks.append(_check(grader, number))
            hidden = () if grader.tests is None else _files(folder / grader.tests)
            yield from ((f"tests/hidden/{number}/{path}", content) for path, content in hidden)
        elif isinstance(grader, FileCheck) and not grader.unchanged and grader.schema is None:
            checks.append(_check(grader, number))
        else:
            name = grader_name(grader)
            notes.append(f"case {case.id}: the grader {name} has no counterpart and was left out")
    if not checks:
        notes.append(
            f"case {case.id}: none of its graders has a counterpart, so its task always fails"
        )
        checks.append(_check(FileCheck(path="never"), 0))
    yield "tests/test.sh", _TEST.encode()
    yield "tests/check.py", _CHECK.encode()
    yield "tests/checks.json", msgspec.json.format(msgspec.json.encode(checks), indent=1)


def _check(grader: CommandCheck | FileCheck, number: int) -> dict[str, object]:
    texts = {name: as_texts(getattr(grader, name)) for name in ("contains", "not_contains")}
    kind = grader.__struct_config__.tag
    return {"type": kind, "number": number, **msgspec.structs.asdict(grader), **texts}
