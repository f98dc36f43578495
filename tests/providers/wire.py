"""Answers in the shapes that providers were seen to send, and requests to ask for them."""

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

import anyio
import msgspec
from tests.providers.loopback import event

from mainspring.core.content import TextBlock
from mainspring.core.model import (
    Delta,
    Message,
    Model,
    Reply,
    Request,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolSpec,
    User,
)

BASH = ToolSpec(
    name="bash",
    description="Run a command.",
    input_schema={
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
)


def asks(*messages: Message, **changes: object) -> Request:
    plain = Request(
        model="m-1",
        system=("You are a test.", "Today is Tuesday."),
        tools=(BASH,),
        messages=messages or (User((TextBlock("hello"),)),),
        max_tokens=8000,
        request_id="mreq_1",
    )
    return msgspec.structs.replace(plain, **changes)


async def collect(model: Model, request: Request | None = None) -> tuple[list[Delta], Reply]:
    """All deltas and the one reply, which is last."""
    deltas, reply = await drain(model.stream(request or asks()))
    assert reply is not None
    return deltas, reply


async def drain(stream: AsyncGenerator[Delta | Reply]) -> tuple[list[Delta], Reply | None]:
    deltas: list[Delta] = []
    reply: Reply | None = None
    with anyio.fail_after(60):
        async for part in stream:
            assert reply is None, "something came after the reply"
            if isinstance(part, Reply):
                reply = part
            else:
                deltas.append(part)
    return deltas, reply


def told(deltas: Iterable[Delta]) -> dict[str, str]:
    """What the deltas say, put together: text, thinking, and each call's input by id."""
    whole: dict[str, str] = {}
    for delta in deltas:
        match delta:
            case TextDelta(text=text):
                whole["text"] = whole.get("text", "") + text
            case ThinkingDelta(text=text):
                whole["thinking"] = whole.get("thinking", "") + text
            case ToolInputDelta(id=id_, json=piece):
                whole[id_] = whole.get(id_, "") + piece
            case _:
                pass
    return whole


USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 100,
    "cache_read_input_tokens": 2000,
    "output_tokens": 1,
}


def message(
    *blocks: bytes, stop: str = "end_turn", usage: object = USAGE, out: int = 42
) -> list[bytes]:
    start: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1-20260101",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    start |= {"usage": usage} if usage else {}
    end: dict[str, Any] = {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
    } | ({"usage": {"output_tokens": out}} if usage else {})
    return [
        named({"type": "message_start", "message": start}),
        named({"type": "ping"}),
        *blocks,
        named(end),
        named({"type": "message_stop"}),
    ]


def named(data: dict[str, Any]) -> bytes:
    return event(data, data["type"])


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    events = [{"type": "content_block_start", "index": index, "content_block": start}]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return b"".join(map(named, [*events, {"type": "content_block_stop", "index": index}]))


def text(index: int, *pieces: str) -> bytes:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def thinking(index: int, *pieces: str, signature: str = "c2ln") -> bytes:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    start: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
    return block(index, start, *deltas, {"type": "signature_delta", "signature": signature})


def tool(index: int, id_: str | None, name: str, pieces: Iterable[str]) -> bytes:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    start: dict[str, Any] = {"type": "tool_use", "id": id_, "name": name, "input": {}}
    return block(index, start, *deltas)


CHAT_USAGE = {
    "prompt_tokens": 2112,
    "completion_tokens": 42,
    "total_tokens": 2154,
    "prompt_tokens_details": {"cached_tokens": 2000},
}


def chat(
    *deltas: dict[str, Any], finish: str | None = "stop", usage: object = CHAT_USAGE
) -> list[bytes]:
    chunks = [chat_chunk({"role": "assistant", "content": ""})]
    chunks += [chat_chunk(delta) for delta in deltas]
    chunks += [chat_chunk({}, finish)] if finish else []
    if usage:
        chunks.append(event({"id": "c1", "model": "m-1-0101", "choices": [], "usage": usage}))
    return [*chunks, b"data: [DONE]\n\n"]


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"id": "c1", "model": "m-1-0101", "choices": [choice]})


def chat_call(
    index: int | None, id_: str | None, name: str | None, arguments: object
) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    call: dict[str, Any] = {"type": "function", "function": function}
    call |= {} if index is None else {"index": index}
    return {"tool_calls": [call | ({"id": id_} if id_ is not None else {})]}


def response(
    *items: dict[str, Any], deltas: Sequence[dict[str, Any]] = (), **ending: object
) -> list[bytes]:
    whole = response_body(*items, **ending)
    kind = "response.incomplete" if ending.get("incomplete_details") else "response.completed"
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"status": "queued"}}]
    for index, item in enumerate(items):
        begun: dict[str, Any] = {**item, "arguments": "", "content": [], "summary": []}
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        events += [delta for delta in deltas if delta["output_index"] == index]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": kind, "response": whole})
    return [event(entry, entry["type"]) for entry in events]


def response_body(*items: dict[str, Any], **ending: object) -> dict[str, Any]:
    usage = {
        "input_tokens": 2112,
        "input_tokens_details": {"cached_tokens": 2000},
        "output_tokens": 42,
    }
    body = {"id": "resp_1", "status": "completed", "model": "m-1-0101", "output": list(items)}
    return body | {"usage": usage} | ending


def response_text(words: str) -> dict[str, Any]:
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": words, "annotations": []}],
    }


def response_call(id_: str, name: str, arguments: object) -> dict[str, Any]:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "type": "function_call",
        "id": f"fc_{id_}",
        "call_id": id_,
        "name": name,
        "arguments": written,
    }
