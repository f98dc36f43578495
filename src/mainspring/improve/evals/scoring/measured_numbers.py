"""The grader `measure`: a number of the trial or of its domain (a price, a score), as an incentive
between its worst and its best value, or within limits."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import cast

import msgspec
import re2
from anyio import to_thread

from mainspring.core.errors import InvalidInput
from mainspring.core.events import EvalCheck
from mainspring.improve.evals.graders import CommandCheck, Measure, NumberSource
from mainspring.improve.evals.scoring.answer_checks import measured
from mainspring.improve.evals.scoring.case_workspace import read_workspace_file
from mainspring.improve.evals.scoring.grading_context import GradingContext, check, shorten
from mainspring.improve.evals.scoring.trajectory_checks import is_like
from mainspring.improve.evals.scoring.workspace_checks import program_output

_NUMBER = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d+)?(\.\d+)?([eE][-+]?\d{1,3})?")


async def measure(grader: Measure, context: GradingContext) -> tuple[float, list[EvalCheck]]:
    """The score is 1 at `best`, 0 at `worst`, and linear between them. Without a number, or outside
    the limits, it is 0.

    Raises: SandboxFailed: there is no sandbox for the command, so there is no verdict."""
    value: float | str
    if isinstance(grader.value, str):
        value = measured(grader.value, context)
    else:
        value = await _number(grader.value, context)
    if isinstance(value, str):
        return 0.0, [check("has a number", False, value)]
    checks = _limit_checks(grader, value)
    if not all(item.passed for item in checks):
        return 0.0, checks
    if grader.worst is None:
        return 1.0, checks
    span = grader.worst - grader.best
    share = (grader.worst - value) / span if span else float(value == grader.best)
    return min(1.0, max(0.0, share)), checks


def number_problems(source: NumberSource) -> list[str]:
    """What is wrong with a source, which its type cannot express."""
    given = [source.answer, source.file, source.call, source.command]
    problems: list[str] = []
    if sum(bool(item) for item in given) != 1:
        problems.append("a value needs one of `answer`, `file`, `call` and `command`")
    if source.call is not None and source.field is None:
        problems.append("a value of a `call` needs `field`")
    if source.field is not None and source.pattern is not None:
        problems.append("a value has `field` or `pattern`, not both")
    return problems


def _limit_checks(grader: Measure, value: float) -> list[EvalCheck]:
    checks: list[EvalCheck] = []
    if grader.min is not None:
        checks.append(check(f"at least {grader.min:g}", value >= grader.min, f"it is {value:g}"))
    if grader.max is not None:
        checks.append(check(f"at most {grader.max:g}", value <= grader.max, f"it is {value:g}"))
    return checks


async def _number(source: NumberSource, context: GradingContext) -> float | str:
    """The number, or why there is none."""
    if source.call is not None:
        ran = [
            item
            for item in context.trajectory.calls
            if item.has_run and item.call.failure is None and is_like(item, source.call)
        ]
        if not ran:
            return "no such call ran"
        return _as_number(_member(ran[-1].call.input, source.field or ""))
    try:
        text = await _text(source, context)
    except InvalidInput as error:
        return str(error)
    if source.field is not None:
        try:
            return _as_number(_member(msgspec.json.decode(text.strip()), source.field))
        except (msgspec.DecodeError, RecursionError):
            return f"it is not JSON: {shorten(text)!r}"
    if source.pattern is not None:
        match = re2.compile(source.pattern).search(text)
        if match is None:
            return f"nothing matches {source.pattern}: {shorten(text)!r}"
        text = match.group()
        with suppress(IndexError):  # it has no group
            text = match.group(1) or ""
    return _as_number(text)


async def _text(source: NumberSource, context: GradingContext) -> str:
    if source.answer:
        return context.answer
    if source.command is not None:
        return await program_output(CommandCheck(run=source.command), context)
    if context.workspace is None:
        raise InvalidInput("the agent has no workspace")
    name, workspace = source.file or "", context.workspace
    content = await to_thread.run_sync(read_workspace_file, workspace, name)
    if content is None:
        raise InvalidInput(f"there is no file {name}")
    return content.decode("utf-8", "replace")


def _member(value: object, path: str) -> object:
    for name in path.split("."):
        value = cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None
    return value


def _as_number(value: object) -> float | str:
    """A finite number, also in a text: `1,234.50`."""
    if isinstance(value, str):
        text = value.strip().lstrip("$\u20ac\u00a3").strip()
        is_number = any(map(str.isdigit, text)) and _NUMBER.fullmatch(text) is not None
        value = float(text.replace(",", "")) if is_number else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "it is not a number"
    return float(value)
