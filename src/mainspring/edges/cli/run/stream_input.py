"""Standard input of `--input-format stream-json`: one JSON object per line, as Claude Code reads
it."""

from __future__ import annotations

import os
import stat
import sys
from typing import TypeAlias

import anyio
import msgspec
from msgspec import Struct, field

from mainspring.core.content import Block, DocumentBlock, ImageBlock, TextBlock
from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.error_table import with_hints

MAX_LINE_BYTES = 64_000_000  # a message with images and documents in it
_CHUNK_BYTES = 65_536  # read at once, the size of a pipe


class InputMessage(Struct, frozen=True, kw_only=True):
    content: str | list[TextBlock | ImageBlock | DocumentBlock]
    role: str = "user"

    def blocks(self) -> tuple[Block, ...]:
        if isinstance(self.content, str):
            return (TextBlock(self.content),)
        return tuple(self.content)


class UserInput(Struct, frozen=True, kw_only=True, tag_field="type", tag="user"):
    """A message of the user."""

    message: InputMessage


class ControlRequest(Struct, frozen=True, kw_only=True, tag_field="type", tag="control_request"):
    """A request of the program that started this process; it expects a response."""

    request_id: str
    request: dict[str, object] = field(default_factory=dict[str, object])

    @property
    def subtype(self) -> str:
        return str(self.request.get("subtype", ""))


class ControlResponse(Struct, frozen=True, kw_only=True, tag_field="type", tag="control_response"):
    """The answer to a request of this process."""

    response: dict[str, object]


InputLine: TypeAlias = UserInput | ControlRequest | ControlResponse
_DECODER = msgspec.json.Decoder(InputLine)


def parse_line(line: bytes, number: int) -> InputLine:
    """Raises: InvalidInput."""
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        hint = 'a message is {"type": "user", "message": {"role": "user", "content": ...}}'
        wrong = InvalidInput(f"line {number} of standard input: {error}")
        raise with_hints(wrong, hint) from error


class StreamInput:
    """Reads lines. The wait for a line can be cancelled, unlike a read in a thread."""

    def __init__(self) -> None:
        self._handle = sys.stdin.fileno()
        self._is_file = stat.S_ISREG(os.fstat(self._handle).st_mode)
        self._rest = b""
        self._is_over = False
        self._number = 0

    async def next(self) -> InputLine | None:
        """The next line that is not empty; `None` at the end.

        Raises: InvalidInput, TooLarge.
        """
        while (line := await self._line()) is not None:
            self._number += 1
            if line.strip():
                return parse_line(line, self._number)
        return None

    async def _line(self) -> bytes | None:
        while b"\n" not in self._rest and not self._is_over:
            if not self._is_file:
                await anyio.wait_readable(self._handle)
            chunk = os.read(self._handle, _CHUNK_BYTES)
            self._is_over = not chunk
            self._rest += chunk
            if len(self._rest) > MAX_LINE_BYTES:
                raise TooLarge(f"a line of standard input has more than {MAX_LINE_BYTES:,} bytes")
        if not self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line
