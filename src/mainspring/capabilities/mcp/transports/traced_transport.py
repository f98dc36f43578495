"""A transport that shows every message, for debugging a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from mainspring.capabilities.mcp.protocol.messages import McpRequest, Message
from mainspring.capabilities.mcp.protocol.transport import Listener, Transport

Trace: TypeAlias = Callable[[Literal["sent", "received"], bytes], None]


class TracedTransport:
    """A `Transport`, and the `Listener` of the inner one."""

    def __init__(self, inner: Transport, trace: Trace) -> None:
        self.listener: Listener | None = None
        self._inner = inner
        self._trace = trace
        inner.listener = self

    @property
    def mirrors_params(self) -> bool:
        return self._inner.mirrors_params

    @property
    def end(self) -> str | None:
        return self._inner.end

    async def run(self) -> None:
        await self._inner.run()

    async def exchange(self, request: McpRequest) -> Message:
        self._trace("sent", request.encode())
        response = await self._inner.exchange(request)
        self._trace("received", _encode(response))
        return response

    async def notify(self, message: bytes) -> None:
        self._trace("sent", message)
        await self._inner.notify(message)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def notified(self, message: Message) -> None:
        self._trace("received", _encode(message))
        if self.listener is not None:
            self.listener.notified(message)

    async def answer(self, message: Message) -> bytes:
        self._trace("received", _encode(message))
        assert self.listener is not None
        answer = await self.listener.answer(message)
        self._trace("sent", answer)
        return answer


def _encode(message: Message) -> bytes:
    return b'{"jsonrpc":"2.0",' + msgspec.json.encode(message)[1:]
