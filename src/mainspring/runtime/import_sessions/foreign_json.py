"""Reads foreign JSON within limits: the lines of a file as objects, with a finding for every bad
line, and values where a wrong type becomes an empty value."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Protocol, cast

import msgspec

from mainspring.core.content import Base64Source, Block, ImageBlock, TextBlock, UrlSource
from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import open_regular
from mainspring.runtime.import_sessions.source_session import (
    ImportFinding,
    SourceCall,
    SourcePart,
    SourceText,
    SourceThinking,
)

_MAX_INTEGER = 2**63 - 1  # what our log can store
_MAX_DEPTH = 50  # against an exhausted stack
_IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))


def is_object(value: object) -> bool:
    return isinstance(value, dict)


def is_list(value: object) -> bool:
    return isinstance(value, list)


def mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def sequence(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def integer(value: object) -> int:
    """Counts only: never negative, never a boolean."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(value, 0), _MAX_INTEGER)


def timestamp(value: object) -> datetime | None:
    """An ISO time, or a number of milliseconds (or seconds) since 1970."""
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1000 if value > 1e11 else value
            return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def storable_json(value: object, depth: int = 0) -> object:
    """JSON that our log can store: no numbers beyond 64 bits, limited nesting."""
    if depth > _MAX_DEPTH:
        return "[nested too deeply]"
    if isinstance(value, dict):
        return {
            key: storable_json(item, depth + 1)
            for key, item in mapping(cast("object", value)).items()
        }
    if isinstance(value, list):
        return [storable_json(item, depth + 1) for item in sequence(cast("object", value))]
    if isinstance(value, int) and not -_MAX_INTEGER <= value <= _MAX_INTEGER:
        return str(value)
    return value


def arguments(value: object) -> dict[str, object]:
    """The input of a call."""
    return mapping(storable_json(mapping(value)))


def reply_part(block: dict[str, object], *, call_type: str, input_key: str) -> list[SourcePart]:
    """The part of a reply that a block describes; empty for another kind, or for a call without id
    or name."""
    match block.get("type"):
        case "text":
            return [SourceText(string(block.get("text")))]
        case "thinking":
            return [SourceThinking(string(block.get("thinking")))]
        case kind if kind == call_type:
            call_id, name = string(block.get("id")), string(block.get("name"))
            if not call_id or not name:
                return []
            return [SourceCall(id=call_id, name=name, input=arguments(block.get(input_key)))]
        case _:
            return []


def content_blocks(
    value: object, other: Callable[[dict[str, object]], tuple[Block, ...]]
) -> tuple[Block, ...]:
    """The blocks of a message: its texts, and what `other` makes of blocks of other types."""
    if isinstance(value, str):
        return text_block(value)
    blocks: tuple[Block, ...] = ()
    for block in map(mapping, sequence(value)):
        is_text = block.get("type") == "text"
        blocks += text_block(string(block.get("text"))) if is_text else other(block)
    return blocks


def text_block(text: str) -> tuple[Block, ...]:
    return (TextBlock(text),) if text else ()


def image(media_type: str, data: str) -> tuple[Block, ...]:
    if media_type in _IMAGE_TYPES and data:
        return (ImageBlock(source=Base64Source(media_type=media_type, data=data)),)
    return text_block("[an image of an unsupported type was here]")


def image_at(url: str) -> tuple[Block, ...]:
    """An image by its address, which may be a `data:` URL."""
    if url.startswith("data:"):
        head, _, data = url.removeprefix("data:").partition(",")
        return image(head.removesuffix(";base64"), data)
    if url.startswith("https://"):
        return (ImageBlock(source=UrlSource(url=url)),)
    return text_block("[an image was here]")


MAX_FILE_BYTES = 256 << 20  # of one foreign session
MAX_LINE_BYTES = 32 << 20  # of one of its lines, with images in it
MAX_FINDINGS = 1000  # kept of one file
HEAD_BYTES = 4 << 20
"""The most of a file that is read to recognize its format."""


@dataclass(frozen=True, slots=True)
class JsonLine:
    number: int
    value: dict[str, object]


def _open(path: Path) -> IO[bytes]:
    """
    Raises:
        InvalidInput: it is not a regular file, or larger than `MAX_FILE_BYTES`.
        OSError.
    """
    file = open_regular(path)
    size = os.fstat(file.fileno()).st_size
    if size > MAX_FILE_BYTES:
        file.close()
        limit = MAX_FILE_BYTES >> 20
        raise InvalidInput(f"{path} has {size >> 20} MiB; at most {limit} MiB are read")
    return file


class TreeEntry(Protocol):
    """An entry of a file whose entries form a tree."""

    @property
    def number(self) -> int: ...
    @property
    def parent(self) -> str | None: ...


class JsonLines:
    """The lines of one file. The hash and the findings are complete once all lines are read."""

    def __init__(self, path: Path, findings: list[ImportFinding]) -> None:
        self.path = path
        self._findings = findings
        self._hash = hashlib.sha256()
        self._bytes_left = MAX_FILE_BYTES

    def __iter__(self) -> Iterator[JsonLine]:
        """Raises: InvalidInput, OSError."""
        with _open(self.path) as file:
            number = 0
            while raw := file.readline(MAX_LINE_BYTES):
                number += 1
                self._count(raw)
                if not raw.endswith(b"\n") and len(raw) == MAX_LINE_BYTES:
                    self._skip_line(file, number)
                    continue
                if not raw.strip():
                    continue
                value = decode_object(raw)
                if value is None:
                    self.add_finding(number, "is not a JSON object; the line was left out")
                else:
                    yield JsonLine(number, value)

    def _count(self, raw: bytes) -> None:
        self._hash.update(raw)
        self._bytes_left -= len(raw)
        if self._bytes_left < 0:  # it grew while it was read
            raise InvalidInput(f"{self.path} is larger than {MAX_FILE_BYTES >> 20} MiB")

    def _skip_line(self, file: IO[bytes], number: int) -> None:
        while raw := file.readline(MAX_LINE_BYTES):
            self._count(raw)
            if raw.endswith(b"\n"):
                break
        self.add_finding(
            number, f"is longer than {MAX_LINE_BYTES >> 20} MiB; the line was left out"
        )

    def add_finding(self, number: int, what: str) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(ImportFinding(path=str(self.path), line=number, what=what))

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def branch_indexes(
    entries: Sequence[TreeEntry], index_of: Mapping[str, int], last: int | None, lines: JsonLines
) -> set[int]:
    """The indexes of an entry and all its ancestors. If a parent is missing, the preceding entry
    counts as the parent."""
    indexes: set[int] = set()
    index = last
    while index is not None and index not in indexes:
        indexes.add(index)
        entry = entries[index]
        if entry.parent is None:
            break
        parent = index_of.get(entry.parent)
        if parent is None and index > 0:
            lines.add_finding(
                entry.number, "its parent is not in the file; the entry before it is used"
            )
            parent = index - 1
        index = parent
    return indexes


def head_lines(path: Path, limit: int = 20) -> list[dict[str, object]]:
    """The first objects of a file, to recognize its format.

    Raises: InvalidInput, OSError.
    """
    with _open(path) as file:
        rows = file.read(HEAD_BYTES).split(b"\n")[:limit]
    return [value for raw in rows if raw.strip() and (value := decode_object(raw)) is not None]


def read_whole(path: Path) -> bytes:
    """Raises: InvalidInput, OSError."""
    with _open(path) as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise InvalidInput(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
    return content


def decode_json(raw: bytes) -> object:
    """The value, or `None` if it is not JSON. An unpaired surrogate, left by tools that truncate
    texts, becomes a question mark."""
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
