"""Logging set-up of a process: text for terminals, JSON for machines; secrets are always
redacted.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal, TextIO, TypeAlias, cast

from mainspring.core.errors import InvalidInput, MainspringError
from mainspring.log.event_chain import Scrub
from mainspring.service.telemetry.log_context import log_fields

ROOT_LOGGER = "mainspring"
LEVELS = ("debug", "info", "warning", "error")
LogLayout: TypeAlias = Literal["auto", "json", "text"]
LOG_LAYOUTS: tuple[LogLayout, ...] = ("auto", "json", "text")


@contextmanager
def log_to_stream(
    stream: TextIO, *, scrub: Scrub, level: str = "info", form: str = "auto"
) -> Generator[None]:
    """Have everything that is logged written to a stream, until the block ends.

    Raises: InvalidInput: no such level, no such form.
    """
    number = _level_number(level)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        _LineFormatter(_layout(form, stream), scrub, has_words=number <= logging.DEBUG)
    )
    root, ours = logging.getLogger(), logging.getLogger(ROOT_LOGGER)
    before = (root.handlers[:], root.level, ours.level)
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))  # what libraries tell of their day is not asked for
    ours.setLevel(number)
    try:
        yield
    finally:
        root.handlers[:], root.level, ours.level = before


def _level_number(level: str) -> int:
    if level.lower() not in LEVELS:
        raise InvalidInput(f"no level {level!r}; there are {', '.join(LEVELS)}")
    return logging.getLevelNamesMapping()[level.upper()]


def _layout(form: str, stream: TextIO) -> Callable[[_LogLine], str]:
    match form:
        case "json":
            return _as_json
        case "text":
            return _as_text
        case "auto":
            return _as_text if stream.isatty() else _as_json
        case _:
            raise InvalidInput(f"no log format {form!r}; there are {', '.join(LOG_LAYOUTS)}")


class _LogLine:
    """One thing that was said, before it is laid out."""

    def __init__(self, record: logging.LogRecord, *, has_words: bool) -> None:
        self.moment = datetime.fromtimestamp(record.created, UTC)
        self.level = record.levelname.lower()
        self.logger = record.name
        self.message = record.getMessage()
        given = cast("Mapping[str, object]", getattr(record, "subject", {}))
        self.subject = {**log_fields(), **given}
        error = record.exc_info[1] if record.exc_info else None
        self.error = None if error is None else "".join(_error_lines(error, has_words=has_words))


class _LineFormatter(logging.Formatter):
    def __init__(self, layout: Callable[[_LogLine], str], scrub: Scrub, *, has_words: bool) -> None:
        super().__init__()
        self._layout = layout
        self._scrub = scrub
        self._has_words = has_words

    def format(self, record: logging.LogRecord) -> str:
        line = self._layout(_LogLine(record, has_words=self._has_words))
        return self._scrub(line.encode("utf-8", "backslashreplace")).decode("utf-8", "replace")


def _as_json(log_line: _LogLine) -> str:
    told: dict[str, object] = {
        "time": log_line.moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": log_line.level,
        "logger": log_line.logger,
        "message": log_line.message,
        **log_line.subject,
    }
    if log_line.error is not None:
        told["error"] = log_line.error
    return json.dumps(told, default=str)


def _as_text(log_line: _LogLine) -> str:
    """In one line, whatever is in it; only a traceback has more."""
    about = "".join(f" {name}={value}" for name, value in log_line.subject.items() if value != "")
    head = (
        f"{log_line.moment:%H:%M:%S} {log_line.level:<7} {log_line.logger}: "
        f"{log_line.message}{about}"
    )
    safe = head.replace("\r", "\\r").replace("\n", "\\n").replace("\x1b", "\\x1b")
    return safe if log_line.error is None else f"{safe}\n{log_line.error.rstrip()}"


def _error_lines(error: BaseException, *, has_words: bool) -> Iterator[str]:
    """Where it came from, first cause first."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _error_lines(before, has_words=has_words)
        yield "which led to\n"
    yield from traceback.format_tb(error.__traceback__)
    name = type(error).__qualname__
    is_told = has_words or isinstance(error, MainspringError)
    yield f"{name}: {error}\n" if is_told else f"{name}\n"
