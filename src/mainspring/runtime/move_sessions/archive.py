"""A workspace in a tar archive: folders, plain files and links that stay inside.

Both ways go by descriptors, through no link. What is read may be hostile: names, kinds and sizes
are checked before anything is made, links are made last, and modes lose what is dangerous.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.core.openat import open_absolute, open_beneath

PREFIX = "workspace/"
MAX_ENTRIES = 200_000
MAX_BYTES = 4 << 30
_MAX_PATH = 1024
_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Packed:
    """What was put into an archive."""

    files: dict[str, str] = field(default_factory=dict[str, str])
    """Hashes by path; of a link, that of its target."""
    left_out: list[str] = field(default_factory=list[str])
    """Links that lead out, devices, sockets and pipes, and what has a name that is no text."""
    size: int = 0


def check_size(workspace: Path, *, hidden: Collection[str]) -> int:
    """Whether a workspace can be packed, and how large it is then; looks at no content.

    Raises: TooLarge, OSError.
    """
    count = size = 0
    for folder, folders, files in os.walk(workspace):
        above = Path(folder).relative_to(workspace)
        folders[:] = [name for name in folders if (above / name).as_posix() not in hidden]
        count += len(folders) + len(files)
        size += sum(os.lstat(os.path.join(folder, name)).st_size for name in files)
        if count > MAX_ENTRIES or size > MAX_BYTES:
            raise TooLarge(f"a workspace that moves has {MAX_ENTRIES:,} files at most, and 4 GB")
    return size + (count + 1) * 1024  # with headers and padding, about


def pack(archive: tarfile.TarFile, workspace: Path, *, hidden: Collection[str]) -> Packed:
    """Raises: TooLarge, OSError."""
    packed = Packed()
    root = open_absolute(str(workspace), _FOLDER)
    try:
        _pack_folder(archive, root, "", frozenset(hidden), packed)
    finally:
        os.close(root)
    return packed


def _pack_folder(
    archive: tarfile.TarFile, folder: int, above: str, hidden: frozenset[str], packed: Packed
) -> None:
    for name in sorted(os.listdir(folder)):
        path = f"{above}{name}"
        if path in hidden:
            continue
        if not _is_text(path):
            packed.left_out.append(os.fsencode(path).decode(errors="replace"))
            continue
        if len(packed.files) >= MAX_ENTRIES or packed.size > MAX_BYTES:
            raise TooLarge(f"a workspace that moves has {MAX_ENTRIES:,} files at most, and 4 GB")
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        entry = tarfile.TarInfo(PREFIX + path)
        entry.mode, entry.mtime = stat.S_IMODE(state.st_mode) & 0o755, int(state.st_mtime)
        if stat.S_ISDIR(state.st_mode):
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
            inner = os.open(name, _FOLDER, dir_fd=folder)
            try:
                _pack_folder(archive, inner, f"{path}/", hidden, packed)
            finally:
                os.close(inner)
        elif stat.S_ISREG(state.st_mode):
            _pack_file(archive, entry, os.open(name, _FILE, dir_fd=folder), packed)
        elif (
            stat.S_ISLNK(state.st_mode)
            and _stays_inside(path, target := os.readlink(name, dir_fd=folder))
            and _is_text(target)
        ):
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
            packed.files[path] = hashlib.sha256(os.fsencode(target)).hexdigest()
        else:
            packed.left_out.append(path)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pack_file(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, opened: int, packed: Packed
) -> None:
    with os.fdopen(opened, "rb") as file:
        state = os.fstat(file.fileno())
        path = entry.name.removeprefix(PREFIX)
        if not stat.S_ISREG(state.st_mode):
            packed.left_out.append(path)
            return
        entry.size = state.st_size
        hashed = _Hashed(file)
        archive.addfile(entry, hashed)  # pyright: ignore[reportArgumentType] (all it does is read)
        packed.files[path] = hashed.digest.hexdigest()
        packed.size += state.st_size


class _Hashed:
    """A file that is hashed as it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self.digest.update(content)
        return content


def unpack(
    archive: tarfile.TarFile, folder: Path, known: dict[str, str], *, hidden: Collection[str] = ()
) -> None:
    """Into a new folder. `known`: the hashes that files and links must have, all of them. `hidden`:
    names at the top of a workspace that are never its own.

    Raises: InvalidInput, TooLarge: the archive is not as it should be. OSError.
    """
    folder.mkdir(mode=0o700)
    root = open_absolute(str(folder), _FOLDER)
    links: list[tuple[str, str]] = []
    modes: list[tuple[str, int]] = []
    found: dict[str, str] = {}
    size = 0
    try:
        for count, entry in enumerate(_entries(archive, hidden), 1):
            size += entry.size
            if count > MAX_ENTRIES or size > MAX_BYTES:
                raise TooLarge(f"a workspace has {MAX_ENTRIES:,} files at most, and 4 GB")
            path = _checked(entry.name.removeprefix(PREFIX))
            if entry.isdir():
                _make_folder(root, path)
                modes.append((path, entry.mode))
            elif entry.issym():
                links.append((path, entry.linkname))
            else:
                found[path] = _unpack_file(archive, entry, root, path)
        for path, target in links:  # last: no file is written through one
            found[path] = _link(root, path, target)
        for path, mode in reversed(modes):
            _set_mode(root, path, mode)
    finally:
        os.close(root)
    if found != known:
        raise InvalidInput("the files of the workspace are not those that were sent")


def _entries(archive: tarfile.TarFile, hidden: Collection[str]) -> list[tarfile.TarInfo]:
    entries = [entry for entry in archive if entry.name.startswith(PREFIX)]
    for entry in entries:
        if not (entry.isdir() or entry.isreg() or entry.issym()) or entry.issparse():
            raise InvalidInput(f"{entry.name[:100]!r} is no file, folder or link")
        if entry.name.removeprefix(PREFIX).partition("/")[0] in hidden:
            raise InvalidInput(f"{entry.name[:100]!r} is not part of a workspace")
    return entries


def _checked(path: str) -> str:
    parts = path.split("/")
    if len(path) > _MAX_PATH or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidInput(f"{path[:100]!r} is not a path in a workspace")
    return path


def _stays_inside(path: str, target: str) -> bool:
    """Whether a link leads to something below the workspace, by its text alone."""
    if not target or target.startswith("/") or len(target) > _MAX_PATH or "\0" in target:
        return False
    depth = len(PurePosixPath(path).parts) - 1
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return False
    return True


def _make_folder(root: int, path: str) -> None:
    above, name = _above(root, path)
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    finally:
        os.close(above)


def _unpack_file(archive: tarfile.TarFile, entry: tarfile.TarInfo, root: int, path: str) -> str:
    above, name = _above(root, path)
    try:
        opened = os.open(name, _NEW_FILE, 0o600, dir_fd=above)
    finally:
        os.close(above)
    digest = hashlib.sha256()
    with (
        os.fdopen(opened, "wb") as file,
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
    above, name = _above(root, path)
    try:
        os.symlink(target, name, dir_fd=above)
    finally:
        os.close(above)
    return hashlib.sha256(os.fsencode(target)).hexdigest()


def _set_mode(root: int, path: str, mode: int) -> None:
    opened = open_beneath(root, path, _FOLDER)
    try:
        os.fchmod(opened, mode & 0o755 | 0o700)
    finally:
        os.close(opened)


def _above(root: int, path: str) -> tuple[int, str]:
    folder, _, name = path.rpartition("/")
    return open_beneath(root, folder or ".", _FOLDER), name
