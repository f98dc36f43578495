import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers import wire
from tests.providers.loopback import Loopback, says, streams
from tests.providers.test_sse import cut
from tests.providers.wire import asks, collect, response_call, response_text, told

from mainspring.capabilities.providers.adapter import HttpModel
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.openai_responses.client import RESPONSES, ResponseParser
from mainspring.capabilities.providers.openai_responses.request import encode
from mainspring.capabilities.providers.quirks import Quirks
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.capabilities.providers.token_estimate import with_usage
from mainspring.core.content import Base64Source, DocumentBlock, ImageBlock, TextBlock, UrlSource
from mainspring.core.events import Usage
from mainspring.core.model import (
    Assistant,
    Delta,
    Message,
    Reply,
    Request,
    Thinking,
    ToolResultBlock,
    ToolUse,
    ToolUseReady,
    User,
)

PNG = ImageBlock(source=Base64Source(media_type="image/png", data="aGk="))
PDF = DocumentBlock(source=Base64Source(media_type="application/pdf", data="aGk="))
REASONS = Quirks(efforts=("none", "low", "medium", "high", "xhigh"))
ITEMS: list[dict[str, Any]] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [
            {"type": "summary_text", "text": "Hm"},
            {"type": "summary_text", "text": "żółć"},
        ],
        "encrypted_content": "b3BhcXVl",
    },
    response_text("Looking at 🦊."),
    response_call("call_a", "bash", {"command": "ls"}),
    response_call("call_b", "bash", {"command": "pwd"}),
]
RICH = wire.response(
    *ITEMS,
    deltas=[
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Looking "},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "at 🦊."},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"comm'},
        {
            "type": "response.function_call_arguments.delta",
            "output_index": 2,
            "delta": 'and": "ls"}',
        },
    ],
)


def parse(chunks: list[bytes]) -> tuple[list[Delta], Reply]:
    splitter, parser = SseDecoder(), ResponseParser(asks(), "openai")
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    deltas = [delta for event in events for delta in parser.feed(event)]
    assert parser.is_over
    return deltas, with_usage(parser.reply(), asks())


def body(request: Request, quirks: Quirks = REASONS) -> dict[str, Any]:
    return json.loads(encode(request, quirks))


async def test_a_rich_reply_is_parsed_completely_and_in_order(server: Loopback, http: HttpClient):
    server.answers(streams(RICH, headers={"x-request-id": "req_9"}))
    deltas, reply = await collect(HttpModel(http, RESPONSES, key="k", url=server.url))
    calls = [
        ToolUse(id="call_a", name="bash", input={"command": "ls"}),
        ToolUse(id="call_b", name="bash", input={"command": "pwd"}),
    ]
    signature = 'openai:{"id":"rs_1","encrypted_content":"b3BhcXVl"}'
    assert reply == Reply(
        content=(
            Thinking(text="Hm\n\nżółć", signature=signature),
            TextBlock("Looking at 🦊."),
            *calls,
        ),
        usage=Usage(
            input_tokens=112, cache_read_input_tokens=2000, output_tokens=42, thinking_tokens=10
        ),
        reason="tool_use",
        model="m-1-0101",
        provider_request_id="req_9",
    )
    assert told(deltas) == {
        "thinking": "Hm",
        "text": "Looking at 🦊.",
        "call_a": '{"command": "ls"}',
        "call_b": "",
    }
    assert [d for d in deltas if isinstance(d, ToolUseReady)] == [*map(ToolUseReady, calls)]
    assert server.received[0].path == "/responses"


@given(st.lists(st.integers(0, 100_000), max_size=40))
def test_any_chunking_of_the_stream_gives_the_same_reply(places: list[int]):
    stream = b"".join(RICH)
    assert parse(cut(stream, places)) == parse([stream])


async def test_a_complete_response_gives_the_same_reply_as_the_stream(
    server: Loopback, http: HttpClient
):
    server.answers(says(200, wire.response_body(*ITEMS)))
    model = HttpModel(http, RESPONSES, key="k", url=server.url)
    assert await collect(model, asks(stream=False)) == ([], parse(RICH)[1])


@pytest.mark.parametrize("written", ["", '{"command": "l'])
def test_a_truncated_call_is_invalid(written: str):
    cut_off = wire.response(
        response_call("c", "rm", written), incomplete_details={"reason": "max_output_tokens"}
    )
    deltas, reply = parse(cut_off)
    [use] = [block for block in reply.content if isinstance(block, ToolUse)]
    assert (reply.reason, use.invalid_json) == ("max_tokens", written)
    assert not any(isinstance(delta, ToolUseReady) for delta in deltas)


def test_stop_reasons_refusals_and_missing_usage_are_mapped():
    filtered = wire.response(response_text("x"), incomplete_details={"reason": "content_filter"})
    assert parse(filtered)[1].reason == "refusal"
    refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "I can't."}]}
    _, reply = parse(wire.response(refusal, usage=None))
    assert (reply.content, reply.reason) == ((TextBlock("I can't."),), "refusal")
    assert reply.usage_is_estimated
    assert parse(wire.response(response_text("x")))[1].reason == "end_turn"


def test_duplicate_ids_are_made_unique():
    twice = [response_call("c", "a", {}), response_call("c", "b", {})]
    _, reply = parse(wire.response(*twice))
    assert len(set([block.id for block in reply.content if isinstance(block, ToolUse)])) == 2


def test_a_conversation_is_encoded_for_the_responses_api():
    said = Assistant((*parse(RICH)[1].content[:3], Thinking(text="x", signature="anthropic:s")))
    given = User(
        (
            ToolResultBlock(tool_use_id="call_a", content=(TextBlock("done"), PNG)),
            ToolResultBlock(tool_use_id="call_b", content=(TextBlock("no"),), is_error=True),
            TextBlock("go on"),
        )
    )
    url = ImageBlock(source=UrlSource(url="https://x.test/a.png"))
    sent = body(asks(User((TextBlock("look"), url, PDF)), said, given, effort="max"))
    image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}
    assert sent["input"] == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                image | {"image_url": "https://x.test/a.png"},
                {
                    "type": "input_file",
                    "filename": "document.pdf",
                    "file_data": "data:application/pdf;base64,aGk=",
                },
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm\n\nżółć"}],
            "encrypted_content": "b3BhcXVl",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Looking at 🦊.", "annotations": []}],
        },
        {
            "type": "function_call",
            "call_id": "call_a",
            "name": "bash",
            "arguments": '{"command":"ls"}',
        },
        {
            "type": "function_call_output",
            "call_id": "call_a",
            "output": [{"type": "input_text", "text": "done"}, image],
        },
        {"type": "function_call_output", "call_id": "call_b", "output": "Error:\nno"},
        {"role": "user", "content": [{"type": "input_text", "text": "go on"}]},
    ]
    assert sent["reasoning"] == {"effort": "xhigh", "summary": "auto"}
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert (sent["store"], sent["max_output_tokens"]) == (False, 8000)
    assert sent["instructions"] == "You are a test.\n\nToday is Tuesday."


def test_a_model_without_reasoning_gets_no_reasoning_parameters():
    assert not body(asks(effort="high"), Quirks()).keys() & {"reasoning", "include"}


def test_a_longer_conversation_extends_the_bytes_of_the_shorter_one():
    turns: list[Message] = []
    shorter = b""
    for number in range(15):
        turns += [User((TextBlock("q"), PNG)), Assistant((TextBlock(f"a{number}"),))]
        longer = encode(asks(*turns), REASONS)
        assert longer.startswith(shorter)
        shorter = longer[: longer.rindex(b'],"max_output_tokens"')]
