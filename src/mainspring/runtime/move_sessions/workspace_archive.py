"""A workspace in a tar archive: folders, regular files and links that stay inside.

Packing and unpacking use descriptors and follow no link. An archive may be hostile: names, kinds
and sizes are checked before anything is created, links are created last, and dangerous mode bits
are removed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
import unicodedata
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.files.openat import open_absolute, open_beneath

PREFIX = "workspace/"
MAX_ENTRIES = 200_000  # of a workspace
MAX_BYTES = 4 << 30  # of a workspace, unpacked
_OWN_FOLDER = ".mainspring"
"""Stores, settings and secrets of an installation: never moved with a workspace."""
_MAX_PATH = 1024
"""The longest path, in bytes."""
_MAX_DEPTH = 100  # folders
_MAX_NAMES = 32 << 20
"""The limit in bytes for all paths together, as the manifest encodes them."""
_HASH = 70
"""Characters in the manifest beside each path."""
_MAX_LEFT_OUT = 1000  # paths named in the report
_MAX_TIME = 8**11 - 1  # the largest that a tar's field of 11 octal digits holds
_CHUNK = 1 << 20  # bytes read at once
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Total:
    """The size of a workspace so far."""

    count: int = 0
    size: int = 0
    names: int = 0

    def add(self, path: str, size: int) -> None:
        """Raises: TooLarge."""
        count, size = self.count + 1, self.size + size
        names = self.names + len(msgspec.json.encode(path)) + _HASH
        if count > MAX_ENTRIES or size > MAX_BYTES or names > _MAX_NAMES:
            raise TooLarge(
                f"a workspace that moves may have at most {MAX_ENTRIES:,} files, 4 GB, and 32 MB of"
                " paths"
            )
        self.count, self.size, self.names = count, size, names


@dataclass(slots=True)
class PackResult:
    """The contents of an archive."""

    files: dict[str, str] = field(default_factory=dict[str, str])
    """Hashes by path; for a link, the hash of its target."""
    left_out: list[str] = field(default_factory=list[str])
    """Paths that cannot be moved: links that lead out, devices, sockets and pipes; names that are
    not text, too long or reserved; unreadable files, and files that exceed the limits since
    `check_size`. Only the first ones, if there are many."""
    total: _Total = field(default_factory=_Total)

    def leave_out(self, path: str) -> None:
        if len(self.left_out) < _MAX_LEFT_OUT:
            self.left_out.append(os.fsencode(path)[:_MAX_PATH].decode(errors="replace"))


def check_size(workspace: Path, *, hidden: Collection[str]) -> int:
    """Check that a workspace can be packed and return its packed size; reads no contents.

    Raises: TooLarge, OSError.
    """
    total = _Total()
    for folder, folders, files in os.walk(workspace):
        parent = Path(folder).relative_to(workspace)
        paths = {name: (parent / name).as_posix() for name in (*folders, *files)}
        moving = {
            name for name, path in paths.items() if path not in hidden and _is_valid_path(path)
        }
        folders[:] = [name for name in folders if name in moving]
        for name in folders:
            total.add(paths[name], 0)
        for name in moving.intersection(files):
            with suppress(PermissionError):  # it is left out
                total.add(paths[name], os.lstat(os.path.join(folder, name)).st_size)
    return total.size + (total.count + 1) * 1024  # with headers and padding, about


def pack(archive: tarfile.TarFile, workspace: Path, *, hidden: Collection[str]) -> PackResult:
    """Pack a workspace. Leaves out what cannot be packed, since the session has already ended.

    Raises:
        OSError: a file changed meanwhile; try again.
    """
    packed = PackResult()
    root = open_absolute(str(workspace), _FOLDER)
    try:
        _pack_folder(archive, root, "", frozenset(hidden), packed)
    finally:
        os.close(root)
    return packed


def _pack_folder(
    archive: tarfile.TarFile,
    folder: int,
    parent: str,
    hidden: frozenset[str],
    result: PackResult,
) -> None:
    for name in sorted(os.listdir(folder)):
        path = f"{parent}{name}"
        if path in hidden:
            continue
        if not _is_valid_path(path):
            result.leave_out(path)
            continue
        try:
            inner = _pack_entry(archive, folder, name, path, result)
        except (PermissionError, TooLarge):
            result.leave_out(path)
            continue
        if inner is not None:
            try:
                _pack_folder(archive, inner, f"{path}/", hidden, result)
            finally:
                os.close(inner)


def _pack_entry(
    archive: tarfile.TarFile, folder: int, name: str, path: str, result: PackResult
) -> int | None:
    """Returns the open descriptor if it is a folder."""
    state = os.stat(name, dir_fd=folder, follow_symlinks=False)
    entry = tarfile.TarInfo(PREFIX + path)
    entry.mode = stat.S_IMODE(state.st_mode) & 0o755
    entry.mtime = min(max(int(state.st_mtime), 0), _MAX_TIME)
    if stat.S_ISDIR(state.st_mode):
        result.total.add(path, 0)
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
        return descriptor
    if stat.S_ISREG(state.st_mode):
        _pack_file(archive, entry, os.open(name, _FILE, dir_fd=folder), result)
    elif stat.S_ISLNK(state.st_mode) and _stays_inside(
        path, target := os.readlink(name, dir_fd=folder)
    ):
        result.total.add(path, 0)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        archive.addfile(entry)
        result.files[path] = hashlib.sha256(os.fsencode(target)).hexdigest()
    else:
        result.leave_out(path)
    return None


def _pack_file(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, opened: int, result: PackResult
) -> None:
    with os.fdopen(opened, "rb") as file:
        state = os.fstat(file.fileno())
        path = entry.name.removeprefix(PREFIX)
        if not stat.S_ISREG(state.st_mode):
            result.leave_out(path)
            return
        result.total.add(path, state.st_size)
        entry.size = state.st_size
        reader = _HashingReader(file)
        archive.addfile(entry, reader)  # pyright: ignore[reportArgumentType] (it only calls `read`)
        result.files[path] = reader.digest.hexdigest()


class _HashingReader:
    """A file that is hashed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self.digest.update(content)
        return content


