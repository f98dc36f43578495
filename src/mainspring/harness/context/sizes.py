"""How large a conversation is, in bytes. Estimates of tokens are made from these."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.core import model
from mainspring.core.content import Block, plain_text
from mainspring.core.model import Message
from mainspring.harness.context.overlay import is_media

_MEDIA_BYTES = 6_000
"""What an image or a document counts for: about 1,600 tokens."""
_FRAME_BYTES = 24
"""What a block costs around its text."""


def block_bytes(block: Block) -> int:
    if is_media(block):
        return _MEDIA_BYTES
    return len(plain_text((block,)).encode()) + _FRAME_BYTES


def blocks_bytes(blocks: Iterable[Block]) -> int:
    return sum(map(block_bytes, blocks))


def result_bytes(content: tuple[Block, ...]) -> int:
    return blocks_bytes(content) + _FRAME_BYTES


def message_bytes(message: Message) -> int:
    total = 0
    for part in message.content:
        match part:
            case model.ToolResult(content=content):
                total += result_bytes(content)
            case model.ToolUse(name=name, input=given):
                total += len(name) + len(str(given).encode()) + _FRAME_BYTES
            case model.Thinking(text=text):
                total += len(text.encode()) + _FRAME_BYTES
            case _:
                total += block_bytes(part)
    return total
