"""Scans a workspace: every file is hashed, unless the cache shows that it has not changed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import BufferedReader
from typing import TypeAlias

import msgspec
from msgspec import Struct

from mainspring.capabilities.workspace.path_traversal import (
    OPEN_FILE,
    WalkEntry,
    translate_os_errors,
    walk_tree,
)
from mainspring.capabilities.workspace.snapshot_objects import (
    CHUNK,
    FOLDER,
    ManifestEntries,
    ObjectStore,
    SnapshotEntry,
    read_chunks,
)
from mainspring.capabilities.workspace.workspace_roots import WorkspaceRoots
from mainspring.core.errors import ToolEnvironmentError

# No setuid and setgid: no restored file runs as another user.
_FILE_MODE = 0o777
_FOLDER_MODE = 0o1777  # all users may create files here, and only owners remove theirs

# A file changed within it may change again without a new time: the kernel's clock for files ticks
# every few milliseconds.
_TICK_NS = 50_000_000
_COARSE_TICK_NS = 2_000_000_000  # of file systems that count in 1 s or 2 s (FAT, some network ones)


class ScanLimits(Struct, frozen=True, kw_only=True):
    """The largest workspace that can be stored."""

    max_files: int = 200_000
    max_bytes: int = 8_000_000_000


class CachedFile(Struct, frozen=True, array_like=True, gc=False):
    """The content hash of a file, and the metadata that it had then."""

    modified_ns: int
    changed_ns: int
    size: int
    device: int
    inode: int
    content: bytes


ScanCache: TypeAlias = dict[bytes, CachedFile]
CACHE_DECODER = msgspec.msgpack.Decoder(dict[bytes, CachedFile])


class WorkspaceScan:
    """One scan. `keep` stores contents that are not stored yet; with `None` nothing is stored.

    `now_ns` is the file system's own time before the scan. A file that was changed since, or in the
    same tick of the clock, may change again with the same metadata, so it is not cached: the rule
    of git's index.
    """

    def __init__(
        self, cache: ScanCache, now_ns: int, limits: ScanLimits, keep: ObjectStore | None
    ) -> None:
        self._cache = cache
        self._now_ns = now_ns
        self._limits = limits
        self._keep = keep
        self._stored_digests = keep.digests() if keep is not None else set[str]()
        self._bytes = 0
        self.items: ManifestEntries = {}
        self.cache: ScanCache = {}

    def run(self, roots: WorkspaceRoots, root: int) -> None:
        with translate_os_errors("the workspace"):
            for entry in walk_tree(roots, root, roots.main):
                item = self._item(entry)
                if item is not None:
                    self.items[item.path] = item
                    self._check_bound()

    def _item(self, entry: WalkEntry) -> SnapshotEntry | None:
        path, mode = os.fsencode(entry.path), entry.state.st_mode
        if stat.S_ISDIR(mode):
            if entry.is_closed:
                return SnapshotEntry(path, "unreadable", mode & _FOLDER_MODE, FOLDER)
            return SnapshotEntry(path, "folder", mode & _FOLDER_MODE)
        if stat.S_ISLNK(mode):
            try:
                target = os.readlink(os.fsencode(entry.name), dir_fd=entry.folder)
                return SnapshotEntry(path, "link", 0, target)
            except OSError:
                return None  # removed or replaced
        return self._file(path, entry) if stat.S_ISREG(mode) else None

    def _file(self, path: bytes, entry: WalkEntry) -> SnapshotEntry | None:
        self._bytes += entry.state.st_size
        cached_file = self._cache.get(path)
        if (
            cached_file is None
            or cached_file != _cached_file(entry.state, cached_file.content)
            or self._is_lost(cached_file)
        ):
            try:
                file = _open_entry(entry)
            except PermissionError:
                return SnapshotEntry(path, "unreadable", entry.state.st_mode & _FILE_MODE)
            if file is None:
                return None
            with file:
                cached_file = self._read(file)
        if self._is_settled(cached_file):
            self.cache[path] = cached_file
        return SnapshotEntry(path, "file", entry.state.st_mode & _FILE_MODE, cached_file.content)

    def _is_lost(self, file: CachedFile) -> bool:
        return self._keep is not None and file.content.decode() not in self._stored_digests

    def _is_settled(self, file: CachedFile) -> bool:
        newest = max(file.modified_ns, file.changed_ns)
        is_coarse = not (file.modified_ns % 10**9 or file.changed_ns % 10**9)
        return newest + (_COARSE_TICK_NS if is_coarse else _TICK_NS) < self._now_ns

    def _read(self, file: BufferedReader) -> CachedFile:
        """Read and hash a file. I/O errors end the scan: a file that was left out would be lost."""
        state = os.fstat(file.fileno())
        if state.st_size <= CHUNK:
            pieces = [file.read()]
            content = hashlib.sha256(pieces[0]).hexdigest()
        else:
            content = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            pieces = read_chunks(file)
        if self._keep is not None and content not in self._stored_digests:
            # Use the hash of what was stored: a large file may have changed since the first read.
            content = self._keep.put(pieces)
            self._stored_digests.add(content)
        return _cached_file(state, content.encode())

    def _check_bound(self) -> None:
        bound = self._limits
        if len(self.items) > bound.max_files or self._bytes > bound.max_bytes:
            raise ToolEnvironmentError(
                f"the workspace is too large: more than {bound.max_files:,} files and"
                f" folders, or {bound.max_bytes:,} bytes. Move what can be made again out of it,"
                " or raise the limit."
            )


def _cached_file(state: os.stat_result, content: bytes) -> CachedFile:
    return CachedFile(
        modified_ns=state.st_mtime_ns,
        changed_ns=state.st_ctime_ns,
        size=state.st_size,
        device=state.st_dev,
        inode=state.st_ino,
        content=content,
    )


def _open_entry(entry: WalkEntry) -> BufferedReader | None:
    """`None`: it was removed or replaced."""
    try:
        file = os.fdopen(os.open(entry.name, OPEN_FILE, dir_fd=entry.folder), "rb")
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return None
        raise
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    return None
