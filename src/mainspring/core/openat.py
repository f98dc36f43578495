"""Paths opened name by name, by descriptors: no link is followed that a session could have made.

Standard library only: processes that have to start quickly import it.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

O_PATH = getattr(os, "O_PATH", os.O_RDONLY)
"""Names a file without opening it; where there is no such flag, reading is the least."""
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = O_PATH | os.O_DIRECTORY
_MAX_LINKS = 40


def identity(state: os.stat_result) -> tuple[int, int]:
    """What a file is known by, under any name."""
    return state.st_dev, state.st_ino


def open_beneath(folder: int, path: str, flags: int = O_PATH) -> int:
    """Open a path below an open folder, through no link and no `..`; the caller closes it.

    Raises:
        OSError: ELOOP or ENOTDIR if a part of it is a link, even one swapped in just now.
    """
    *folders, name = [part for part in path.split("/") if part not in ("", ".")] or ["."]
    opened = os.dup(folder)
    try:
        for part in folders:
            inner = _open_name(opened, part, _FOLDER)
            os.close(opened)
            opened = inner
        return _open_name(opened, name, flags)
    finally:
        os.close(opened)


def open_absolute(path: str, flags: int = O_PATH) -> int:
    """The same from the root of the file system.

    Raises:
        OSError: as `open_beneath`.
    """
    root = os.open("/", _FOLDER | _SAFE)
    try:
        return open_beneath(root, path, flags)
    finally:
        os.close(root)


def real_path(path: str, *, distrusted: Collection[str] = ()) -> str:
    """Where an absolute path leads. Links are followed, except those below `distrusted` folders:
    programs of a session may have made them. Open the result with `open_absolute`.

    Raises:
        OSError: ELOOP for a link that is not followed; ENOENT if something is missing.
    """
    untrusted = {identity(os.stat(each)) for each in distrusted if os.path.isdir(each)}
    todo = path.split("/")[::-1]
    names: list[str] = []
    folders = [os.open("/", _FOLDER | _SAFE)]
    links = 0
    try:
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                _leave(names, folders)
                continue
            target = _entered(names, folders, part, is_last=not any(todo))
            if target is None:
                continue
            links += 1
            if links > _MAX_LINKS or untrusted & {identity(os.fstat(each)) for each in folders}:
                raise OSError(errno.ELOOP, "a link that is not followed", path)
            while target.startswith("/") and names:
                _leave(names, folders)
            todo += target.split("/")[::-1]
        return "/" + "/".join(names)
    finally:
        for each in folders:
            os.close(each)


def _entered(names: list[str], folders: list[int], part: str, *, is_last: bool) -> str | None:
    """One step down; where to go instead if that is a link."""
    state = os.stat(part, dir_fd=folders[-1], follow_symlinks=False)
    if stat.S_ISLNK(state.st_mode):
        return os.readlink(part, dir_fd=folders[-1])
    if stat.S_ISDIR(state.st_mode) or not is_last:
        folders.append(_open_name(folders[-1], part, _FOLDER))
    else:
        folders.append(os.dup(folders[-1]))
    names.append(part)
    return None


def _leave(names: list[str], folders: list[int]) -> None:
    if names:
        names.pop()
        os.close(folders.pop())


def _open_name(folder: int, name: str, flags: int) -> int:
    if name == "..":
        raise OSError(errno.EINVAL, "leads out of the folder", name)
    opened = os.open(name, flags | _SAFE, dir_fd=folder)
    if flags & O_PATH and stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)  # with O_PATH it is the link itself that was opened
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return opened
