"""A workspace as it is now: every file hashed, unless it is known not to have changed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from io import BufferedReader
from typing import TypeAlias

import msgspec
from msgspec import Struct

from mainspring.capabilities.workspace.bounds import Bounds
from mainspring.capabilities.workspace.descent import OPEN_FILE, told
from mainspring.capabilities.workspace.manifest import FOLDER, Item, Items
from mainspring.capabilities.workspace.objects import CHUNK, Objects, pieces_of
from mainspring.capabilities.workspace.walking import Met, walk
from mainspring.core.errors import HandsError

# Of what is restored nothing runs as somebody else, so those bits are not kept.
_FILE_MODE = 0o777
_FOLDER_MODE = 0o1777

_TICK_NS = 50_000_000
_COARSE_TICK_NS = 2_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How large a workspace may be to be kept."""

    max_files: int = 200_000
    max_bytes: int = 8_000_000_000


class Known(Struct, frozen=True, array_like=True, gc=False):
    """A file that had this content when it looked like this from outside."""

    modified_ns: int
    changed_ns: int
    size: int
    device: int
    inode: int
    content: bytes


Cache: TypeAlias = dict[bytes, Known]
CACHE = msgspec.msgpack.Decoder(dict[bytes, Known])


class Scan:
    """One pass. `keep`: where contents go that are not kept yet; `None` only looks.

    `now_ns` is the file system's own time before the pass. A file that was changed since, or in
    the same tick of the clock, may change again without looking different, so it is not taken for
    known the next time: the rule of git's index.
    """

    def __init__(self, cache: Cache, now_ns: int, bound: Bound, keep: Objects | None) -> None:
        self._cache = cache
        self._now_ns = now_ns
        self._bound = bound
        self._keep = keep
        self._kept = keep.known() if keep is not None else set[str]()
        self._bytes = 0
        self.items: Items = {}
        self.known: Cache = {}

    def run(self, bounds: Bounds, root: int) -> None:
        with told("the workspace"):
            for met in walk(bounds, root, bounds.main):
                item = self._item(met)
                if item is not None:
                    self.items[item.path] = item
                    self._check_bound()

    def _item(self, met: Met) -> Item | None:
        path, mode = os.fsencode(met.path), met.state.st_mode
        if stat.S_ISDIR(mode):
            if met.is_closed:
                return Item(path, "unreadable", mode & _FOLDER_MODE, FOLDER)
            return Item(path, "folder", mode & _FOLDER_MODE)
        if stat.S_ISLNK(mode):
            return self._link(path, met)
        return self._file(path, met) if stat.S_ISREG(mode) else None

    def _link(self, path: bytes, met: Met) -> Item | None:
        try:
            return Item(path, "link", 0, os.readlink(os.fsencode(met.name), dir_fd=met.folder))
        except OSError:
            return None  # gone, or something else by now

    def _file(self, path: bytes, met: Met) -> Item | None:
        self._bytes += met.state.st_size
        known = self._cache.get(path)
        if known is None or known != _looks(met.state, known.content) or self._is_lost(known):
            try:
                file = _opened(met)
            except PermissionError:
                return Item(path, "unreadable", met.state.st_mode & _FILE_MODE)
            if file is None:
                return None
            with file:
                known = self._read(file)
        if self._is_settled(known):
            self.known[path] = known
        return Item(path, "file", met.state.st_mode & _FILE_MODE, known.content)

    def _is_lost(self, known: Known) -> bool:
        return self._keep is not None and known.content.decode() not in self._kept

    def _is_settled(self, known: Known) -> bool:
        newest = max(known.modified_ns, known.changed_ns)
        is_coarse = not (known.modified_ns % 10**9 or known.changed_ns % 10**9)
        return newest + (_COARSE_TICK_NS if is_coarse else _TICK_NS) < self._now_ns

    def _read(self, file: BufferedReader) -> Known:
        """Errors of the disk, theirs or ours, end the scan: what is left out would be lost."""
        state = os.fstat(file.fileno())
        if state.st_size <= CHUNK:
            pieces = [file.read()]
            content = hashlib.sha256(pieces[0]).hexdigest()
        else:
            content = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            pieces = pieces_of(file)
        if self._keep is not None and content not in self._kept:
            # The hash is of what is kept: a large file may be another one when it is read again.
            content = self._keep.put(pieces)
            self._kept.add(content)
        return _looks(state, content.encode())

    def _check_bound(self) -> None:
        bound = self._bound
        if len(self.items) > bound.max_files or self._bytes > bound.max_bytes:
            raise HandsError(
                f"the workspace is too large to be kept: more than {bound.max_files:,} files and"
                f" folders, or {bound.max_bytes:,} bytes. Move what can be made again out of it,"
                " or raise the limit."
            )


def _looks(state: os.stat_result, content: bytes) -> Known:
    return Known(
        modified_ns=state.st_mtime_ns,
        changed_ns=state.st_ctime_ns,
        size=state.st_size,
        device=state.st_dev,
        inode=state.st_ino,
        content=content,
    )


def _opened(met: Met) -> BufferedReader | None:
    """`None`: it is gone, or something else by now."""
    try:
        file = os.fdopen(os.open(met.name, OPEN_FILE, dir_fd=met.folder), "rb")
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return None
        raise
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    return None
