"""Opens paths name by name with descriptors, so that no link is followed that a session could have
created.

It imports only the standard library, since processes that must start quickly import it.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

O_PATH = getattr(os, "O_PATH", os.O_RDONLY)
"""Refers to a file without opening it; on systems without this flag, opens it for reading."""
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = O_PATH | os.O_DIRECTORY
_MAX_LINKS = 40  # links followed: the kernel's own limit


class OpenDescriptor:
    """Closes a descriptor at the end of a `with` block."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def identity(state: os.stat_result) -> tuple[int, int]:
    """The identity of a file, whatever its name."""
    return state.st_dev, state.st_ino


def open_beneath(folder: int, path: str, flags: int = O_PATH) -> int:
    """Open a path below an open folder, without links and `..`; the caller closes it.

    Raises:
        OSError: ELOOP or ENOTDIR if a part of it is a link, even one created just now.
    """
    *folders, name = [part for part in path.split("/") if part not in ("", ".")] or ["."]
    descriptor = os.dup(folder)
    try:
        for part in folders:
            inner = _open_name(descriptor, part, _FOLDER)
            os.close(descriptor)
            descriptor = inner
        return _open_name(descriptor, name, flags)
    finally:
        os.close(descriptor)


def open_absolute(path: str, flags: int = O_PATH) -> int:
    """The same from the root of the file system.

    Raises:
        OSError: as `open_beneath`.
    """
    with OpenDescriptor(os.open("/", _FOLDER | _SAFE)) as root:
        return open_beneath(root, path, flags)


def real_path(path: str, *, distrusted: Collection[str] = ()) -> str:
    """The target of an absolute path. Links are followed, except below `distrusted` folders, where
    programs of a session may have created them. Open the result with `open_absolute`.

    Raises:
        OSError: ELOOP for a link that is not followed; ENOENT if something is missing.
    """
    untrusted = {identity(os.stat(item)) for item in distrusted if os.path.isdir(item)}
    with OpenDescriptor(os.open("/", _FOLDER | _SAFE)) as root:
        walk = LinkWalk(root, "/", untrusted)
        os.close(walk.open(path))
        return "/" + "/".join(walk.names)


class LinkWalk:
    """Follows a path below an open folder and resolves links, but never leaves the folder."""

    def __init__(
        self, root: int, place: str, untrusted: Collection[tuple[int, int]] = frozenset()
    ) -> None:
        self._root = root
        self._place = [part for part in place.split("/") if part]
        """The path of the root, for links that leave it and come back."""
        self._outside: list[str] | None = None
        """The current path while it is outside of the root; only its names, nothing is opened."""
        self._untrusted = frozenset(untrusted)
        self._folders: list[int] = []
        self._links = 0
        self.names: list[str] = []
        """The path from the root to the file that was opened last, without links."""

    def open(self, path: str) -> int:
        """Open the target of a path below the root; the caller closes it.

        Raises:
            OSError: EXDEV if it leads out; ELOOP for a link in a folder that is not trusted.
        """
        self.names, self._links, self._outside = [], 0, None
        self._folders = [os.dup(self._root)]
        pending = path.split("/")[::-1]
        try:
            while pending:
                part = pending.pop()
                if part == "..":
                    self._leave()
                elif self._outside is not None:
                    self._step_outside(part)
                elif part not in ("", "."):
                    pending += self._enter(part)
            if self._outside is not None:
                raise OSError(errno.EXDEV, "leads out of the folder", path)
            return self._folders.pop()
        finally:
            for folder in self._folders:
                os.close(folder)

    def _enter(self, part: str) -> list[str]:
        """Go down one step; if it is a link, return the parts of its target, reversed."""
        folder = self._folders[-1]
        state = os.stat(part, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISLNK(state.st_mode):
            self._folders.append(_open_name(folder, part, O_PATH | os.O_NONBLOCK))
            self.names.append(part)
            return []
        self._links += 1
        above = {identity(os.fstat(item)) for item in self._folders}
        if self._links > _MAX_LINKS or above & self._untrusted:
            raise OSError(errno.ELOOP, "a link that is not followed", part)
        target = os.readlink(part, dir_fd=folder).split("/")
        if target[0] == "":
            while self.names:
                self._leave()
            self._outside = [] if self._place else None
        return target[::-1]

    def _step_outside(self, part: str) -> None:
        assert self._outside is not None
        self._outside += [] if part in ("", ".") else [part]
        if self._outside == self._place:
            self._outside = None

    def _leave(self) -> None:
        if self._outside is not None:
            del self._outside[-1:]
        elif self.names:
            self.names.pop()
            os.close(self._folders.pop())
        elif self._place:
            self._outside = self._place[:-1]


def _open_name(folder: int, name: str, flags: int) -> int:
    if name == "..":
        raise OSError(errno.EINVAL, "leads out of the folder", name)
    descriptor = os.open(name, flags | _SAFE, dir_fd=folder)
    if flags & O_PATH and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)  # O_PATH opens the link itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return descriptor
