"""Encodes requests for the Messages API.

The encoding is stable: the same request gives the same bytes, and the bytes of a longer
conversation extend those of a shorter one, except for the cache markers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from mainspring.capabilities.providers.content_blocks import (
    REDACTED,
    resolve_source,
    to_text_or_media,
    unseal_signature,
)
from mainspring.capabilities.providers.quirks import Quirks, output_limit, supported_effort
from mainspring.capabilities.providers.tool_calls import valid_id
from mainspring.core.content import (
    Block,
    DocumentBlock,
    ImageBlock,
    RedactedBlock,
    SearchResultBlock,
    TextBlock,
)
from mainspring.core.errors import InvalidInput
from mainspring.core.model import Effort, Message, Request, Thinking, ToolResultBlock, ToolUse, User

Json: TypeAlias = dict[str, object]

THINKING = "anthropic"
REDACTED_THINKING = "anthropic-redacted"
MAX_BREAKPOINTS = 4  # the API's limit of cache breakpoints

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MIN_BUDGET = 1024  # the API's least budget for thinking, in tokens
_BUDGETS: Mapping[Effort, int] = {
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 65536,
}


def encode(request: Request, quirks: Quirks) -> bytes:
    """The request's JSON; tools, system and messages come first, in the order they are cached.

    Raises:
        InvalidInput: a source that was not loaded, or a breakpoint that is not a message.
    """
    body: Json = {"model": request.model, **prompt(request, quirks, breakpoints(request, quirks))}
    body["max_tokens"] = output_limit(request, quirks)
    body["stream"] = request.stream
    body |= _thinking(request, quirks)
    return msgspec.json.encode(body)


def prompt(request: Request, quirks: Quirks, marked: Iterable[int] | None) -> Json:
    """Everything the model reads; `marked` messages end with a breakpoint, None marks nothing."""
    marker = _marker(quirks) if marked is not None else None
    parts: Json = {}
    if request.tools:
        tools: list[Json] = [msgspec.to_builtins(tool) for tool in request.tools]
        parts["tools"] = _with_cache_marker(tools, marker)
    if system := [_text(part) for part in request.system if part.strip()]:
        static = 1 if request.system[0].strip() else 0
        parts["system"] = [*_with_cache_marker(system[:static], marker), *system[static:]]
    marks = frozenset(marked or ())
    parts["messages"] = [
        {"role": "user" if isinstance(message, User) else "assistant", "content": content}
        for index, message in enumerate(request.messages)
        if (content := _content(message, quirks, marker if index in marks else None))
    ]
    return parts


def breakpoints(request: Request, quirks: Quirks) -> tuple[int, ...] | None:
    """The messages to mark: the newest ones, if there are more than the API accepts."""
    for index in request.cache_messages:
        if not 0 <= index < len(request.messages):
            raise InvalidInput(f"no message {index} to cache: there are {len(request.messages)}")
    if not quirks.supports_cache_control:
        return None
    has_static = bool(request.system and request.system[0].strip())
    room = MAX_BREAKPOINTS - bool(request.tools) - has_static
    return tuple(sorted(set(request.cache_messages))[-room:])


def _marker(quirks: Quirks) -> Json:
    marker: Json = {"type": "ephemeral"}
    return marker | ({"ttl": "1h"} if quirks.cache_ttl == "1h" else {})


def _with_cache_marker(blocks: Sequence[Json], marker: Json | None) -> list[Json]:
    """The blocks, with a marker on the last one that may have it."""
    if marker is None:
        return list(blocks)
    for index in reversed(range(len(blocks))):
        if blocks[index].get("type") not in ("thinking", "redacted_thinking"):
            marked = blocks[index] | {"cache_control": marker}
            return [*blocks[:index], marked, *blocks[index + 1 :]]
    return list(blocks)


def _content(message: Message, quirks: Quirks, marker: Json | None) -> list[Json]:
    if isinstance(message, User):
        user_blocks = [_user_block(block, quirks) for block in message.content]
        return _with_cache_marker([block for block in user_blocks if block], marker)
    blocks = [_assistant_block(block, quirks) for block in message.content]
    return _with_cache_marker([block for block in blocks if block], marker)


def _assistant_block(block: TextBlock | Thinking | ToolUse, quirks: Quirks) -> Json | None:
    match block:
        case TextBlock(text=text):
            return _text(text) if text.strip() else None
        case ToolUse():
            return {
                "type": "tool_use",
                "id": valid_id(block.id, pattern=_ID),
                "name": block.name,
                "input": block.input,
            }
        case Thinking(text=text, signature=signature):
            if quirks.thinking == "none":
                return None
            if (data := unseal_signature(REDACTED_THINKING, signature)) is not None:
                return {"type": "redacted_thinking", "data": data}
            if (signed := unseal_signature(THINKING, signature)) is not None:
                return {"type": "thinking", "thinking": text, "signature": signed}
            return None  # thinking of another provider


def _user_block(block: Block | ToolResultBlock, quirks: Quirks) -> Json | None:
    match block:
        case ToolResultBlock():
            parts = [_user_block(part, quirks) for part in block.content]
            result: Json = {
                "type": "tool_result",
                "tool_use_id": valid_id(block.tool_use_id, pattern=_ID),
                "content": [part for part in parts if part],
            }
            return result | ({"is_error": True} if block.is_error else {})
        case SearchResultBlock():
            return msgspec.to_builtins(block)
        case RedactedBlock():
            return _text(REDACTED)
        case ImageBlock() | DocumentBlock():
            return _media(block, quirks)
        case _:
            text = to_text_or_media(block, quirks)
            return _text(text) if isinstance(text, str) and text.strip() else None


def _media(block: ImageBlock | DocumentBlock, quirks: Quirks) -> Json:
    source = resolve_source(block.source)
    if isinstance(sent_as := to_text_or_media(block, quirks), str) and isinstance(
        block, ImageBlock
    ):
        return _text(sent_as)
    media: Json = {"type": "image" if isinstance(block, ImageBlock) else "document"}
    media["source"] = msgspec.to_builtins(source)
    if isinstance(block, DocumentBlock):
        media |= {"title": block.title} if block.title else {}
        media |= {"context": block.context} if block.context else {}
    return media


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _thinking(request: Request, quirks: Quirks) -> Json:
    fields: Json = {}
    if effort := supported_effort(request.effort, quirks):
        fields["output_config"] = {"effort": effort}
    if thinking := _thinking_config(request, quirks):
        fields["thinking"] = thinking
    return fields


def _thinking_config(request: Request, quirks: Quirks) -> Json | None:
    if quirks.thinking == "none":
        return None
    if request.effort == "none":
        return {"type": "disabled"} if quirks.can_disable_thinking else None
    display: Json = {"display": quirks.thinking_display} if quirks.thinking_display else {}
    if quirks.thinking == "adaptive":
        return {"type": "adaptive"} | display
    limit = output_limit(request, quirks)
    budget = min(_BUDGETS[request.effort], limit * 3 // 4)  # thinking counts as output
    if budget < _MIN_BUDGET:
        return None
    return {"type": "enabled", "budget_tokens": budget} | display
