"""MCP over the standard input and output of a program: one JSON message on each line."""

from __future__ import annotations

from collections import deque

from mainspring.capabilities.mcp.transport import MAX_MESSAGE_BYTES
from mainspring.core.errors import McpFailed
from mainspring.core.ports import AttachedProgram


class LineChannel:
    """A `Channel`."""

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
            *lines, rest = piece.split(b"\n")
            if lines:
                self._lines.append(b"".join((*self._tail, lines[0])))
                self._lines.extend(lines[1:])
                self._tail, self._tail_bytes = [], 0
            self._tail.append(rest)
            self._tail_bytes += len(rest)

    async def aclose(self) -> None:
        await self._program.aclose()
