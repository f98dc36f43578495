"""Foreign files read within limits: their lines as JSON objects, and a finding for each bad one."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.runtime.import_sessions.source import Finding
from mainspring.runtime.import_sessions.values import is_object, mapping

MAX_FILE_BYTES = 256 << 20
MAX_LINE_BYTES = 32 << 20
MAX_FINDINGS = 1000
HEAD_BYTES = 4 << 20
"""How much of a file is read to see what it is."""


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    value: dict[str, object]


def open_regular(path: Path) -> IO[bytes]:
    """
    Raises:
        InvalidInput: it is no ordinary file, or larger than `MAX_FILE_BYTES`.
        OSError
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise InvalidInput(f"{path} is not an ordinary file")
    if state.st_size > MAX_FILE_BYTES:
        os.close(descriptor)
        limit = MAX_FILE_BYTES >> 20
        raise InvalidInput(f"{path} has {state.st_size >> 20} MiB; at most {limit} MiB are read")
    return os.fdopen(descriptor, "rb")


class Node(Protocol):
    """An entry of a file whose entries form a tree."""

    @property
    def number(self) -> int: ...
    @property
    def parent(self) -> str | None: ...


class JsonLines:
    """The lines of one file. Its hash and findings are complete when all of them have been read."""

    def __init__(self, path: Path, findings: list[Finding]) -> None:
        self.path = path
        self._findings = findings
        self._hash = hashlib.sha256()
        self._left = MAX_FILE_BYTES

    def __iter__(self) -> Iterator[Line]:
        """Raises: InvalidInput, OSError."""
        with open_regular(self.path) as file:
            number = 0
            while raw := file.readline(MAX_LINE_BYTES):
                number += 1
                self._take(raw)
                if not raw.endswith(b"\n") and len(raw) == MAX_LINE_BYTES:
                    self._skip_rest(file, number)
                    continue
                if not raw.strip():
                    continue
                value = decode_object(raw)
                if value is None:
                    self.found(number, "is not a JSON object; the line was left out")
                else:
                    yield Line(number, value)

    def _take(self, raw: bytes) -> None:
        self._hash.update(raw)
        self._left -= len(raw)
        if self._left < 0:  # it grows while it is read
            raise InvalidInput(f"{self.path} is larger than {MAX_FILE_BYTES >> 20} MiB")

    def _skip_rest(self, file: IO[bytes], number: int) -> None:
        while raw := file.readline(MAX_LINE_BYTES):
            self._take(raw)
            if raw.endswith(b"\n"):
                break
        self.found(number, f"is longer than {MAX_LINE_BYTES >> 20} MiB; the line was left out")

    def found(self, number: int, what: str) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(Finding(path=str(self.path), line=number, what=what))

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def branch(
    entries: Sequence[Node], index_of: Mapping[str, int], last: int | None, lines: JsonLines
) -> set[int]:
    """Indexes of an entry and all above it. Where a parent is missing, the entry before is it."""
    chosen: set[int] = set()
    at = last
    while at is not None and at not in chosen:
        chosen.add(at)
        entry = entries[at]
        if entry.parent is None:
            break
        above = index_of.get(entry.parent)
        if above is None and at > 0:
            lines.found(entry.number, "its parent is not in the file; the entry before it is used")
            above = at - 1
        at = above
    return chosen


def head_lines(path: Path, most: int = 20) -> list[dict[str, object]]:
    """The first objects of a file, to see what it is.

    Raises: InvalidInput, OSError.
    """
    with open_regular(path) as file:
        rows = file.read(HEAD_BYTES).split(b"\n")[:most]
    return [value for raw in rows if raw.strip() and (value := decode_object(raw)) is not None]


def read_whole(path: Path) -> bytes:
    """Raises: InvalidInput, OSError."""
    with open_regular(path) as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise InvalidInput(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
    return content


def decode_json(raw: bytes) -> object:
    """The value, or `None` if it is not JSON. Half a surrogate pair, as tools that cut texts write
    it, becomes a question mark."""
    try:
        return cast("object", msgspec.json.decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        loose: object = json.loads(raw)
        encoded = json.dumps(loose, ensure_ascii=False).encode("utf-8", "replace")
        return cast("object", msgspec.json.decode(encoded))
    except (ValueError, RecursionError):
        return None


def decode_object(raw: bytes) -> dict[str, object] | None:
    value = decode_json(raw)
    return mapping(value) if is_object(value) else None
