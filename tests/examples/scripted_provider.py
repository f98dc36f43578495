"""A provider on the loopback interface, in the protocol of OpenAI Chat, that plays a script."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from aiohttp import web
from tests.cli.upstream import people_and_model
from tests.providers.loopback import serving, streams
from tests.providers.wire import chat, chat_call

from mainspring.capabilities.providers.script_file import offline_model
from mainspring.core.content import TextBlock
from mainspring.core.model import (
    Assistant,
    Message,
    Reply,
    Request,
    ToolResultBlock,
    ToolUse,
    User,
)


@asynccontextmanager
async def scripted_provider(
    script: Path, on_request: Callable[[int], None]
) -> AsyncGenerator[str, None]:
    """The address; `on_request` gets the number of each request before it is answered."""
    model = offline_model(script.read_text(encoding="utf-8"), name=script.name)
    count = 0

    async def respond(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        on_request(count)
        body = await request.json()
        spoken = people_and_model(body)
        messages = tuple(_message(item) for item in spoken if item["role"] != "system")
        asked = Request(model="m", system=(), tools=(), messages=messages, max_tokens=1000)
        [reply] = [item async for item in model.stream(asked) if isinstance(item, Reply)]
        return await streams(_chunks(reply))(request)

    async with serving() as server:
        server.answers(respond)
        yield f"{server.url}/v1"


def _message(item: dict[str, Any]) -> Message:
    text = _text(item.get("content"))
    match item["role"]:
        case "assistant":
            uses = [
                ToolUse(
                    id=call["id"],
                    name=call["function"]["name"],
                    input=json.loads(call["function"]["arguments"]),
                )
                for call in item.get("tool_calls") or ()
            ]
            return Assistant((*((TextBlock(text),) if text else ()), *uses))
        case "tool":
            result = ToolResultBlock(tool_use_id=item["tool_call_id"], content=(TextBlock(text),))
            return User((result,))
        case _:
            return User((TextBlock(text),))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[dict[str, Any]]", content or [])
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def _chunks(reply: Reply) -> list[bytes]:
    uses = [part for part in reply.content if isinstance(part, ToolUse)]
    texts = [{"content": part.text} for part in reply.content if isinstance(part, TextBlock)]
    made = [
        chat_call(index, f"call_{use.name}_{index}", use.name, json.dumps(use.input))
        for index, use in enumerate(uses)
    ]
    return chat(*texts, *made, finish="tool_calls" if uses else "stop")
