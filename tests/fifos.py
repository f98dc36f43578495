"""Named pipes that tests wait at, opened without blocking: a thread that is stuck in `open` could
not be cancelled, and would keep the whole run from ending."""

import errno
import os
from io import FileIO
from pathlib import Path

import anyio

_POLL_SECONDS = 0.01


def open_fifo(path: Path) -> FileIO:
    """Open it for reading: `read` gives None while writers are silent, b"" while there is none."""
    return FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


async def read_fifo(path: Path) -> bytes:
    """Read what the first writers send, until they have all closed it."""
    received = b""
    with anyio.fail_after(60), open_fifo(path) as fifo:
        while (part := fifo.read()) != b"" or not received:
            received += part or b""
            await anyio.sleep(_POLL_SECONDS)
    return received


async def release_fifo(path: Path) -> None:
    """Let the program go on that reads it."""
    with anyio.fail_after(60):
        while True:
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                await anyio.sleep(_POLL_SECONDS)
            else:
                return
