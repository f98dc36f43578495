"""What a transport of MCP messages does, and what it tells the client."""

from __future__ import annotations

from typing import Protocol

from mainspring.capabilities.mcp.messages import Message, Request

MAX_MESSAGE_BYTES = 16 << 20


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

    async def exchange(self, request: Request) -> Message:
        """Send a request and wait for its response; cancelling it cancels the request.

        Raises:
            McpFailed: there is none; `code` is 0 if the server refused the request as such.
        """
        ...

    async def notify(self, message: bytes) -> None: ...

    async def aclose(self) -> None: ...
