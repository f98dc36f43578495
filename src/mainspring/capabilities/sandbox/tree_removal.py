"""Remove a folder that programs of a session have filled: however deep it is, whatever its modes.

By descriptors and through no link. A folder in it that its owner cannot enter is made enterable
first. No depth needs a deep call or many open files: one folder is open at a time.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mainspring.core.openat import O_PATH, identity

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMED = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o700


def remove_tree(above: Path, name: str) -> bool:
    """Whether nothing is left of the folder `name` in `above`. A link is not removed."""
    try:
        parent = os.open(above, _FOLDER)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        with suppress(OSError):
            _empty(parent, name)
            os.rmdir(name, dir_fd=parent)
        return not _exists(parent, name)
    finally:
        os.close(parent)


@dataclass(frozen=True, slots=True)
class _Level:
    name: str
    identity: tuple[int, int]
    folders: list[str]
    """In it, and not looked into yet."""


def _empty(parent: int, name: str) -> None:
    """
    Raises:
        OSError: it cannot be opened, or somebody moves folders in it meanwhile.
    """
    current = _open_folder(parent, name)
    try:
        levels = [_level(name, current)]
        while True:
            if levels[-1].folders:
                inner = levels[-1].folders.pop()
                with suppress(OSError):  # what stays is told at the end
                    current = _replace_descriptor(current, _open_folder(current, inner))
                    levels.append(_level(inner, current))
            elif len(levels) == 1:
                return
            else:
                emptied = levels.pop()
                current = _replace_descriptor(current, os.open("..", _FOLDER, dir_fd=current))
                if identity(os.fstat(current)) != levels[-1].identity:
                    raise OSError("it was moved while it was removed")
                with suppress(OSError):
                    os.rmdir(emptied.name, dir_fd=current)
    finally:
        os.close(current)


def _level(name: str, folder: int) -> _Level:
    """A folder, without the files in it."""
    names, folders = list[str](), list[str]()
    with suppress(OSError):
        names = os.listdir(folder)
    for item in names:
        with suppress(OSError):
            if stat.S_ISDIR(os.stat(item, dir_fd=folder, follow_symlinks=False).st_mode):
                folders.append(item)
            else:
                os.unlink(item, dir_fd=folder)
    return _Level(name, identity(os.fstat(folder)), folders)


def _replace_descriptor(old: int, new: int) -> int:
    os.close(old)
    return new


def _open_folder(parent: int, name: str) -> int:
    """A folder, which its owner can enter and change from now on."""
    state = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISDIR(state.st_mode) and state.st_mode & _MODE != _MODE:
        with suppress(OSError):  # another's: whether it can be entered is seen next
            _make_accessible(parent, name)
    return os.open(name, _FOLDER, dir_fd=parent)


def _make_accessible(parent: int, name: str) -> None:
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, _MODE, dir_fd=parent, follow_symlinks=False)
        return
    named = os.open(name, _NAMED, dir_fd=parent)  # Linux: also if it cannot be entered
    try:
        os.chmod(f"/proc/self/fd/{named}", _MODE)
    finally:
        os.close(named)


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
