"""The protocol of MCP transports, and how requests of a server are answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from anyio import CancelScope
from anyio.abc import TaskGroup

from mainspring.capabilities.mcp.protocol.messages import (
    CancelledParams,
    McpRequest,
    Message,
    RequestId,
    decode_result,
)
from mainspring.core.errors import McpFailed

MAX_MESSAGE_BYTES = 16 << 20  # of one message: about twice an image of 5 MB in base64
MAX_UNSOLICITED = 100_000
"""The limit of messages other than responses; a server that sends more is out of control."""
PARTING_SECONDS = 2.0  # for a server to end by itself before its connection is cut
_MAX_ANSWERS = 64
"""The limit of a server's requests in progress."""


class Listener(Protocol):
    """Receives messages that a server sends on its own."""

    def notified(self, message: Message) -> None: ...

    async def answer(self, message: Message) -> bytes:
        """The response to a server's own request."""
        ...


class Transport(Protocol):
    """Transports messages to one server and back. It limits their size, the client their time."""

    listener: Listener | None

    @property
    def mirrors_params(self) -> bool:
        """Whether tool parameters are also sent in headers."""
        ...

    @property
    def end(self) -> str | None:
        """Why it cannot be used any more; `None` while it can."""
        ...

    async def run(self) -> None:
        """Receive messages from the server; must run while the transport is used."""
        ...

    async def exchange(self, request: McpRequest) -> Message:
        """Send a request and wait for its response; cancelling it cancels the request.

        Raises:
            McpFailed: there is none; `code` is 0 if the server refused the request as such.
        """
        ...

    async def notify(self, message: bytes) -> None: ...

    async def aclose(self) -> None: ...


class AnswerTasks:
    """Answers a server's requests, each in its own task: a person may take hours to answer."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._scopes: dict[RequestId, CancelScope] = {}

    def handle(self, message: Message, listener: Listener, group: TaskGroup) -> None:
        """Handle a message that is not a response.

        Raises:
            McpFailed: the server has too many requests at a time.
        """
        if message.id is None:
            if message.method == "notifications/cancelled":
                self._withdraw(message)
            return listener.notified(message)
        if message.id in self._scopes:
            return None  # a duplicate
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
            return  # the server is gone; pending requests fail
        finally:
            del self._scopes[id_]
