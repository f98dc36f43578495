"""Reads JSON files that others wrote: their values with line numbers, or findings."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import MAX_BYTES, read_bounded
from mainspring.runtime.definition_files.finding import Finding, Level

JsonObject: TypeAlias = dict[str, object]

_BYTE_POSITION = re.compile(r" \(byte (\d{1,12})\)$")


class JsonFile(Struct, frozen=True):
    display_path: str
    text: str
    fields: JsonObject

    def finding(self, level: Level, what: str, *keys: str, fix: str | None = None) -> Finding:
        """A finding about the value at the end of this path of keys."""
        return Finding(
            level=level, file=self.display_path, line=self._line(keys), what=what, fix=fix
        )

    def _line(self, keys: tuple[str, ...]) -> int | None:
        at = 0
        for key in keys:
            match = re.compile(rf'"{re.escape(key)}"\s*:').search(self.text, at)
            if match is None:
                return None
            at = match.start() if key == keys[-1] else match.end()
        return self.text.count("\n", 0, at) + 1 if keys else None


def read_object(
    file: Path, display_path: str, *, within: Path | None = None, max_bytes: int = MAX_BYTES
) -> JsonFile | Finding | None:
    """The JSON object in a file, or a finding; `None` if the file does not exist.

    No link may lead out of the folder `within`.
    """
    try:
        if within is not None and not is_inside(file, within):
            return _error_finding(display_path, "a link that leads out of its folder")
        content = read_bounded(file, max_bytes=max_bytes)
    except InvalidInput as error:
        return _error_finding(display_path, str(error).removeprefix(f"{file}: "))
    if content is None:
        return (
            _error_finding(display_path, "a link that leads nowhere") if file.is_symlink() else None
        )
    return decode_object(content, display_path)


def decode_object(content: bytes, display_path: str) -> JsonFile | Finding:
    """As `read_object`, from bytes that were read already."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        value: object = msgspec.json.decode(content)
        text = content.decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        what = str(error).splitlines()[0]
        at = _BYTE_POSITION.search(what)
        line = content.count(b"\n", 0, int(at[1])) + 1 if at else None
        return _error_finding(display_path, f"not JSON: {_BYTE_POSITION.sub('', what)}", line)
    fields = as_object(value)
    if fields is None:
        return _error_finding(display_path, "must be an object", 1)
    return JsonFile(display_path, text, fields)


def is_inside(path: Path, root: Path) -> bool:
    """Whether a path stays in a folder once all links are resolved."""
    try:
        real = path.resolve()
        # a loop of links is an error up to Python 3.12, and stays a link from 3.13 on
        return real.is_relative_to(root.resolve()) and not real.is_symlink()
    except (OSError, RuntimeError, ValueError):  # a loop of links, an impossible name
        return False


def as_object(value: object) -> JsonObject | None:
    return cast("JsonObject", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


class JsonValueError(ValueError):
    """A value of the wrong type; the message says what it must be."""


ValueReader: TypeAlias = Callable[[object], object]
"""Converts a value. Raises `JsonValueError`."""


def string(value: object) -> str:
    if not isinstance(value, str):
        raise JsonValueError("must be text")
    return value


def scalar(value: object) -> str:
    """A string; numbers and booleans are converted."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise JsonValueError("must be text")
    return str(value)


def strings(value: object) -> tuple[str, ...]:
    values = as_list(value)
    if values is None:
        raise JsonValueError("must be a list of texts")
    return tuple(scalar(item) for item in values)


def string_table(value: object) -> dict[str, str]:
    return {key: scalar(item) for key, item in table(value).items()}


def table(value: object) -> JsonObject:
    fields = as_object(value)
    if fields is None:
        raise JsonValueError("must be an object")
    return fields


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise JsonValueError("must be true or false")
    return value


def _error_finding(display_path: str, what: str, line: int | None = None) -> Finding:
    return Finding(level="error", file=display_path, what=what, line=line)
