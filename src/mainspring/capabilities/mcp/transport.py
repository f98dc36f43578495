"""What a transport of MCP messages does, and how it answers what a server asks of the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from anyio import CancelScope
from anyio.abc import TaskGroup

from mainspring.capabilities.mcp.messages import (
    CancelledParams,
    Message,
    Request,
    RequestId,
    decode_result,
)
from mainspring.core.errors import McpFailed

MAX_MESSAGE_BYTES = 16 << 20
MAX_UNASKED = 100_000
"""Messages besides responses; what sends more does not stop by itself."""
PARTING_SECONDS = 2.0
_MAX_ANSWERS = 64
"""Requests of a server that are being answered at a time."""


class Listener(Protocol):
    """Hears what a server says without being asked."""

    def notified(self, message: Message) -> None: ...

    async def answer(self, message: Message) -> bytes:
        """The response to a server's own request."""
        ...


class Transport(Protocol):
    """Carries messages to one server and back. It bounds their size, the client their time."""

    listener: Listener | None

    @property
    def mirrors_params(self) -> bool:
        """Whether parameters of tools travel in headers too."""
        ...

    @property
    def end(self) -> str | None:
        """Why it cannot be used any more."""
        ...

    async def run(self) -> None:
        """Hear the server. It has to go on as long as the transport is used."""
        ...

    async def exchange(self, request: Request) -> Message:
        """Send a request and wait for its response; cancelling it cancels the request.

        Raises:
            McpFailed: there is none; `code` is 0 if the server refused the request as such.
        """
        ...

    async def notify(self, message: bytes) -> None: ...

    async def aclose(self) -> None: ...


class AnswerTasks:
    """Answers a server's own requests, each in a task: a person may take hours for one of them."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._scopes: dict[RequestId, CancelScope] = {}

    def hear(self, message: Message, listener: Listener, group: TaskGroup) -> None:
        """
        Raises:
            McpFailed: the server asks for too much at a time.
        """
        if message.id is None:
            if message.method == "notifications/cancelled":
                self._withdraw(message)
            return listener.notified(message)
        if message.id in self._scopes:
            return None  # asked twice
        if len(self._scopes) >= _MAX_ANSWERS:
            raise McpFailed(f"the server asks for more than {_MAX_ANSWERS} things at a time")
        self._scopes[message.id] = CancelScope()
        group.start_soon(self._answer, message, message.id, listener)
        return None

    def _withdraw(self, message: Message) -> None:
        try:
            cancelled = decode_result(message.params, CancelledParams, "cancelled")
        except McpFailed:
            return
        if scope := self._scopes.get(cancelled.request_id):
            scope.cancel()

    async def _answer(self, message: Message, id_: RequestId, listener: Listener) -> None:
        try:
            with self._scopes[id_]:
                await self._send(await listener.answer(message))
        except McpFailed:
            return  # the server is gone; whoever waits for it is told
        finally:
            del self._scopes[id_]
