"""Logging of a process: text for terminals, JSON for machines; secrets are always redacted.

Every line has fields that identify the current request or session.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal, TextIO, TypeAlias, cast

from mainspring.core.errors import InvalidInput, MainspringError
from mainspring.log.event_chain import Scrub

_NO_FIELDS: Mapping[str, str] = {}
_LOG_FIELDS: ContextVar[Mapping[str, str]] = ContextVar("mainspring_subject", default=_NO_FIELDS)
"""`request_id`, `session_id` and `tenant`, as far as they are known."""


@contextmanager
def log_context(**names: str) -> Generator[None]:
    """Add fields for the block and the tasks that it starts."""
    token = _LOG_FIELDS.set({**_LOG_FIELDS.get(), **names})
    try:
        yield
    finally:
        _LOG_FIELDS.reset(token)


ROOT_LOGGER = "mainspring"
LEVELS = ("debug", "info", "warning", "error")
LogLayout: TypeAlias = Literal["auto", "json", "text"]
LOG_LAYOUTS: tuple[LogLayout, ...] = ("auto", "json", "text")


@contextmanager
def log_to_stream(
    stream: TextIO, *, scrub: Scrub, level: str = "info", form: str = "auto"
) -> Generator[None]:
    """Write the log to a stream until the block ends.

    Raises: InvalidInput: an unknown level or format.
    """
    number = _level_number(level)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        _LineFormatter(_layout(form, stream), scrub, has_words=number <= logging.DEBUG)
    )
    root, own_logger = logging.getLogger(), logging.getLogger(ROOT_LOGGER)
    before = (root.handlers[:], root.level, own_logger.level)
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))  # libraries: only warnings
    own_logger.setLevel(number)
    try:
        yield
    finally:
        root.handlers[:], root.level, own_logger.level = before


def _level_number(level: str) -> int:
    if level.lower() not in LEVELS:
        raise InvalidInput(f"unknown level {level!r}; use one of {', '.join(LEVELS)}")
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
            raise InvalidInput(f"unknown log format {form!r}; use one of {', '.join(LOG_LAYOUTS)}")


class _LogLine:
    """One log record before it is formatted."""

    def __init__(self, record: logging.LogRecord, *, has_words: bool) -> None:
        self.moment = datetime.fromtimestamp(record.created, UTC)
        self.level = record.levelname.lower()
        self.logger = record.name
        self.message = record.getMessage()
        own = cast("Mapping[str, object]", getattr(record, "subject", {}))
        self.subject = {**_LOG_FIELDS.get(), **own}
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


def _as_json(line: _LogLine) -> str:
    fields: dict[str, object] = {
        "time": line.moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": line.level,
        "logger": line.logger,
        "message": line.message,
        **line.subject,
    }
    if line.error is not None:
        fields["error"] = line.error
    return json.dumps(fields, default=str)


def _as_text(line: _LogLine) -> str:
    """Always one line, except for a traceback."""
    about = "".join(f" {name}={value}" for name, value in line.subject.items() if value != "")
    head = f"{line.moment:%H:%M:%S} {line.level:<7} {line.logger}: {line.message}{about}"
    safe = head.replace("\r", "\\r").replace("\n", "\\n").replace("\x1b", "\\x1b")
    return safe if line.error is None else f"{safe}\n{line.error.rstrip()}"


def _error_lines(error: BaseException, *, has_words: bool) -> Iterator[str]:
    """The tracebacks of an error and its causes, the first cause first."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _error_lines(before, has_words=has_words)
        yield "which caused\n"
    yield from traceback.format_tb(error.__traceback__)
    name = type(error).__qualname__
    is_shown = has_words or isinstance(error, MainspringError)
    yield f"{name}: {error}\n" if is_shown else f"{name}\n"
