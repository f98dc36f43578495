"""The server over a stream of lines, such as standard input and output: one JSON message per
line."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from mainspring.capabilities.mcp.protocol.messages import (
    INVALID_REQUEST,
    Message,
    decode_message,
    encode_refusal,
)
from mainspring.capabilities.mcp.server.connection import McpConnection
from mainspring.capabilities.mcp.server.dispatcher import McpDispatcher
from mainspring.capabilities.mcp.server.listening import notify_legacy
from mainspring.capabilities.mcp.server.refusals import RequestRefused

MAX_REQUEST_BYTES = 4 << 20  # of one line; a longer one is refused


class LineStream(Protocol):
    async def receive(self) -> bytes:
        """The next bytes; empty at the end."""
        ...

    async def send(self, content: bytes) -> None:
        """Send everything. Raises: ConnectionError: the client no longer reads."""
        ...


async def serve_lines(server: McpDispatcher, connection: McpConnection, stream: LineStream) -> None:
    """Answer requests until the client closes its end. Requests in progress are then cancelled."""
    session = _LineServer(server, connection, stream)
    try:
        async with anyio.create_task_group() as group:
            async for line in _lines(stream):
                await session.handle(line, group)
            group.cancel_scope.cancel()
    except* ConnectionError:
        pass  # the client does not read any more


class _LineServer:
    """An `Outlet`, and the handler of incoming lines."""

    def __init__(
        self, server: McpDispatcher, connection: McpConnection, stream: LineStream
    ) -> None:
        self._server = server
        self._connection = connection
        self._stream = stream
        self._sending = anyio.Lock()
        self._sends_changes = False

    async def send(self, message: bytes) -> None:
        async with self._sending:
            with anyio.CancelScope(shield=True):  # a partial line would corrupt the next
                await self._stream.send(message + b"\n")

    async def ask(self, message: bytes) -> None:
        await self.send(message)

    async def handle(self, line: bytes | None, group: TaskGroup) -> None:
        if line is not None and not line.strip():
            return
        message = None if line is None else decode_message(line)
        if message is None:
            why = "not a message of the protocol" if line is not None else "the message is too long"
            await self.send(encode_refusal(None, INVALID_REQUEST, why))
        elif message.is_response:
            self._connection.settle(message)
        elif message.id is not None:
            group.start_soon(self._answer, message)
        elif message.method == "notifications/cancelled":
            self._connection.cancel(message.params)
        elif message.method == "notifications/initialized" and not self._sends_changes:
            self._sends_changes = True
            group.start_soon(notify_legacy, self._connection, self)

    async def _answer(self, message: Message) -> None:
        assert message.id is not None
        try:
            with self._connection.answering(message.id):
                response, _ = await self._server.respond(self._connection, message, self)
                await self.send(response)
        except RequestRefused as error:
            await self.send(encode_refusal(message.id, error.code, str(error)))


async def _lines(stream: LineStream) -> AsyncGenerator[bytes | None, None]:
    """The lines; `None` for one that is too long, the rest of which is skipped."""
    tail, is_too_long = bytearray(), False
    while piece := await stream.receive():
        *lines, unfinished = piece.split(b"\n")
        for line in lines:
            tail += line
            yield None if is_too_long or len(tail) > MAX_REQUEST_BYTES else bytes(tail)
            tail, is_too_long = bytearray(), False
        tail += unfinished
        if len(tail) > MAX_REQUEST_BYTES:
            tail, is_too_long = bytearray(), True
