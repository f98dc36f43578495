"""Files on the host: read within limits, written atomically, errors that name the file."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mainspring.core.errors import InvalidInput
from mainspring.files.openat import OpenDescriptor
from mainspring.files.written_files import WRITTEN_FILES, make_folders

MAX_BYTES = 1_000_000  # of settings and small state, which is read whole
_OPEN = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)


def read_bounded(file: Path, *, max_bytes: int = MAX_BYTES) -> bytes | None:
    """The content of a small file; `None` if it does not exist.

    Raises:
        InvalidInput: it cannot be read, is not a regular file, or is too long.
    """
    with file_errors(str(file)):
        try:
            return read_within(open_regular(file), str(file), max_bytes)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise


def open_regular(file: Path, *, follows_links: bool = True) -> IO[bytes]:
    """Open a file for reading. Never blocks: a pipe may have replaced it.

    Raises:
        InvalidInput: it is not a regular file.
        OSError.
    """
    no_follow = 0 if follows_links else getattr(os, "O_NOFOLLOW", 0)
    return regular_file(os.open(file, _OPEN | no_follow), str(file))


def regular_file(descriptor: int, name: str) -> IO[bytes]:
    """Raises: InvalidInput: it is not a regular file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidInput(f"{name}: not a file")
    return os.fdopen(descriptor, "rb")


def read_within(file: IO[bytes], name: str, max_bytes: int) -> bytes:
    """Read and close a file. Raises: InvalidInput: it is too long."""
    with file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InvalidInput(f"{name}: longer than {max_bytes} bytes")
    return content


def write_atomic(file: Path, content: bytes) -> None:
    """Write a file that only its owner can read. A crash leaves either the old content or the new.

    Raises: InvalidInput.
    """
    with file_errors(str(file)):
        make_folders(file.parent)
        with OpenDescriptor(os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)) as folder:
            WRITTEN_FILES.add(folder, file.name, content)
        with _replacement(file) as new_file:
            new_file.write(content)


@contextmanager
def atomic_write(path: Path) -> Generator[IO[bytes], None, None]:
    """A file that replaces `path` once it is completely on disk. A link is followed; a pipe or a
    device is written to, not replaced."""
    path = path.resolve()
    is_special = path.exists() and not path.is_file()
    with path.open("wb") if is_special else _replacement(path) as file:
        yield file


@contextmanager
def _replacement(path: Path) -> Generator[IO[bytes], None, None]:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    with OpenDescriptor(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)) as folder:
        WRITTEN_FILES.add(folder, os.path.basename(name))
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


@contextmanager
def file_errors(name: str) -> Generator[None, None, None]:
    """Raises: InvalidInput: the file cannot be used, and why."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InvalidInput(f"{name}: {error.strerror or error}") from error
