"""MCP over the standard input and output of a program: one JSON message on each line."""

from __future__ import annotations

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from mainspring.capabilities.mcp.messages import (
    Message,
    Request,
    decode_message,
    encode_notification,
)
from mainspring.capabilities.mcp.transport import MAX_MESSAGE_BYTES, Listener
from mainspring.core.errors import McpFailed
from mainspring.core.ports import AttachedProgram

_MAX_UNASKED = 100_000
"""Messages between two requests of ours; what sends more does not stop by itself."""
_MAX_ANSWERS = 64
"""Requests of a server that are being answered at a time."""
_PARTING_SECONDS = 2.0


class _PendingRequest:
    def __init__(self) -> None:
        self.is_done = anyio.Event()
        self.response: Message | None = None


class StdioTransport:
    """A `Transport`. `run` has to be running for anything to be heard."""

    mirrors_params = False

    def __init__(self, program: AttachedProgram, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.listener: Listener | None = None
        self._program = program
        self._max_bytes = max_bytes
        self._pending: dict[int | str, _PendingRequest] = {}
        self._sending = anyio.Lock()
        self._unasked = 0
        self._answers = 0
        self._end: str | None = None
        """Why there is nothing more to be heard."""

    @property
    def end(self) -> str | None:
        return self._end

    async def run(self) -> None:
        """Hear the server until it ends."""
        async with anyio.create_task_group() as group:
            try:
                await self._read(group)
            finally:
                self._close("the server has ended")
                group.cancel_scope.cancel()

    async def exchange(self, request: Request) -> Message:
        if self._end is not None:
            raise McpFailed(self._end)
        self._unasked = 0
        pending = self._pending[request.id] = _PendingRequest()
        try:
            await self._send(request.encode())
            await pending.is_done.wait()
        except anyio.get_cancelled_exc_class():
            if request.method not in ("initialize", "server/discover"):
                await self._cancel(request)
            raise
        finally:
            del self._pending[request.id]
        if pending.response is None:
            raise McpFailed(self._end or "the server has ended", is_in_doubt=True)
        return pending.response

    async def notify(self, message: bytes) -> None:
        await self._send(message)

    async def aclose(self) -> None:
        self._close("the connection was closed")
        with CancelScope(shield=True):
            await self._program.aclose()

    async def _cancel(self, request: Request) -> None:
        params = {"requestId": request.id, "reason": "cancelled"}
        with CancelScope(shield=True), anyio.move_on_after(_PARTING_SECONDS):
            await self._send(encode_notification("notifications/cancelled", params))

    async def _send(self, message: bytes) -> None:
        """A line that was not sent as a whole would spoil the next one."""
        async with self._sending:
            if self._end is not None:
                raise McpFailed(self._end)
            try:
                await self._program.send(message + b"\n")
            except OSError as error:
                self._close("the server does not read any more")
                raise McpFailed("the server does not read any more") from error
            except anyio.get_cancelled_exc_class():
                self._close("the server did not read a request in time")
                raise

    async def _read(self, group: TaskGroup) -> None:
        tail: list[bytes] = []
        size = 0
        while self._end is None and (piece := await self._program.receive()):
            *lines, rest = piece.split(b"\n")
            for line in lines:
                tail.append(line)
                self._hear(b"".join(tail), group)
                tail, size = [], 0
            tail.append(rest)
            size += len(rest)
            if size > self._max_bytes:
                self._close(f"the server sent a message of more than {self._max_bytes:,} bytes")

    def _hear(self, line: bytes, group: TaskGroup) -> None:
        if not line.strip():
            return
        message = decode_message(line)
        if message is not None and message.is_response:
            pending = None if message.id is None else self._pending.get(message.id)
            if pending is not None:
                pending.response = message
                return pending.is_done.set()
        self._unasked += 1
        if self._unasked > _MAX_UNASKED:
            self._close(f"the server sent more than {_MAX_UNASKED:,} messages unasked")
        elif message is None or message.is_response or self.listener is None:
            return
        elif message.id is None:
            self.listener.notified(message)
        elif self._answers >= _MAX_ANSWERS:
            self._close(f"the server asks for more than {_MAX_ANSWERS} things at a time")
        else:
            self._answers += 1
            group.start_soon(self._answer, message, self.listener)

    async def _answer(self, message: Message, listener: Listener) -> None:
        try:
            await self._send(await listener.answer(message))
        except McpFailed:
            return  # the server is gone; whoever waits for it is told
        finally:
            self._answers -= 1

    def _close(self, why: str) -> None:
        self._end = self._end or why
        for pending in self._pending.values():
            pending.is_done.set()