def unpack(
    archive: tarfile.TarFile, folder: Path, sent: dict[str, str], *, hidden: Collection[str] = ()
) -> None:
    """Unpack into a new folder. `sent` are the hashes that all files and links must have. `hidden`
    are names at the top of a workspace that never belong to it.

    Raises:
        InvalidInput, TooLarge: the archive is not valid.
        OSError.
    """
    folder.mkdir(mode=0o700)
    root = open_absolute(str(folder), _FOLDER)
    links: list[tuple[str, str]] = []
    modes: list[tuple[str, int]] = []
    hashes: dict[str, str] = {}
    total = _Total()
    try:
        for entry in _entries(archive, hidden):
            path = _check_path(entry.name.removeprefix(PREFIX))
            total.add(path, entry.size)
            if entry.isdir():
                _make_folder(root, path)
                modes.append((path, entry.mode))
            elif entry.issym():
                links.append((path, entry.linkname))
            else:
                hashes[path] = _unpack_file(archive, entry, root, path)
        for path, target in links:  # last: no file is written through one
            hashes[path] = _link(root, path, target)
        for path, mode in reversed(modes):
            _set_mode(root, path, mode)
    finally:
        os.close(root)
    if hashes != sent:
        raise InvalidInput("the files of the workspace differ from those that were sent")


def _entries(archive: tarfile.TarFile, hidden: Collection[str]) -> list[tarfile.TarInfo]:
    entries = [entry for entry in archive if entry.name.startswith(PREFIX)]
    for entry in entries:
        if not (entry.isdir() or entry.isreg() or entry.issym()) or entry.issparse():
            raise InvalidInput(f"{entry.name[:100]!r} is not a file, folder or link")
        if entry.name.removeprefix(PREFIX).partition("/")[0] in hidden:
            raise InvalidInput(f"{entry.name[:100]!r} is not part of a workspace")
    return entries


def _check_path(path: str) -> str:
    if not _is_valid_path(path):
        raise InvalidInput(f"{path[:100]!r} is not a path in a workspace that moves")
    return path


def _is_valid_path(path: str) -> bool:
    """Whether a path is valid in a moved workspace: both sides check it."""
    parts = path.split("/")
    return (
        _is_text(path)
        and len(parts) <= _MAX_DEPTH
        and not any(part in ("", ".", "..") or _is_own_folder(part) for part in parts)
    )


def _is_text(path: str) -> bool:
    try:
        return len(path.encode()) <= _MAX_PATH and "\0" not in path
    except UnicodeEncodeError:
        return False


def _is_own_folder(name: str) -> bool:
    """Whether a name means our own folder, even on file systems that ignore case or invisible
    characters."""
    if not name.isascii():
        normalized = unicodedata.normalize("NFKC", name)
        name = "".join(item for item in normalized if unicodedata.category(item) != "Cf")
    return name.casefold() == _OWN_FOLDER


def _stays_inside(path: str, target: str) -> bool:
    """Whether a link stays below the workspace, judged by its text alone: it may go up first and
    then only down, since a name on the way may be another link."""
    if not target or target.startswith("/") or not _is_text(target):
        return False
    depth, is_down = len(PurePosixPath(path).parts) - 1, False
    for part in target.split("/"):
        if part == "..":
            depth -= 1
            if is_down or depth < 0:
                return False
        elif part not in ("", "."):
            is_down = True
    return True


def _make_folder(root: int, path: str) -> None:
    parent, name = _open_parent(root, path)
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    finally:
        os.close(parent)


def _unpack_file(archive: tarfile.TarFile, entry: tarfile.TarInfo, root: int, path: str) -> str:
    parent, name = _open_parent(root, path)
    try:
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=parent)
    finally:
        os.close(parent)
    digest = hashlib.sha256()
    with (
        os.fdopen(descriptor, "wb") as file,
        archive.extractfile(entry) or open(os.devnull, "rb") as source,
    ):
        while piece := source.read(_CHUNK):
            digest.update(piece)
            file.write(piece)
        os.fchmod(file.fileno(), entry.mode & 0o755 | 0o600)
    return digest.hexdigest()


def _link(root: int, path: str, target: str) -> str:
    if not _stays_inside(path, target):
        raise InvalidInput(f"the link {path[:100]!r} leads out of the workspace")
    parent, name = _open_parent(root, path)
    try:
        os.symlink(target, name, dir_fd=parent)
    finally:
        os.close(parent)
    return hashlib.sha256(os.fsencode(target)).hexdigest()


def _set_mode(root: int, path: str, mode: int) -> None:
    descriptor = open_beneath(root, path, _FOLDER)
    try:
        os.fchmod(descriptor, mode & 0o755 | 0o700)
    finally:
        os.close(descriptor)


def _open_parent(root: int, path: str) -> tuple[int, str]:
    folder, _, name = path.rpartition("/")
    return open_beneath(root, folder or ".", _FOLDER), name
