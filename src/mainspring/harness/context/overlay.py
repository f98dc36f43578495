"""How a single block or message is read once a compaction has touched it."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.core.content import (
    Block,
    DocumentBlock,
    ImageBlock,
    PlainTextSource,
    TextBlock,
    plain_text,
)
from mainspring.core.model import Message, ToolResult, User

DROPPED = "[An older result was removed to save space; history_search finds it.]"
NO_MEDIA = "[An image or document stood here; it was removed to save space.]"
BEGAN = " It began: "
_BEGINNING_CHARS = 120


def dropped(result: ToolResult) -> ToolResult:
    """Its place, and its first line: enough to know what it was."""
    first = next(iter(plain_text(result.content).strip().splitlines()), "")
    if first.startswith(DROPPED):
        return result
    began = f"{BEGAN}{first[:_BEGINNING_CHARS]}" if first else ""
    return ToolResult(
        tool_use_id=result.tool_use_id,
        content=(TextBlock(f"{DROPPED}{began}"),),
        is_error=result.is_error,
    )


def cut(result: ToolResult, kept_bytes: int) -> ToolResult:
    """Its beginning and its end, `kept_bytes` together; media stay."""
    text = plain_text(result.content).encode()
    if len(text) <= kept_bytes:
        return result
    half = kept_bytes // 2
    begin = text[:half].decode(errors="ignore")
    end = text[len(text) - half :].decode(errors="ignore")
    note = f"[... {len(text) - 2 * half} bytes left out to save space; history_search finds them]"
    media = tuple(block for block in result.content if is_media(block))
    return ToolResult(
        tool_use_id=result.tool_use_id,
        content=(TextBlock(f"{begin}\n{note}\n{end}"), *media),
        is_error=result.is_error,
    )


def with_results(
    message: Message, ids: frozenset[str], change: Callable[[ToolResult], ToolResult]
) -> Message:
    """The message with the results of these calls changed."""
    if not isinstance(message, User) or not any(
        isinstance(part, ToolResult) and part.tool_use_id in ids for part in message.content
    ):
        return message
    return User(
        tuple(
            change(part) if isinstance(part, ToolResult) and part.tool_use_id in ids else part
            for part in message.content
        )
    )


def is_media(block: Block) -> bool:
    return isinstance(block, ImageBlock) or (
        isinstance(block, DocumentBlock) and not isinstance(block.source, PlainTextSource)
    )


def has_media(message: Message) -> bool:
    return isinstance(message, User) and any(
        any(map(is_media, part.content)) if isinstance(part, ToolResult) else is_media(part)
        for part in message.content
    )


def without_media(message: Message) -> Message:
    if not isinstance(message, User) or not has_media(message):
        return message
    return User(
        tuple(
            ToolResult(
                tool_use_id=part.tool_use_id,
                content=tuple(map(placeholder, part.content)),
                is_error=part.is_error,
            )
            if isinstance(part, ToolResult)
            else placeholder(part)
            for part in message.content
        )
    )


def placeholder(block: Block) -> Block:
    return TextBlock(NO_MEDIA) if is_media(block) else block
