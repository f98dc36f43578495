"""The process's own log: lines for people at a terminal, JSON for machines; scrubbed in any case.

What foreign errors say may have anything in it: it is left out, except at level debug.
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
from mainspring.log.chain import Scrub
from mainspring.service.keeping.about import subject

OURS = "mainspring"
LEVELS = ("debug", "info", "warning", "error")
Form: TypeAlias = Literal["auto", "json", "text"]
FORMS: tuple[Form, ...] = ("auto", "json", "text")


@contextmanager
def journal(
    stream: TextIO, *, scrub: Scrub, level: str = "info", form: str = "auto"
) -> Generator[None]:
    """Have everything that is logged written to a stream, until the block ends.

    Raises: InvalidInput: no such level, no such form.
    """
    number = _number(level)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines(_layout(form, stream), scrub, has_words=number <= logging.DEBUG))
    root, ours = logging.getLogger(), logging.getLogger(OURS)
    before = (root.handlers[:], root.level, ours.level)
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))  # what libraries tell of their day is not asked for
    ours.setLevel(number)
    try:
        yield
    finally:
        root.handlers[:], root.level, ours.level = before


def _number(level: str) -> int:
    if level.lower() not in LEVELS:
        raise InvalidInput(f"no level {level!r}; there are {', '.join(LEVELS)}")
    return logging.getLevelNamesMapping()[level.upper()]


def _layout(form: str, stream: TextIO) -> Callable[[_Line], str]:
    match form:
        case "json":
            return _as_json
        case "text":
            return _as_text
        case "auto":
            return _as_text if stream.isatty() else _as_json
        case _:
            raise InvalidInput(f"no log format {form!r}; there are {', '.join(FORMS)}")


class _Line:
    """One thing that was said, before it is laid out."""

    def __init__(self, record: logging.LogRecord, *, has_words: bool) -> None:
        self.moment = datetime.fromtimestamp(record.created, UTC)
        self.level = record.levelname.lower()
        self.logger = record.name
        self.message = record.getMessage()
        given = cast("Mapping[str, object]", getattr(record, "subject", {}))
        self.subject = {**subject(), **given}
        error = record.exc_info[1] if record.exc_info else None
        self.error = None if error is None else "".join(_told(error, has_words=has_words))


class _Lines(logging.Formatter):
    def __init__(self, layout: Callable[[_Line], str], scrub: Scrub, *, has_words: bool) -> None:
        super().__init__()
        self._layout = layout
        self._scrub = scrub
        self._has_words = has_words

    def format(self, record: logging.LogRecord) -> str:
        line = self._layout(_Line(record, has_words=self._has_words))
        return self._scrub(line.encode("utf-8", "backslashreplace")).decode("utf-8", "replace")


def _as_json(line: _Line) -> str:
    told: dict[str, object] = {
        "time": line.moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": line.level,
        "logger": line.logger,
        "message": line.message,
        **line.subject,
    }
    if line.error is not None:
        told["error"] = line.error
    return json.dumps(told, default=str)


def _as_text(line: _Line) -> str:
    """In one line, whatever is in it; only a traceback has more."""
    about = "".join(f" {name}={value}" for name, value in line.subject.items() if value != "")
    head = f"{line.moment:%H:%M:%S} {line.level:<7} {line.logger}: {line.message}{about}"
    safe = head.replace("\r", "\\r").replace("\n", "\\n").replace("\x1b", "\\x1b")
    return safe if line.error is None else f"{safe}\n{line.error.rstrip()}"


def _told(error: BaseException, *, has_words: bool) -> Iterator[str]:
    """Where it came from, first cause first."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _told(before, has_words=has_words)
        yield "which led to\n"
    yield from traceback.format_tb(error.__traceback__)
    name = type(error).__qualname__
    is_told = has_words or isinstance(error, MainspringError)
    yield f"{name}: {error}\n" if is_told else f"{name}\n"
