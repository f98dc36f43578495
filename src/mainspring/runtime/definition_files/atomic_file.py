"""Small files: read within limits, written atomically."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from mainspring.core.errors import InvalidInput

MAX_BYTES = 1_000_000
_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""Never blocks: a pipe may have replaced the file."""


def read_bounded(file: Path, *, max_bytes: int = MAX_BYTES) -> bytes | None:
    """The content of a small file; `None` if it does not exist.

    Raises: InvalidInput: it cannot be read, is not a regular file, or is too long.
    """
    try:
        descriptor = os.open(file, _OPEN)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InvalidInput(f"{file}: not a file")
            with open(descriptor, "rb", closefd=False) as opened:
                content = opened.read(max_bytes + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise InvalidInput(f"{file}: {error.strerror or error}") from error
    if len(content) > max_bytes:
        raise InvalidInput(f"{file}: longer than {max_bytes} bytes")
    return content


def write_atomic(file: Path, content: bytes) -> None:
    """Write a file that only its owner can read. A crash leaves either the old content or the new.

    Raises: InvalidInput.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, new = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(new, file)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror or error}") from error
