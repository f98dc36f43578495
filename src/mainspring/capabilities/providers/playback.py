"""A reply that is known already, told in deltas as if it were just being made."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mainspring.core.content import TextBlock
from mainspring.core.model import (
    Delta,
    Reply,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolInputDelta,
    ToolUse,
    ToolUseReady,
)


def deltas_of(reply: Reply, *, chunk_chars: int = 24) -> Iterator[Delta]:
    for block in reply.content:
        match block:
            case TextBlock(text=text):
                yield from map(TextDelta, _cut(text, chunk_chars))
            case Thinking(text=text):
                yield from map(ThinkingDelta, _cut(text, chunk_chars))
            case ToolUse(id=id_, name=name):
                yield ToolInputDelta(id=id_, name=name, json="")
                written = block.invalid_json
                if written is None:
                    written = msgspec.json.encode(block.input).decode()
                for piece in _cut(written, chunk_chars):
                    yield ToolInputDelta(id=id_, name=name, json=piece)
                if block.invalid_json is None:
                    yield ToolUseReady(block)


def _cut(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))
