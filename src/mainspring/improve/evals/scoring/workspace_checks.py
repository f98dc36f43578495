"""Graders of the workspace after the trial: files, and programs that run on a copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import re2
from anyio import to_thread

from mainspring.core.errors import InvalidInput
from mainspring.core.events import EvalCheck
from mainspring.core.ports import CapturedOutput, ExecRequest, ExecResult
from mainspring.improve.evals.graders import CommandCheck, FileCheck, as_texts
from mainspring.improve.evals.scoring.answer_checks import schema_checks
from mainspring.improve.evals.scoring.case_workspace import (
    copy_case_files,
    copy_over,
    copy_workspace,
    read_workspace_file,
)
from mainspring.improve.evals.scoring.grading_context import GradingContext, check, shorten

_MAX_OUTPUT_BYTES = 1_000_000  # of a checking program


async def file(grader: FileCheck, context: GradingContext) -> list[EvalCheck]:
    return await to_thread.run_sync(lambda: list(_file(grader, context)))


def _file(grader: FileCheck, context: GradingContext) -> Iterator[EvalCheck]:
    name, workspace = grader.path, context.workspace
    if workspace is None:
        yield check(f"{name} can be read", False, "the agent has no workspace")
        return
    try:
        content = read_workspace_file(workspace, name)
    except InvalidInput as error:
        yield check(f"{name} can be read", False, str(error))
        return
    if content is None or not grader.exists:
        is_present = content is not None
        yield check(
            f"{name} {'exists' if grader.exists else 'does not exist'}", is_present == grader.exists
        )
        return
    yield check(f"{name} exists", True)
    text = content.decode("utf-8", "replace")
    yield from _text_checks(grader, name, text)
    if grader.unchanged:
        original = _original(context, name)
        yield check(f"{name} is unchanged", content == original, "it has changed")


def _text_checks(grader: FileCheck, name: str, text: str) -> Iterator[EvalCheck]:
    for part in as_texts(grader.contains):
        yield check(f"{name} contains {part}", part in text, f"it is {shorten(text)!r}")
    for part in as_texts(grader.not_contains):
        yield check(f"{name} does not contain {part}", part not in text, "it does")
    if grader.equals is not None:
        is_same = text.strip() == grader.equals.strip()
        yield check(f"{name} equals", is_same, f"it is {shorten(text)!r}")
    if grader.pattern is not None:
        matches = re2.compile(grader.pattern).search(text) is not None
        yield check(f"{name} matches {grader.pattern}", matches, f"it is {shorten(text)!r}")
    if grader.schema is not None:
        for item in schema_checks(text, grader.schema):
            yield msgspec.structs.replace(item, name=f"{name} {item.name}")


def _original(context: GradingContext, name: str) -> bytes | None:
    """The case's original file, read from the suite, since the workspace may have changed."""
    case = context.case
    if name in case.files:
        return case.files[name].encode()
    if case.workspace is None:
        return None
    return read_workspace_file(context.suite_folder / case.workspace, name)


async def command(grader: CommandCheck, context: GradingContext) -> list[EvalCheck]:
    """Raises: SandboxFailed: there is no sandbox, so there is no verdict."""
    try:
        return list(_result_checks(grader, await _run(grader, context)))
    except InvalidInput as error:
        return [check("the workspace can be copied", False, str(error))]


async def program_output(grader: CommandCheck, context: GradingContext) -> str:
    """What the program prints, if it succeeds.

    Raises: SandboxFailed, as above. InvalidInput: it failed."""
    result = await _run(grader, context)
    failed = [item for item in _result_checks(grader, result) if not item.passed]
    if failed:
        raise InvalidInput(f"{failed[0].name}: {failed[0].detail}")
    return _text(result.stdout)


async def _run(grader: CommandCheck, context: GradingContext) -> ExecResult:
    place = context.scratch / f"command-{context.grader_number}"
    await to_thread.run_sync(_prepare_copy, grader, context, place)
    argv = ("/bin/sh", "-c", grader.run) if isinstance(grader.run, str) else grader.run
    program = ExecRequest(
        key=f"{context.key}-{context.grader_number}",
        argv=argv,
        stdin=grader.stdin.encode(),
        wall_seconds=grader.timeout_seconds,
        max_bytes=_MAX_OUTPUT_BYTES,
    )
    result = await context.run_program(place, program)
    await to_thread.run_sync(lambda: shutil.rmtree(place, ignore_errors=True))
    return result


def _prepare_copy(grader: CommandCheck, context: GradingContext, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if grader.take:
        copy_case_files(place, context.case, context.suite_folder)
    if context.workspace is not None:
        copy_workspace(context.workspace, place, grader.take)
    if grader.tests is not None:
        copy_over(context.suite_folder / grader.tests, place)


def _result_checks(grader: CommandCheck, result: ExecResult) -> Iterator[EvalCheck]:
    output = _text(result.stdout)
    detail = f"exit status {result.status}: {shorten(output + _text(result.stderr), 400)}"
    if result.stop_cause is not None:
        yield check("ended by itself", False, f"it was stopped: {result.stop_cause}")
        return
    if grader.status is not None:
        yield check(f"exit status {grader.status}", result.status == grader.status, detail)
    if grader.stdout is not None:
        yield check("printed the right text", output.strip() == grader.stdout.strip(), detail)
    if grader.stdout_json is not None:
        yield check("printed the right value", _is_value(output, grader.stdout_json), detail)
    for text in as_texts(grader.contains):
        yield check(f"printed {text}", text in output, detail)
    for text in as_texts(grader.not_contains):
        yield check(f"did not print {text}", text not in output, detail)
    if grader.pattern is not None:
        matches = re2.compile(grader.pattern).search(output) is not None
        yield check(f"printed a match of {grader.pattern}", matches, detail)


def _is_value(output: str, expected: object) -> bool:
    try:
        return msgspec.json.decode(output.strip()) == expected
    except (msgspec.DecodeError, RecursionError):
        return False


def _text(output: CapturedOutput) -> str:
    return (output.head + output.tail).decode("utf-8", "replace")
