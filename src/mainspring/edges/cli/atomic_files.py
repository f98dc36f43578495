"""Files that commands read and write: replaced atomically, with errors that name the file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mainspring.core.errors import InvalidInput


@contextmanager
def atomic_write(path: Path) -> Generator[IO[bytes], None, None]:
    """A file that takes `path`'s place when all of it is on disk; before that, nothing is there."""
    path = path.resolve()
    if path.exists() and not path.is_file():  # a pipe or a device: to be written, not replaced
        with path.open("wb") as file:
            yield file
        return
    # readable by its owner only: it holds all that was said
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
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
