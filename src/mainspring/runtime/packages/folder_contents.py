"""The contents of a package, read once and within limits, and their hash."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mainspring.core.atomic_file import open_regular
from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.runtime.packages.upload import DISK_LIMITS, PackageLimits

_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentItem:
    path: str
    """Relative to the package's folder, with slashes."""
    content: bytes = b""
    is_executable: bool = False
    link: str | None = None
    """The target, if this is a link."""
    is_special: bool = False
    """A pipe, a socket or a device: no package needs one."""


def read_contents(place: Path, limits: PackageLimits = DISK_LIMITS) -> tuple[ContentItem, ...]:
    """Everything in a folder, sorted by path; links are not followed. A single file is a package of
    one.

    Raises:
        InvalidInput: it does not exist or cannot be read.
        TooLarge: it exceeds the limits; a part that was not read cannot be trusted.
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
    """A hash that changes with every name, byte, executable bit and link target."""
    entries = [
        (
            os.fsencode(item.path),
            item.is_executable,
            item.is_special,
            None if item.link is None else os.fsencode(item.link),
            hashlib.sha256(item.content).digest(),
        )
        for item in items
    ]
    return hashlib.sha256(msgspec.msgpack.encode(entries)).hexdigest()


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    if depth > _MAX_DEPTH:
        raise TooLarge(f"{folder.name}: more than {_MAX_DEPTH} folders deep")
    with os.scandir(folder) as entries:
        children = sorted(entries, key=lambda entry: entry.name)
    for entry in children:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), depth + 1)
        else:
            yield Path(entry.path)


def _read(path: Path, name: str, max_bytes: int) -> ContentItem:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return ContentItem(path=name, link=os.readlink(path))
    if not stat.S_ISREG(mode):
        return ContentItem(path=name, is_special=True)
    with open_regular(path, follows_links=False) as opened:
        mode = os.fstat(opened.fileno()).st_mode
        content = opened.read(max_bytes + 1)
    return ContentItem(path=name, content=content, is_executable=bool(mode & 0o111))
