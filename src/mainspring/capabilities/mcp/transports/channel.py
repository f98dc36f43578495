"""MCP over a channel that carries whole messages in both directions: lines of a program, a
WebSocket, or the two halves of legacy SSE."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from mainspring.capabilities.mcp.protocol.messages import (
    McpRequest,
    Message,
    decode_message,
    encode_notification,
)
from mainspring.capabilities.mcp.protocol.transport import (
    MAX_MESSAGE_BYTES,
    MAX_UNSOLICITED,
    PARTING_SECONDS,
    AnswerTasks,
    Listener,
)
from mainspring.core.errors import McpFailed
from mainspring.core.ports import AttachedProgram


class Channel(Protocol):
    async def send(self, message: bytes) -> None:
        """Send one message.

        Raises:
            OSError: the other side no longer reads.
            McpFailed: the message was not accepted.
        """
        ...

    async def receive(self) -> bytes | None:
        """The next message; `None` at the end.

        Raises:
            McpFailed: no message can be read.
        """
        ...

    async def aclose(self) -> None: ...


class _PendingRequest:
    def __init__(self) -> None:
        self.is_done = anyio.Event()
        self.response: Message | None = None


class ChannelTransport:
    """A `Transport`."""

    mirrors_params = False

    def __init__(self, channel: Channel) -> None:
        self.listener: Listener | None = None
        self._channel = channel
        self._pending: dict[int | str, _PendingRequest] = {}
        self._send_lock = anyio.Lock()
        self._unsolicited = 0
        self._answers = AnswerTasks(self._send)
        self._end: str | None = None
        """Why nothing more will be received."""

    @property
    def end(self) -> str | None:
        return self._end

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            try:
                await self._read(group)
            except McpFailed as error:
                self._close(str(error))
            finally:
                self._close("the server has ended")
                group.cancel_scope.cancel()

    async def exchange(self, request: McpRequest) -> Message:
        if self._end is not None:
            raise McpFailed(self._end)
        self._unsolicited = 0
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
            await self._channel.aclose()

    async def _cancel(self, request: McpRequest) -> None:
        params = {"requestId": request.id, "reason": "cancelled"}
        with CancelScope(shield=True), anyio.move_on_after(PARTING_SECONDS):
            await self._send(encode_notification("notifications/cancelled", params))

    async def _send(self, message: bytes) -> None:
        """Send a whole message: a partial one would corrupt the next."""
        async with self._send_lock:
            if self._end is not None:
                raise McpFailed(self._end)
            try:
                await self._channel.send(message)
            except OSError as error:
                self._close("the server has stopped reading")
                raise McpFailed("the server has stopped reading") from error
            except anyio.get_cancelled_exc_class():
                self._close("the server did not read a request in time")
                raise

    async def _read(self, group: TaskGroup) -> None:
        while self._end is None and (data := await self._channel.receive()) is not None:
            message = decode_message(data)
            if message is not None and message.is_response and self._settle(message):
                continue
            self._unsolicited += 1
            if self._unsolicited > MAX_UNSOLICITED:
                raise McpFailed(
                    f"the server sent more than {MAX_UNSOLICITED:,} unsolicited messages"
                )
            if message is not None and not message.is_response and self.listener is not None:
                self._answers.handle(message, self.listener, group)

    def _settle(self, message: Message) -> bool:
        pending = None if message.id is None else self._pending.get(message.id)
        if pending is None:
            return False
        pending.response = message
        pending.is_done.set()
        return True

    def _close(self, why: str) -> None:
        self._end = self._end or why
        for pending in self._pending.values():
            pending.is_done.set()


class LineChannel:
    """A `Channel` over the input and output of a program: one JSON message on each line."""

    def __init__(self, program: AttachedProgram, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._program = program
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._tail: list[bytes] = []
        """Pieces of an incomplete line."""
        self._tail_bytes = 0

    async def send(self, message: bytes) -> None:
        await self._program.send(message + b"\n")

    async def receive(self) -> bytes | None:
        while True:
            while self._lines:
                if (line := self._lines.popleft()).strip():
                    return line
            if self._tail_bytes > self._max_bytes:
                raise McpFailed(f"the server sent a message of more than {self._max_bytes:,} bytes")
            if not (piece := await self._program.receive()):
                return None
            *lines, tail = piece.split(b"\n")
            if lines:
                self._lines.append(b"".join((*self._tail, lines[0])))
                self._lines.extend(lines[1:])
                self._tail, self._tail_bytes = [], 0
            self._tail.append(tail)
            self._tail_bytes += len(tail)

    async def aclose(self) -> None:
        await self._program.aclose()
