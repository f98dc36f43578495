"""A program in its own sandbox; the harness talks to it over its standard input and output."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from anyio import CancelScope

from mainspring.capabilities.sandbox.keeper_process.keeper_connection import KeeperConnection
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ExecRequest

_PIECE = 1 << 16  # bytes read at once, the size of a pipe
# To close the connection and end the sandbox of a server; then the rest is left behind.
_CLOSE_SECONDS = 15.0
_MAX_ERROR_CHARS = 4_000  # of what a failed program wrote; the cause is at its end


class SandboxedProgram:
    """An `AttachedProgram`. It and its sandbox end with the process that attached it."""

    def __init__(
        self,
        sandbox: KeeperSandbox,
        request: ExecRequest,
        connection: KeeperConnection,
        descriptors: tuple[int, int],
        on_end: Callable[[], None],
    ) -> None:
        self._sandbox = sandbox
        self._key = request.key
        self._connection = connection
        self._input, self._output = descriptors
        self._on_end = on_end
        self._is_closed = False

    async def send(self, data: bytes) -> None:
        remainder = memoryview(data)
        while remainder:
            if self._is_closed:
                raise OSError("closed")
            try:
                remainder = remainder[os.write(self._input, remainder) :]
            except BlockingIOError:
                await self._wait(anyio.wait_writable, self._input)

    async def receive(self) -> bytes:
        while not self._is_closed:
            try:
                return os.read(self._output, _PIECE)
            except BlockingIOError:
                await self._wait(anyio.wait_readable, self._output)
        return b""

    async def error_output(self) -> str:
        with suppress(SandboxFailed):
            if (progress := await self._sandbox.progress(self._key)) is not None:
                stderr = progress.result.stderr
                text = (stderr.head + stderr.tail).decode("utf-8", "replace")
                return text[-_MAX_ERROR_CHARS:].strip()
        return ""

    async def aclose(self) -> None:
        """Kill the program and its sandbox."""
        if self._is_closed:
            return
        self._is_closed = True
        for descriptor in (self._input, self._output):
            anyio.notify_closing(descriptor)
            os.close(descriptor)
        with CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS):
            try:
                await self._connection.aclose()
                await self._sandbox.close()
            finally:
                self._on_end()
            await self._sandbox.forget(self._key)

    async def _wait(self, ready: Callable[[int], Awaitable[None]], descriptor: int) -> None:
        with suppress(anyio.ClosedResourceError):
            await ready(descriptor)


async def attach_program(
    sandbox: KeeperSandbox, request: ExecRequest, on_end: Callable[[], None] = lambda: None
) -> SandboxedProgram:
    """Start a program in a sandbox that runs nothing else. `on_end` is called when neither runs any
    more, also if the program was not started.

    Raises:
        SandboxFailed: it was not started.
    """
    their_input, our_input = os.pipe()
    our_output, their_output = os.pipe()
    try:
        connection = await sandbox.attach(request, [their_input, their_output])
    except BaseException:
        os.close(our_input)
        os.close(our_output)
        with CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS):
            await sandbox.close()
        on_end()
        raise
    finally:
        os.close(their_input)
        os.close(their_output)
    for descriptor in (our_input, our_output):
        os.set_blocking(descriptor, False)
    return SandboxedProgram(sandbox, request, connection, (our_input, our_output), on_end)
