"""Resolves paths and walks folders of a workspace by descriptors. Path resolution follows links; a
walk does not, and skips everything hidden."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Self

from msgspec import Struct

from mainspring.capabilities.workspace.workspace_roots import (
    PathParts,
    WorkspaceRoots,
    absolute_path,
    printable_path,
)
from mainspring.core.errors import FileMissing, FileRefused, IsFolder, OutsideWorkspace
from mainspring.files.openat import OpenDescriptor, open_absolute
from mainspring.files.session_owner import gives_uids, owner_of_new
from mainspring.files.written_files import WRITTEN_FILES

MAX_DEPTH = 256  # folders; each costs a descriptor while it is open
_MAX_LINKS = 40  # links followed: the kernel's own limit

_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
OPEN_FOLDER = os.O_RDONLY | _SAFE | getattr(os, "O_DIRECTORY", 0)
OPEN_FILE = os.O_RDONLY | _SAFE | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE

_IS_LINK = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)


class ResolvedPath(Struct, frozen=True):
    """The target of a path: a name in an open folder, and its state when it was resolved."""

    parts: PathParts
    folder: int | None
    """`None`: the folder itself does not exist."""
    name: str
    state: os.stat_result | None
    is_linked: bool = False
    """Whether the path contained a link."""


@contextmanager
def translate_os_errors(path: str) -> Generator[None]:
    """Translate `OSError` into our errors, with the requested path."""
    try:
        yield
    except FileNotFoundError:
        raise FileMissing(f"{printable_path(path)}: there is no such file or folder") from None
    except IsADirectoryError:
        raise IsFolder(f"{printable_path(path)} is a folder") from None
    except OSError as error:
        raise FileRefused(f"{printable_path(path)}: {error.strerror}") from error


def hidden_identities(roots: WorkspaceRoots) -> frozenset[tuple[int, int]]:
    """Device and inode of hidden files, which identify them under any name."""
    identities: set[tuple[int, int]] = set()
    for parts in roots.hidden:
        with suppress(OSError):
            state = os.lstat(absolute_path(parts))
            identities.add((state.st_dev, state.st_ino))
    return frozenset(identities)


class PathResolver:
    """Resolves one path. A context manager, which closes the folders that it opened."""

    def __init__(self, roots: WorkspaceRoots, path: str) -> None:
        self._roots = roots
        self._path = path
        self._hidden = hidden_identities(roots)
        self._root: PathParts = ()
        self._names: list[str] = []
        self._folders: list[int] = []
        self._links = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def resolve(self, *, make_folders: bool = False) -> ResolvedPath:
        """Follow the path to its end; `make_folders` creates missing folders."""
        todo = self._begin(self._path)
        while todo:
            step = todo.pop()
            if step == "..":
                self._leave()
                continue
            self._check_hidden((*self._parts, step))
            state = self._state(step)
            if state is None and todo and make_folders:
                self._make(step)
            elif state is None:
                return self._missing(step, todo)
            elif stat.S_ISLNK(state.st_mode):
                todo = self._follow(step, todo)
                continue
            elif not todo:
                return self._spot((*self._parts, step), self._folders[-1], step, state)
            self._enter(step)
        return self._spot(self._parts, self._folders[-1], ".", os.fstat(self._folders[-1]))

    def _spot(
        self, parts: PathParts, folder: int | None, name: str, state: os.stat_result | None
    ) -> ResolvedPath:
        return ResolvedPath(parts, folder, name, state, is_linked=self._links > 0)

    @property
    def _parts(self) -> PathParts:
        return (*self._root, *self._names)

    def _begin(self, path: str) -> list[str]:
        place = self._roots.place(path)
        self._close()
        self._root, self._names = place.root, []
        self._folders.append(open_absolute(absolute_path(place.root), OPEN_FOLDER))
        return place.steps[::-1]

    def _leave(self) -> None:
        """Go up the folders that we opened: the system's `..` would lead out of a folder that was
        moved."""
        if not self._names:
            raise OutsideWorkspace(f"{printable_path(self._path)} leads out of the workspace")
        self._names.pop()
        os.close(self._folders.pop())

    def _state(self, step: str) -> os.stat_result | None:
        try:
            state = os.stat(step, dir_fd=self._folders[-1], follow_symlinks=False)
        except FileNotFoundError:
            return None
        if (state.st_dev, state.st_ino) in self._hidden:
            raise self._is_hidden()
        return state

    def _enter(self, step: str) -> None:
        """Open a folder. Raises NotADirectoryError if it is not one, or was replaced by a link."""
        if len(self._folders) > MAX_DEPTH:
            raise FileRefused(f"more than {MAX_DEPTH} folders inside each other")
        try:
            folder = os.open(step, OPEN_FOLDER, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno not in _IS_LINK:
                raise
            raise NotADirectoryError(errno.ENOTDIR, "not a folder") from error
        self._folders.append(folder)
        self._names.append(step)
        state = os.fstat(folder)
        if (state.st_dev, state.st_ino) in self._hidden:
            raise self._is_hidden()

    def _follow(self, step: str, todo: list[str]) -> list[str]:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, "too many links to follow")
        target = os.readlink(step, dir_fd=self._folders[-1])
        if target.startswith("/"):
            return [*todo, *self._begin(target)]
        return [*todo, *(part for part in reversed(target.split("/")) if part not in ("", "."))]

    def _make(self, step: str) -> None:
        folder = self._folders[-1]
        if self._roots.is_read_only(self._parts):
            raise FileRefused(f"{printable_path(self._path)} is in a read-only folder")
        if self._links:
            check_not_guarded(self._roots, (*self._parts, step), self._path)
        WRITTEN_FILES.add(folder, step)
        with suppress(FileExistsError):
            os.mkdir(step, dir_fd=folder)
            chown_like_folder(step, folder)

    def _missing(self, step: str, todo: list[str]) -> ResolvedPath:
        """The path does not exist from here on, so the remaining steps are only compared as
        text."""
        folder = None if todo else self._folders[-1]
        names = [*self._names, step]
        for later in reversed(todo):
            if later != "..":
                names.append(later)
            elif names:
                names.pop()
            else:
                raise OutsideWorkspace(f"{printable_path(self._path)} leads out of the workspace")
            self._check_hidden((*self._root, *names))
        return self._spot((*self._root, *names), folder, step, None)

    def _check_hidden(self, parts: PathParts) -> None:
        if self._roots.is_hidden(parts):
            raise self._is_hidden()

    def _is_hidden(self) -> OutsideWorkspace:
        return OutsideWorkspace(f"{printable_path(self._path)} is not accessible to this session")


def check_not_guarded(roots: WorkspaceRoots, parts: PathParts, path: str) -> None:
    """Raises: FileRefused: the path was reached by a link, and may be changed only under its own
    name."""
    path_text = absolute_path(parts)
    if roots.is_guarded(path_text):
        raise FileRefused(
            f"{printable_path(path)} leads to {printable_path(path_text)}, which is "
            "protected: use that path"
        )


def chown_like_folder(name: str, folder: int) -> None:
    """Root gives a new folder to `owner_of_new`; for other users it is already theirs. By
    descriptor, so that a link put there meanwhile is not given away."""
    if not gives_uids():
        return
    with OpenDescriptor(os.open(name, OPEN_FOLDER, dir_fd=folder)) as descriptor:
        os.fchown(descriptor, *owner_of_new(folder))


@contextmanager
def resolve_path(
    roots: WorkspaceRoots, path: str, *, make_folders: bool = False
) -> Generator[ResolvedPath]:
    """The target of a path; its folder stays open until the end of the block."""
    with ExitStack() as stack:
        stack.enter_context(translate_os_errors(path))
        descent = stack.enter_context(PathResolver(roots, path))
        yield descent.resolve(make_folders=make_folders)


def locate_path(roots: WorkspaceRoots, path: str) -> PurePosixPath:
    with resolve_path(roots, path) as spot:
        return PurePosixPath(absolute_path(spot.parts))


def open_resolved_file(resolved: ResolvedPath) -> int:
    """Open the regular file at a resolved path, without blocking on anything else."""
    if resolved.state is None or resolved.folder is None:
        raise FileNotFoundError(errno.ENOENT, "nothing there")
    check_regular_file(resolved.state)
    descriptor = os.open(resolved.name, OPEN_FILE, dir_fd=resolved.folder)
    try:
        check_regular_file(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def check_regular_file(state: os.stat_result) -> None:
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "not a plain file, but a device, pipe or socket")


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """An entry of a walk. Its folder stays open until the next entry is requested."""

    path: str
    """Relative to the start of the walk."""
    name: str
    folder: int
    state: os.stat_result
    is_closed: bool = False
    """A folder that cannot be entered: no permission, or too deep."""


class TreeWalk(Struct, frozen=True):
    roots: WorkspaceRoots
    hidden: frozenset[tuple[int, int]]
    deepest: int
    skip: Collection[str]

    def below(
        self, folder: int, parts: PathParts, path: str, depth: int = 0
    ) -> Generator[WalkEntry]:
        for name, state in _scan_folder(folder):
            entry_parts = (*parts, name)
            if (state.st_dev, state.st_ino) in self.hidden or self.roots.is_hidden(entry_parts):
                continue
            entry = WalkEntry(f"{path}{name}", name, folder, state)
            if not stat.S_ISDIR(state.st_mode):
                yield entry
                continue
            inner = self._enter(entry) if depth < self.deepest else None
            yield entry if inner is not None else replace(entry, is_closed=True)
            if inner is None:
                continue
            try:
                if name not in self.skip:
                    yield from self.below(inner, entry_parts, f"{entry.path}/", depth + 1)
            finally:
                os.close(inner)

    def _enter(self, entry: WalkEntry) -> int | None:
        """Open a folder if it is still the one that was listed."""
        try:
            inner = os.open(entry.name, OPEN_FOLDER, dir_fd=entry.folder)
        except OSError:
            return None
        with suppress(OSError):  # without search permission, only its names can be read
            if os.path.samestat(os.stat(".", dir_fd=inner), entry.state):
                return inner
        os.close(inner)
        return None


def walk_tree(
    roots: WorkspaceRoots,
    folder: int,
    parts: PathParts,
    *,
    depth: int = MAX_DEPTH,
    skip: Collection[str] = (),
) -> Generator[WalkEntry]:
    """Everything below an open folder, sorted by name, each folder before its content."""
    return TreeWalk(roots, hidden_identities(roots), depth, skip).below(folder, parts, "")


def _scan_folder(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    for entry in entries:
        with suppress(FileNotFoundError):  # removed meanwhile
            yield entry.name, entry.stat(follow_symlinks=False)
