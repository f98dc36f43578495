"""Single messages and blocks of a request: their size in bytes, how compaction shortens them,
and whether a list of them is well formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mainspring.core import model
from mainspring.core.content import (
    Block,
    DocumentBlock,
    ImageBlock,
    PlainTextSource,
    TextBlock,
    plain_text,
)
from mainspring.core.model import Assistant, Message, ToolResultBlock, ToolUse, User

# Requests of old logs are rebuilt with these texts, so changing one changes past requests.
DROPPED_RESULT_NOTE = "[An older result was removed to save space; history_search finds it.]"
DROPPED_MEDIA_NOTE = "[An image or document stood here; it was removed to save space.]"
BEGINNING_LABEL = " It began: "
_BEGINNING_CHARS = 120  # of a dropped result, to recognise it


def drop_result(result: ToolResultBlock) -> ToolResultBlock:
    """A reference to the removed result, with its first line."""
    first = next(iter(plain_text(result.content).strip().splitlines()), "")
    if first.startswith(DROPPED_RESULT_NOTE):
        return result
    began = f"{BEGINNING_LABEL}{first[:_BEGINNING_CHARS]}" if first else ""
    return ToolResultBlock(
        tool_use_id=result.tool_use_id,
        content=(TextBlock(f"{DROPPED_RESULT_NOTE}{began}"),),
        is_error=result.is_error,
    )


def cut_result(result: ToolResultBlock, kept_bytes: int) -> ToolResultBlock:
    """Its beginning and end, `kept_bytes` in total; media stay."""
    text = plain_text(result.content).encode()
    if len(text) <= kept_bytes:
        return result
    half = kept_bytes // 2
    begin = text[:half].decode(errors="ignore")
    end = text[len(text) - half :].decode(errors="ignore")
    note = f"[... {len(text) - 2 * half} bytes left out to save space; history_search finds them]"
    media = tuple(block for block in result.content if is_media(block))
    return ToolResultBlock(
        tool_use_id=result.tool_use_id,
        content=(TextBlock(f"{begin}\n{note}\n{end}"), *media),
        is_error=result.is_error,
    )


def with_results(
    message: Message, ids: frozenset[str], change: Callable[[ToolResultBlock], ToolResultBlock]
) -> Message:
    """The message with changed results of these calls."""
    if not isinstance(message, User) or not any(
        isinstance(part, ToolResultBlock) and part.tool_use_id in ids for part in message.content
    ):
        return message
    return User(
        tuple(
            change(part) if isinstance(part, ToolResultBlock) and part.tool_use_id in ids else part
            for part in message.content
        )
    )


def is_media(block: Block) -> bool:
    return isinstance(block, ImageBlock) or (
        isinstance(block, DocumentBlock) and not isinstance(block.source, PlainTextSource)
    )


def has_media(message: Message) -> bool:
    return isinstance(message, User) and any(
        any(map(is_media, part.content)) if isinstance(part, ToolResultBlock) else is_media(part)
        for part in message.content
    )


def without_media(message: Message) -> Message:
    if not isinstance(message, User) or not has_media(message):
        return message
    return User(
        tuple(
            ToolResultBlock(
                tool_use_id=part.tool_use_id,
                content=tuple(map(media_placeholder, part.content)),
                is_error=part.is_error,
            )
            if isinstance(part, ToolResultBlock)
            else media_placeholder(part)
            for part in message.content
        )
    )


def media_placeholder(block: Block) -> Block:
    return TextBlock(DROPPED_MEDIA_NOTE) if is_media(block) else block


def message_order_error(messages: Sequence[Message]) -> str | None:
    """An error in a list of messages: the order of roles, or a call without exactly one result."""
    if not messages or not isinstance(messages[0], User):
        return "the first message is not the user's"
    for index, message in enumerate(messages):
        if not message.content:
            return f"message {index} is empty"
        before = messages[index - 1] if index else None
        if before is not None and isinstance(before, User) == isinstance(message, User):
            return f"messages {index - 1} and {index} are of the same role"
        if isinstance(message, User) and (wrong := _result_error(before, message)):
            return f"message {index}: {wrong}"
    if any(isinstance(part, ToolUse) for part in messages[-1].content):
        return "the last message has calls without results"
    return None


def _result_error(before: Message | None, message: User) -> str | None:
    call_ids = [
        part.id
        for part in (before.content if isinstance(before, Assistant) else ())
        if isinstance(part, ToolUse)
    ]
    answered = [part.tool_use_id for part in message.content if isinstance(part, ToolResultBlock)]
    if call_ids != answered:
        return f"calls {call_ids} have the results {answered}"
    if any(not isinstance(part, ToolResultBlock) for part in message.content[: len(answered)]):
        return "results do not come first"
    return None


def missing_pins(pinned: Iterable[Block], messages: Sequence[Message]) -> list[Block]:
    """Pinned blocks that are not in the messages byte for byte."""
    present_texts = {
        part
        for message in messages
        if isinstance(message, User)
        for part in message.content
        if not isinstance(part, ToolResultBlock)
    }
    return [block for block in pinned if block not in present_texts]


_MEDIA_BYTES = 6_000
"""The estimated size of an image or a document, about 1,600 tokens."""
_FRAME_BYTES = 24
"""The overhead of a block beside its text."""


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
            case model.ToolResultBlock(content=content):
                total += result_bytes(content)
            case model.ToolUse(name=name, input=args):
                total += len(name) + len(str(args).encode()) + _FRAME_BYTES
            case model.Thinking(text=text):
                total += len(text.encode()) + _FRAME_BYTES
            case _:
                total += block_bytes(part)
    return total
