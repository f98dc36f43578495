"""All that a skill consists of, read once and within bounds, and the hash that stands for it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.runtime.packages.upload import DISK_LIMITS, PackageLimits

_MAX_DEPTH = 32
# A link that was put in a file's place is not followed, and a pipe is not waited for.
_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentItem:
    path: str
    """Inside of the skill's folder, with slashes."""
    content: bytes = b""
    is_executable: bool = False
    link: str | None = None
    """Where it leads, if it is a link."""
    is_special: bool = False
    """A pipe, a socket, a device: nothing that a skill needs."""


def read_contents(place: Path, limits: PackageLimits = DISK_LIMITS) -> tuple[ContentItem, ...]:
    """Everything in a folder, links not followed, in the order of the paths; or a single file.

    Raises:
        InvalidInput: it is not there or cannot be read.
        TooLarge: more than a skill may be; what was not read is not vouched for either.
    """
    root = Path(os.path.realpath(place))
    items: list[ContentItem] = []
    left = limits.max_bytes
    try:
        for path in [root] if root.is_file() else _walk(root, 0):
            if len(items) == limits.max_files:
                raise TooLarge(f"{place.name}: a skill has {limits.max_files:,} files at most")
            name = path.name if path == root else path.relative_to(root).as_posix()
            item = _read(path, name, left)
            left -= len(item.content)
            if left < 0:
                raise TooLarge(f"{place.name}: a skill has {limits.max_bytes:,} bytes at most")
            items.append(item)
    except OSError as error:
        raise InvalidInput(f"{error.filename or place}: {error.strerror or error}") from error
    return tuple(sorted(items, key=lambda item: item.path))


def contents_hash(items: Iterable[ContentItem]) -> str:
    """Whatever changes, this does: a name, a byte, what may be run, where a link leads."""
    listed = [
        (
            os.fsencode(item.path),
            item.is_executable,
            item.is_special,
            None if item.link is None else os.fsencode(item.link),
            hashlib.sha256(item.content).digest(),
        )
        for item in items
    ]
    return hashlib.sha256(msgspec.msgpack.encode(listed)).hexdigest()


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    if depth > _MAX_DEPTH:
        raise TooLarge(f"{folder.name}: more than {_MAX_DEPTH} folders deep")
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), depth + 1)
        else:
            yield Path(entry.path)


def _read(path: Path, name: str, most: int) -> ContentItem:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return ContentItem(path=name, link=os.readlink(path))
    if not stat.S_ISREG(mode):
        return ContentItem(path=name, is_special=True)
    with os.fdopen(os.open(path, _OPEN_FLAGS), "rb") as opened:
        mode = os.fstat(opened.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise InvalidInput(f"{path}: changed while it was read")
        content = opened.read(most + 1)
    return ContentItem(path=name, content=content, is_executable=bool(mode & 0o111))
