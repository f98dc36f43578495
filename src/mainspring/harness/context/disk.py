"""Instruction files on this machine's disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | _SAFE | getattr(os, "O_DIRECTORY", 0)
_FILE = os.O_RDONLY | _SAFE | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK)


class Disk:
    """Reads regular files only: a pipe or a device could hold the reader forever."""

    def __init__(self, is_hidden: Callable[[PurePosixPath], bool] = lambda _: False) -> None:
        """`is_hidden`: what is not to be read, by its real path, whoever imports it."""
        self._is_hidden = is_hidden

    def real(self, path: PurePosixPath) -> PurePosixPath:
        try:
            return PurePosixPath(Path(path).resolve())
        except (OSError, RuntimeError, ValueError):  # links in a circle, names that cannot be
            return path

    def read(self, path: PurePosixPath, max_bytes: int) -> bytes | None:
        if self._is_hidden(path):
            return None
        try:
            return _read(Path(path), max_bytes)
        except ValueError:  # a name that cannot be
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise

    def names(self, folder: PurePosixPath) -> tuple[str, ...]:
        place = Path(folder)
        return tuple(sorted(entry.name for entry in place.iterdir())) if place.is_dir() else ()


def _read(path: Path, max_bytes: int) -> bytes | None:
    """Folder by folder, and over no link: programs of a session may change the tree meanwhile."""
    with ExitStack() as opened:
        file = (
            _open_in_steps(path, opened) if os.open in os.supports_dir_fd else os.open(path, _FILE)
        )
        opened.callback(os.close, file)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        with os.fdopen(file, "rb", closefd=False) as content:
            return content.read(max_bytes)


def _open_in_steps(path: Path, opened: ExitStack) -> int:
    folder = os.open(path.anchor, _FOLDER)
    opened.callback(os.close, folder)
    for name in path.parts[1:-1]:
        folder = os.open(name, _FOLDER, dir_fd=folder)
        opened.callback(os.close, folder)
    return os.open(path.name, _FILE, dir_fd=folder)
