import json
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from hypothesis import given
from hypothesis import strategies as st
from tests.providers import wire
from tests.providers.loopback import Loopback, says, streams
from tests.providers.test_sse import cut
from tests.providers.wire import asks, collect, told

from mainspring.capabilities.providers.adapter import HttpModel
from mainspring.capabilities.providers.anthropic.client import ANTHROPIC, MessageParser
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.capabilities.providers.token_estimate import with_usage
from mainspring.core.content import TextBlock
from mainspring.core.events import Usage
from mainspring.core.model import (
    INVALID_JSON,
    Assistant,
    Delta,
    Reply,
    Thinking,
    ToolUse,
    ToolUseReady,
    User,
)

KEY = "sk-ant-secret"
RICH = wire.message(
    wire.thinking(0, "Hm, ", "żółć…"),
    wire.block(1, {"type": "redacted_thinking", "data": "b3BhcXVl"}),
    wire.text(2, "Looking ", "at 🦊."),
    wire.tool(3, "toolu_1", "bash", ["", '{"comm', 'and": "ls ', "-l 🦊", '"}']),
    wire.tool(4, "toolu_2", "bash", ['{"command": "pwd"}']),
    stop="tool_use",
)


@pytest.fixture
def model(http: HttpClient, server: Loopback) -> HttpModel:
    return HttpModel(http, ANTHROPIC, key=KEY, url=f"{server.url}/v1")


def parse(chunks: list[bytes]) -> tuple[list[Delta], Reply]:
    splitter, parser = SseDecoder(), MessageParser(asks(), "anthropic")
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    deltas = [delta for event in events for delta in parser.feed(event)]
    assert parser.is_over
    return deltas, with_usage(parser.reply(), asks())


def uses(reply: Reply) -> list[ToolUse]:
    return [block for block in reply.content if isinstance(block, ToolUse)]


async def test_a_rich_reply_is_parsed_completely_and_in_order(server: Loopback, model: HttpModel):
    server.answers(streams(RICH, headers={"request-id": "req_9"}))
    deltas, reply = await collect(model)
    calls = [
        ToolUse(id="toolu_1", name="bash", input={"command": "ls -l 🦊"}),
        ToolUse(id="toolu_2", name="bash", input={"command": "pwd"}),
    ]
    assert reply == Reply(
        content=(
            Thinking(text="Hm, żółć…", signature="anthropic:c2ln"),
            Thinking(text="", signature="anthropic-redacted:b3BhcXVl"),
            TextBlock("Looking at 🦊."),
            *calls,
        ),
        usage=Usage(
            input_tokens=12,
            cache_creation_input_tokens=100,
            cache_read_input_tokens=2000,
            output_tokens=42,
            thinking_tokens=7,
        ),
        reason="tool_use",
        model="m-1-20260101",
        provider_request_id="req_9",
    )
    assert told(deltas) == {
        "thinking": "Hm, żółć…",
        "text": "Looking at 🦊.",
        "toolu_1": '{"command": "ls -l 🦊"}',
        "toolu_2": '{"command": "pwd"}',
    }
    assert [d for d in deltas if isinstance(d, ToolUseReady)] == [ToolUseReady(c) for c in calls]


async def test_requests_carry_key_version_and_request_id(server: Loopback, model: HttpModel):
    server.answers(streams(RICH))
    await collect(model)
    [received] = server.received
    assert (received.path, received.headers["x-api-key"]) == ("/v1/messages", KEY)
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert received.headers["x-client-request-id"] == "mreq_1"
    assert received.json["stream"] is True


@given(st.lists(st.integers(0, 100_000), max_size=40))
def test_any_chunking_of_the_stream_gives_the_same_reply(places: list[int]):
    stream = b"".join(RICH)
    assert parse(cut(stream, places)) == parse([stream])


async def test_the_stream_may_arrive_byte_by_byte(server: Loopback, model: HttpModel):
    server.answers(streams(bytes([byte]) for byte in b"".join(RICH)))
    deltas, reply = await collect(model)
    assert (deltas, reply) == parse(RICH)


async def test_the_official_sdk_reads_the_same_from_the_same_bytes(
    server: Loopback, model: HttpModel
):
    server.answers(streams(RICH))
    _, reply = await collect(model)
    async with (
        AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0) as sdk,
        sdk.messages.stream(
            model="m-1", max_tokens=10, messages=[{"role": "user", "content": "hello"}]
        ) as stream,
    ):
        theirs = await stream.get_final_message()
    assert [as_sdk_block(block) for block in reply.content] == [
        block.model_dump(
            include={"type", "text", "thinking", "signature", "data", "id", "name", "input"},
            exclude_none=True,
        )
        for block in theirs.content
    ]
    assert (theirs.stop_reason, theirs.model) == (reply.reason, reply.model)
    counted = {*reply.usage.__struct_fields__} - {"thinking_tokens"}  # which the API does not count
    assert theirs.usage.model_dump(include=counted) == {
        name: getattr(reply.usage, name) for name in counted
    }


