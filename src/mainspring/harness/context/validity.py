"""Whether messages are what providers take, and whether all that is pinned is among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mainspring.core.content import Block
from mainspring.core.model import Assistant, Message, ToolResult, ToolUse, User


def fault(messages: Sequence[Message]) -> str | None:
    """What is wrong, if anything: order of roles, or a call without its one result after it."""
    if not messages or not isinstance(messages[0], User):
        return "the first message is not the user's"
    for index, message in enumerate(messages):
        if not message.content:
            return f"message {index} is empty"
        before = messages[index - 1] if index else None
        if before is not None and isinstance(before, User) == isinstance(message, User):
            return f"messages {index - 1} and {index} are of the same role"
        if isinstance(message, User) and (wrong := _result_fault(before, message)):
            return f"message {index}: {wrong}"
    if any(isinstance(part, ToolUse) for part in messages[-1].content):
        return "the last message has calls without results"
    return None


def _result_fault(before: Message | None, message: User) -> str | None:
    asked = [
        part.id
        for part in (before.content if isinstance(before, Assistant) else ())
        if isinstance(part, ToolUse)
    ]
    answered = [part.tool_use_id for part in message.content if isinstance(part, ToolResult)]
    if asked != answered:
        return f"calls {asked} have the results {answered}"
    if any(not isinstance(part, ToolResult) for part in message.content[: len(answered)]):
        return "results do not come first"
    return None


def missing(pinned: Iterable[Block], messages: Sequence[Message]) -> list[Block]:
    """Pinned blocks that do not stand in the messages byte for byte."""
    there = {
        part
        for message in messages
        if isinstance(message, User)
        for part in message.content
        if not isinstance(part, ToolResult)
    }
    return [block for block in pinned if block not in there]
