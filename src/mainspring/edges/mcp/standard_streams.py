"""Standard input and output as a stream of MCP messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

import anyio
from anyio import to_thread

_PIECE_BYTES = 64 * 1024  # read at once, the size of a pipe


class StandardStreams:
    """A `LineStream` over two file descriptors."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target

    async def receive(self) -> bytes:
        with suppress(PermissionError):  # a file is always readable, and cannot be waited for
            await anyio.wait_readable(self._source)
        return os.read(self._source, _PIECE_BYTES)

    async def send(self, content: bytes) -> None:
        await to_thread.run_sync(self._write, content)

    def _write(self, content: bytes) -> None:
        unwritten = memoryview(content)
        while unwritten:
            unwritten = unwritten[os.write(self._target, unwritten) :]


@contextmanager
def standard_streams() -> Generator[StandardStreams]:
    """Reserves standard output for the protocol: until the block ends, other output goes to
    standard error."""
    sys.stdout.flush()
    source, target = sys.stdin.fileno(), os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        yield StandardStreams(source, target)
    finally:
        sys.stdout.flush()
        os.dup2(target, sys.stdout.fileno())
        os.close(target)
