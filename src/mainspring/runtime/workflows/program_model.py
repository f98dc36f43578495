"""The model of a node that is a program: it makes the one call that the session was started for and
then stops. Its answer depends on the request alone, so a killed session continues where it was."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from mainspring.core.content import TextBlock
from mainspring.core.events import Usage
from mainspring.core.model import Delta, Reply, Request, ToolResultBlock, ToolUse, User

NAME = "scripted:workflow-program"
"""Scripted models are free and need no key."""
TOOL = "bash"
_NOTHING = Usage(
    input_tokens=0,
    cache_creation_input_tokens=0,
    cache_read_input_tokens=0,
    output_tokens=0,
)


class ProgramModel:
    """A `Model`. The session's message is the JSON input of the call."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        users = [message for message in request.messages if isinstance(message, User)]
        has_result = any(
            isinstance(block, ToolResultBlock) for message in users for block in message.content
        )
        if has_result:
            yield Reply(
                content=(TextBlock("The program has ended."),),
                usage=_NOTHING,
                reason="end_turn",
                model=NAME,
            )
            return
        text = next(
            block.text
            for message in users
            for block in message.content
            if isinstance(block, TextBlock) and block.text.startswith("{")
        )
        call = ToolUse(
            id=f"toolu_{request.request_id[-24:]}",
            name=TOOL,
            input=msgspec.json.decode(text, type=dict[str, object]),
        )
        yield Reply(content=(call,), usage=_NOTHING, reason="tool_use", model=NAME)
