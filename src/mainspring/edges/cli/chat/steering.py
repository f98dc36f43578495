"""Messages that were typed while the agent works: sends them where it reads them soon."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.edges.cli.run.terminal_input import Keyboard

_TAKE_BACK_SECONDS = 2.0
"""How long a message that was typed while a tool runs can be taken back: long enough to press a
key."""


class Steering:
    """Watches the events of a run. What is left in the queue at its end is the next message."""

    def __init__(self, keyboard: Keyboard, send: Callable[[str], Awaitable[None]]) -> None:
        self._keyboard = keyboard
        self._send = send
        self._running_calls: set[str] = set()
        self._lock = anyio.Lock()
        self._has_sent = False

    def is_due(self, event: Event) -> bool:
        """Whether to send now: a tool begins or has ended, and the agent reads what is there with
        its result."""
        match event.payload:
            case events.ToolCallStarted(tool_use_id=id_):
                self._running_calls.add(id_)
            case (
                events.AgentToolResult(tool_use_id=id_)
                | events.AgentMcpToolResult(mcp_tool_use_id=id_)
            ):
                self._running_calls.discard(id_)
            case _:
                return False
        return self._keyboard.loop is not None and self._keyboard.loop.has_queue

    async def send_soon(self) -> None:
        """After a message was typed: if a tool runs, send it a moment later."""
        await anyio.sleep(_TAKE_BACK_SECONDS)
        if self._running_calls:
            await self.send()

    async def send(self) -> None:
        if self._keyboard.loop is None:
            return
        async with self._lock:
            for message in self._keyboard.loop.take_queued():
                self._has_sent = True
                await self._send(message)

    async def end_run(self) -> bool:
        """Whether messages were sent since the last time: the run may have ended before it read
        them."""
        self._running_calls.clear()
        async with self._lock:
            has_sent, self._has_sent = self._has_sent, False
            return has_sent
