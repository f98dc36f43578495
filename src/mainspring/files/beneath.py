"""Reads and writes files below a folder that programs may change at the same time: from one
descriptor, and without following links.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_within, regular_file
from mainspring.files.openat import open_beneath
from mainspring.files.written_files import WRITTEN_FILES

UNFINISHED = ".mainspring-new-"
"""The prefix of files whose writer was killed."""
MAX_BYTES = 16_000_000  # of one file of a folder that somebody wrote
_LINKS = (errno.ELOOP, errno.ENOTDIR)
"""The errors of opening a link, or a file instead of a folder."""


@contextmanager
def open_folder(folder: Path) -> Generator[int, None, None]:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield root
    finally:
        os.close(root)


def read_file(root: int, path: str, *, max_bytes: int = MAX_BYTES) -> bytes | None:
    """The content; `None` if there is no such file. Raises: InvalidInput."""
    file = _open_file(root, path)
    return None if file is None else read_within(file, path, max_bytes)


def read_beginning(root: int, path: str, max_bytes: int) -> bytes | None:
    """The first bytes; `None` if there is no such file. Raises: InvalidInput."""
    file = _open_file(root, path)
    if file is None:
        return None
    with file:
        return file.read(max_bytes)


def _open_file(root: int, path: str) -> IO[bytes] | None:
    try:
        descriptor = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise blocked_path_error(path, error) from error
    return regular_file(descriptor, path)


def write_file(root: int, path: str, content: bytes, *, is_synced: bool = False) -> None:
    """Write a file. A crash of the process leaves either the old content or the new; with
    `is_synced`, so does a crash of the machine.

    Raises:
        InvalidInput: a link is in the way.
        OSError: it cannot be written.
    """
    above, _, name = path.rpartition("/")
    try:
        with ensure_folder(root, above) as parent:
            _write(parent, name, content, is_synced=is_synced)
    except OSError as error:
        if error.errno in _LINKS:
            raise blocked_path_error(path, error) from error
        raise


def _write(parent: int, name: str, content: bytes, *, is_synced: bool) -> None:
    new = f"{UNFINISHED}{os.getpid()}-{name}"[:200]
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=parent)  # left by a killed process with the same id
    WRITTEN_FILES.add(parent, new)
    WRITTEN_FILES.add(parent, name, content)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(new, flags, 0o600, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, _mode(parent, name, content))
            if is_synced:
                file.flush()
                os.fsync(descriptor)
        os.replace(new, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=parent)
        raise


def _mode(parent: int, name: str, content: bytes) -> int:
    try:
        return stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0o755 if content.startswith(b"#!") else 0o644


@contextmanager
def ensure_folder(root: int, path: str) -> Generator[int, None, None]:
    """Open a folder; it is created if it does not exist.

    Raises:
        OSError: also if there is a link or a file instead.
    """
    at = os.dup(root)
    try:
        for part in filter(None, path.split("/")):
            WRITTEN_FILES.add(at, part)
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=at)
            inner = open_beneath(at, part, os.O_RDONLY | os.O_DIRECTORY)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


def blocked_path_error(path: str, error: OSError) -> InvalidInput:
    is_link = error.errno in _LINKS
    return InvalidInput(f"{path}: {'a link is in the way' if is_link else error.strerror}")


def remove_file(root: int, path: str) -> None:
    above, _, name = path.rpartition("/")
    with ensure_folder(root, above) as parent, suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)
    while above:  # remove folders that are empty now
        above, _, name = above.rpartition("/")
        with ensure_folder(root, above) as parent:
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError:
                return
