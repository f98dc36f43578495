"""Small files that people keep: read within bounds, written whole or not at all."""

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
"""Waits for nobody: a pipe may have been put in a file's place."""


def read_bounded(file: Path, *, max_bytes: int = MAX_BYTES) -> bytes | None:
    """A small file's content; `None` if it is not there.

    Raises:
        InvalidInput: it cannot be read, or is no file, or too long.
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
    """Readable by its owner only; the old content or the new one, whatever happens meanwhile.

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
