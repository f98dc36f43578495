"""What a tool call changed or printed, as rows below its line: the diff of an edit, the first lines
of an output.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from mainspring.edges.cli.render.printing import StyledText, diff_style, plural

_MAX_DIFF_ROWS = 16  # less than half of a usual window, so that the reply stays in view
_MAX_OUTPUT_ROWS = 5  # enough to see what kind of output it is
_MAX_FAILURE_ROWS = 15
"""The reason for a failure is usually at the end of more lines."""
_MAX_DIFFED_CHARS = 100_000
"""A longer text is not compared: that takes time, and nobody reads it here."""
_COMMANDS = ("bash", "python")
"""Tools whose output is for a person, too. Of the others, only failures are shown."""

_QUESTIONS = "ask_user"


class _Answers(Struct):
    answers: dict[str, str] = {}
    """By the question."""


def call_rows(
    name: str, arguments: Mapping[str, object], output: str, *, is_error: bool, more: str | None
) -> list[StyledText]:
    """The rows for a call that has ended. `more`: how to see those that are left out; `None`: none
    is."""
    if not is_error and (diff := _diff(name, arguments)):
        return _cut(diff, _MAX_DIFF_ROWS, more=more)
    if not is_error and name == _QUESTIONS and (answers := _answers(output)):
        return [(f"{question} {answer}", "dim") for question, answer in answers.items()]
    lines = output.strip("\n").splitlines()
    if is_error:
        # the beginning says what was run, the end says why it failed
        rows: list[StyledText] = [(line, "red") for line in lines]
        return _cut(rows, _MAX_FAILURE_ROWS, more=more)
    if more is not None and name not in _COMMANDS:
        return []
    return _cut([(line, "dim") for line in lines], _MAX_OUTPUT_ROWS, more=more)


def _cut(rows: list[StyledText], most: int, *, more: str | None) -> list[StyledText]:
    hidden = len(rows) - most
    if more is None or hidden <= 1:  # the note would take the place of one row
        return rows
    return [*rows[:most], (f"… {plural(hidden, 'more line')}{more}", "dim")]


def _diff(name: str, arguments: Mapping[str, object]) -> list[StyledText]:
    match name:
        case "edit":
            before, after = arguments.get("old_string"), arguments.get("new_string")
        case "write":
            before, after = "", arguments.get("content")
        case _:
            return []
    if not isinstance(before, str) or not isinstance(after, str):
        return []
    if len(before) + len(after) > _MAX_DIFFED_CHARS:
        return []
    return [(line, diff_style(line)) for line in _diff_lines(before, after)]


def _answers(output: str) -> dict[str, str]:
    """Empty if it has another form: clients answer too."""
    try:
        return msgspec.json.decode(output, type=_Answers).answers
    except (msgspec.DecodeError, RecursionError):
        return {}


def _diff_lines(before: str, after: str) -> Iterable[str]:
    if not before:  # a new file, or one that is replaced
        return [f"+{line}" for line in after.splitlines()]
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=2, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]
