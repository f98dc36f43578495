"""The way from a root to a file, folder by folder, by descriptors. Links are followed here only.

The system never resolves a path of more than one name for us, and never a link: whatever another
process does to the tree meanwhile, each step is taken in a folder that was reached from the root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import TracebackType
from typing import Self

from mainspring.capabilities.workspace.bounds import Bounds, Parts, absolute, shown
from mainspring.core.errors import FileMissing, FileRefused, IsFolder, OutsideWorkspace
from mainspring.core.openat import open_absolute

MAX_DEPTH = 256
_MAX_LINKS = 40

_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
OPEN_FOLDER = os.O_RDONLY | _SAFE | getattr(os, "O_DIRECTORY", 0)
OPEN_FILE = os.O_RDONLY | _SAFE | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE

_IS_LINK = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a path leads: a name in an open folder, and what was there a moment ago."""

    parts: Parts
    folder: int | None
    """`None`: the folder itself is not there."""
    name: str
    state: os.stat_result | None
    is_linked: bool = False
    """There was a link on the way."""


@contextmanager
def told(path: str) -> Generator[None]:
    """The system's errors, in our words and with the path that was asked for."""
    try:
        yield
    except FileNotFoundError:
        raise FileMissing(f"{shown(path)}: there is no such file or folder") from None
    except IsADirectoryError:
        raise IsFolder(f"{shown(path)} is a folder") from None
    except OSError as error:
        raise FileRefused(f"{shown(path)}: {error.strerror}") from error


def identities(bounds: Bounds) -> frozenset[tuple[int, int]]:
    """Device and inode of what is hidden, by which it is known under any name."""
    found: set[tuple[int, int]] = set()
    for parts in bounds.hidden:
        with suppress(OSError):
            state = os.lstat(absolute(parts))
            found.add((state.st_dev, state.st_ino))
    return frozenset(found)


class Descent:
    """One way down. A context manager: what it opened is closed at its end."""

    def __init__(self, bounds: Bounds, path: str) -> None:
        self._bounds = bounds
        self._path = path
        self._hidden = identities(bounds)
        self._root: Parts = ()
        self._names: list[str] = []
        self._folders: list[int] = []
        self._links = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def spot(self, *, make_folders: bool = False) -> Spot:
        """Follow the path to its end, making folders that are missing if that is wanted."""
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
        self, parts: Parts, folder: int | None, name: str, state: os.stat_result | None
    ) -> Spot:
        return Spot(parts, folder, name, state, is_linked=self._links > 0)

    @property
    def _parts(self) -> Parts:
        return (*self._root, *self._names)

    def _begin(self, path: str) -> list[str]:
        place = self._bounds.place(path)
        self._close()
        self._root, self._names = place.root, []
        self._folders.append(open_absolute(absolute(place.root), OPEN_FOLDER))
        return place.steps[::-1]

    def _leave(self) -> None:
        """Up along the way we came: the system's `..` leads out of a folder that was moved."""
        if not self._names:
            raise OutsideWorkspace(f"{shown(self._path)} leads out of the workspace")
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
        """Raises NotADirectoryError when it is none, also one that was swapped for a link."""
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
        if self._bounds.is_read_only(self._parts):
            raise FileRefused(f"{shown(self._path)} is in a folder that is only to be read")
        if self._links:
            check_guarded(self._bounds, (*self._parts, step), self._path)
        with suppress(FileExistsError):
            os.mkdir(step, dir_fd=folder)
            own_like_folder(step, folder)

    def _missing(self, step: str, todo: list[str]) -> Spot:
        """Nothing is there: what follows is only text."""
        folder = None if todo else self._folders[-1]
        names = [*self._names, step]
        for later in reversed(todo):
            if later != "..":
                names.append(later)
            elif names:
                names.pop()
            else:
                raise OutsideWorkspace(f"{shown(self._path)} leads out of the workspace")
            self._check_hidden((*self._root, *names))
        return self._spot((*self._root, *names), folder, step, None)

    def _check_hidden(self, parts: Parts) -> None:
        if self._bounds.is_hidden(parts):
            raise self._is_hidden()

    def _is_hidden(self) -> OutsideWorkspace:
        return OutsideWorkspace(f"{shown(self._path)} is not for this session")


def check_guarded(bounds: Bounds, parts: Parts, path: str) -> None:
    """Raises: FileRefused: it was reached by a link, and is to be changed under its own name."""
    meant = absolute(parts)
    if bounds.is_guarded(meant):
        raise FileRefused(f"{shown(path)} leads to {shown(meant)}, which is protected: name that")


def own_like_folder(name: str, folder: int) -> None:
    """Give a new folder in another to the other's owner, for whom root works; anyone else owns
    what he makes anyway. By descriptor: a file linked there meanwhile is not given away."""
    if os.geteuid() != 0:
        return
    opened = os.open(name, OPEN_FOLDER, dir_fd=folder)
    try:
        owner = os.fstat(folder)
        os.fchown(opened, owner.st_uid, owner.st_gid)
    finally:
        os.close(opened)


@contextmanager
def reached(bounds: Bounds, path: str, *, make_folders: bool = False) -> Generator[Spot]:
    """The spot that a path leads to, open until the end of the block."""
    with ExitStack() as stack:
        stack.enter_context(told(path))
        descent = stack.enter_context(Descent(bounds, path))
        yield descent.spot(make_folders=make_folders)


def located(bounds: Bounds, path: str) -> PurePosixPath:
    with reached(bounds, path) as spot:
        return PurePosixPath(absolute(spot.parts))


def opened_file(spot: Spot) -> int:
    """Open the plain file at a spot; anything else is not even waited for."""
    if spot.state is None or spot.folder is None:
        raise FileNotFoundError(errno.ENOENT, "nothing there")
    check_plain(spot.state)
    found = os.open(spot.name, OPEN_FILE, dir_fd=spot.folder)
    try:
        check_plain(os.fstat(found))
    except OSError:
        os.close(found)
        raise
    return found


def check_plain(state: os.stat_result) -> None:
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "not a plain file, but a device, pipe or socket")