def as_sdk_block(block: TextBlock | Thinking | ToolUse) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": text}
        case ToolUse():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        case Thinking(text=text, signature=signature):
            maker, _, payload = (signature or "").partition(":")
            if maker == "anthropic":
                return {"type": "thinking", "thinking": text, "signature": payload}
            return {"type": "redacted_thinking", "data": payload}


async def test_a_complete_response_gives_the_same_reply_as_a_stream(
    server: Loopback, model: HttpModel
):
    _, streamed = parse(RICH)
    body = {
        "type": "message",
        "model": "m-1-20260101",
        "content": [as_sdk_block(block) for block in streamed.content],
        "stop_reason": "tool_use",
        "usage": {**wire.USAGE, "output_tokens": 42},
    }
    server.answers(says(200, body))
    assert await collect(model, asks(stream=False)) == ([], streamed)
    assert server.received[0].json["stream"] is False
    assert await collect(model) == ([], streamed), "a server may ignore that we wanted a stream"


def test_tool_input_in_single_characters_is_assembled():
    given: dict[str, object] = {
        "command": "echo 'żółć' \"quoted\"\n" * 50,
        "n": [1, {"deep": None}],
    }
    deltas, reply = parse(wire.message(wire.tool(0, "t", "bash", json.dumps(given))))
    assert uses(reply) == [ToolUse(id="t", name="bash", input=given)]
    assert told(deltas)["t"] == json.dumps(given)


@pytest.mark.parametrize("written", ['{"command": "l', "[1, 2]", '"text"', "{'a': 1}", "{} {}"])
def test_an_input_that_is_not_a_json_object_is_passed_on_as_written(written: str):
    deltas, reply = parse(wire.message(wire.tool(0, "t", "bash", [written]), stop="tool_use"))
    [use] = uses(reply)
    assert (use.invalid_json, use.input) == (written, {INVALID_JSON: written})
    assert not any(isinstance(delta, ToolUseReady) for delta in deltas)


@pytest.mark.parametrize("written", [[], [""], ["{}"], [" "], ["null"]])
def test_a_call_without_input_has_an_empty_input(written: list[str]):
    deltas, reply = parse(wire.message(wire.tool(0, "t", "now", written), stop="tool_use"))
    assert uses(reply) == [ToolUse(id="t", name="now", input={})]
    assert deltas[-1] == ToolUseReady(ToolUse(id="t", name="now", input={}))


def test_a_call_truncated_before_its_input_is_invalid():
    deltas, reply = parse(wire.message(wire.tool(0, "t", "rm", [""]), stop="max_tokens"))
    assert reply.reason == "max_tokens"
    assert uses(reply)[0].invalid_json == ""
    assert not any(isinstance(delta, ToolUseReady) for delta in deltas)


async def test_missing_or_duplicate_ids_are_made_unique(server: Loopback, model: HttpModel):
    earlier = Assistant((ToolUse(id="same", name="bash", input={}),))
    calls = [
        wire.tool(index, id_, "bash", ["{}"])
        for index, id_ in enumerate(["same", "a", "a", None, ""])
    ]
    server.answers(streams(wire.message(*calls)))
    request = asks(User((TextBlock("x"),)), earlier, User((TextBlock("y"),)))
    _, reply = await collect(model, request)
    ids = [use.id for use in uses(reply)]
    assert ids[1] == "a"
    assert len({"same", *ids}) == 6
    assert (await collect(model, request))[1] == reply, "repair is deterministic"


@pytest.mark.parametrize("usage", [None, {"input_tokens": 0, "output_tokens": 0}])
def test_missing_usage_is_estimated_and_marked(usage: object):
    words = "word " * 400
    _, reply = parse(wire.message(wire.text(0, words), usage=usage, out=0))
    assert reply.usage_is_estimated
    assert reply.usage.output_tokens > 400
    assert reply.usage.input_tokens > 20


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "end_turn"),
        ("stop_sequence", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
        ("something_new", "end_turn"),
    ],
)
def test_every_stop_reason_is_mapped(stop: str, reason: str):
    assert parse(wire.message(wire.text(0, "x"), stop=stop))[1].reason == reason


def test_a_reply_with_calls_has_reason_tool_use():
    _, reply = parse(wire.message(wire.tool(0, "t", "bash", ["{}"]), stop="end_turn"))
    assert reply.reason == "tool_use"


def test_unknown_events_blocks_and_fields_are_ignored():
    strange = [
        wire.named({"type": "applause", "index": 3}),
        wire.block(0, {"type": "hologram", "mesh": [1]}, {"type": "mesh_delta", "mesh": [2]}),
        wire.block(
            1,
            {"type": "text", "text": "hi", "mood": "good"},
            {"type": "citations_delta", "citation": {}},
        ),
    ]
    assert parse(wire.message(*strange))[1].content == (TextBlock("hi"),)
