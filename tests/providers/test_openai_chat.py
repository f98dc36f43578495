import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers import wire
from tests.providers.loopback import Loopback, event, says, streams
from tests.providers.test_sse import cut
from tests.providers.wire import asks, chat_call, collect, told

from mainspring.capabilities.providers.adapter import HttpModel
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.openai_chat.client import CHAT, ChatParser
from mainspring.capabilities.providers.openai_chat.request import encode
from mainspring.capabilities.providers.quirks import Quirks
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.capabilities.providers.token_estimate import with_usage
from mainspring.core.content import (
    Base64Source,
    BlobSource,
    DocumentBlock,
    ImageBlock,
    PlainTextSource,
    TextBlock,
    UrlSource,
)
from mainspring.core.errors import InvalidInput
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
PDF = DocumentBlock(source=Base64Source(media_type="application/pdf", data="aGk="), title="t.pdf")
RICH = wire.chat(
    {"reasoning_content": "Hm, żółć"},
    {"content": "Looking "},
    {"content": "at 🦊."},
    chat_call(0, "call_a", "bash", ""),
    chat_call(0, None, None, '{"command": '),
    chat_call(0, None, None, '"ls 🦊"}'),
    chat_call(1, "call_b", "bash", '{"command": "pwd"}'),
    finish="tool_calls",
)


def parse(chunks: list[bytes], request: Request | None = None) -> tuple[list[Delta], Reply]:
    splitter, parser = SseDecoder(), ChatParser(request or asks(), "local")
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    deltas = [delta for event in events for delta in parser.feed(event)]
    assert parser.is_complete
    return deltas, with_usage(parser.reply(), request or asks())


def uses(reply: Reply) -> list[ToolUse]:
    return [block for block in reply.content if isinstance(block, ToolUse)]


def body(request: Request, quirks: Quirks | None = None) -> dict[str, Any]:
    return json.loads(encode(request, quirks or Quirks(), "local"))


async def test_a_rich_reply_is_parsed_completely_and_in_order(server: Loopback, http: HttpClient):
    server.answers(streams(RICH, headers={"x-request-id": "req_9"}))
    model = HttpModel(http, CHAT, url=f"{server.url}/v1/", provider="local", key="k")
    deltas, reply = await collect(model)
    calls = [
        ToolUse(id="call_a", name="bash", input={"command": "ls 🦊"}),
        ToolUse(id="call_b", name="bash", input={"command": "pwd"}),
    ]
    assert reply == Reply(
        content=(
            Thinking(text="Hm, żółć", signature="local/reasoning:"),
            TextBlock("Looking at 🦊."),
            *calls,
        ),
        usage=Usage(
            input_tokens=112, cache_read_input_tokens=2000, output_tokens=42, thinking_tokens=8
        ),
        reason="tool_use",
        model="m-1-0101",
        provider_request_id="req_9",
    )
    assert told(deltas)["call_a"] == '{"command": "ls 🦊"}'
    assert deltas[-2:] == [ToolUseReady(call) for call in calls]
    [received] = server.received
    assert (received.path, received.headers["authorization"]) == (
        "/v1/chat/completions",
        "Bearer k",
    )
    assert received.headers["x-client-request-id"] == "mreq_1"


@given(st.lists(st.integers(0, 100_000), max_size=40))
def test_any_chunking_of_the_stream_gives_the_same_reply(places: list[int]):
    stream = b"".join(RICH)
    assert parse(cut(stream, places)) == parse([stream])


async def test_a_complete_response_gives_the_same_reply_as_the_stream(
    server: Loopback, http: HttpClient
):
    calls = [
        {
            "id": "call_a",
            "type": "function",
            "function": {"name": "bash", "arguments": '{"command": "ls 🦊"}'},
        },
        {
            "id": "call_b",
            "type": "function",
            "function": {"name": "bash", "arguments": '{"command": "pwd"}'},
        },
    ]
    said = {"content": "Looking at 🦊.", "reasoning_content": "Hm, żółć", "tool_calls": calls}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls"}
    whole = {"model": "m-1-0101", "choices": [choice], "usage": wire.CHAT_USAGE}
    server.answers(says(200, whole))
    model = HttpModel(http, CHAT, url=server.url, provider="local")
    assert await collect(model, asks(stream=False)) == ([], parse(RICH)[1])
    assert "stream_options" not in server.received[0].json
    assert "authorization" not in server.received[0].headers


@pytest.mark.parametrize(
    "deltas",
    [
        [chat_call(0, "", "a", "{}"), chat_call(0, "", "b", "{}")],  # Ollama: index 0, no ids
        [chat_call(0, "x", "a", "{}"), chat_call(0, "y", "b", "{}")],  # index 0 for all
        [chat_call(None, "x", "a", "{}"), chat_call(None, "x", "b", "{}")],  # no index
        [chat_call(0, "x", "a", "{}"), chat_call(1, "x", "b", "{}")],  # duplicate ids
        [chat_call(0, None, "a", {}), chat_call(1, None, "b", {"n": 1})],  # objects, no ids
    ],
)
def test_calls_of_nonconforming_servers_are_told_apart(deltas: list[dict[str, Any]]):
    _, reply = parse(wire.chat(*deltas))
    assert [use.name for use in uses(reply)] == ["a", "b"]
    assert len({use.id for use in uses(reply)}) == 2
    assert all(use.id for use in uses(reply))
    assert reply.reason == "tool_use", "although the server said stop"


def test_a_repeated_id_and_name_in_every_piece_is_one_call():
    _, reply = parse(wire.chat(*(chat_call(0, "x", "a", piece) for piece in ('{"n"', ": 1}"))))
    assert uses(reply) == [ToolUse(id="x", name="a", input={"n": 1})]


def test_ids_are_unique_in_the_whole_conversation():
    earlier = Assistant((ToolUse(id="call_0", name="a", input={}),))
    request = asks(User((TextBlock("x"),)), earlier, User((TextBlock("y"),)))
    _, reply = parse(wire.chat(chat_call(0, "call_0", "a", "{}")), request)
    assert uses(reply)[0].id != "call_0"


def test_tool_input_in_single_characters_is_assembled():
    given = json.dumps({"text": 'żółć "x" 🦊\n' * 40})
    pieces = [chat_call(0, None, None, letter) for letter in given]
    _, reply = parse(wire.chat(chat_call(0, "c", "write", ""), *pieces))
    assert uses(reply)[0].input == json.loads(given)


def test_a_truncated_input_is_invalid():
    for written in ("", '{"a": '):
        deltas, reply = parse(wire.chat(chat_call(0, "c", "rm", written), finish="length"))
        assert (reply.reason, uses(reply)[0].invalid_json) == ("max_tokens", written)
        assert not any(isinstance(delta, ToolUseReady) for delta in deltas)


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        (None, "end_turn"),
        ("eos", "end_turn"),
    ],
)
def test_every_finish_reason_is_mapped(finish: str | None, reason: str):
    assert parse(wire.chat({"content": "x"}, finish=finish))[1].reason == reason


def test_a_refusal_is_text_and_a_reason():
    _, reply = parse(wire.chat({"refusal": "I can't."}))
    assert (reply.content, reply.reason) == ((TextBlock("I can't."),), "refusal")


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, Usage(input_tokens=10, output_tokens=5)),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 40},
            Usage(input_tokens=10, output_tokens=30),  # reasoning that is only in the total
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 8},
            Usage(input_tokens=2, cache_read_input_tokens=8, output_tokens=5),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
            },
            Usage(
                input_tokens=3,
                cache_read_input_tokens=3,
                cache_creation_input_tokens=4,
                output_tokens=5,
            ),
        ),
        (
            {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": None},
            Usage(input_tokens=3, output_tokens=1),
        ),
    ],
)
def test_usage_is_split_by_price_class(usage: dict[str, Any], counted: Usage):
    _, reply = parse(wire.chat({"content": "x"}, usage=usage))
    assert (reply.usage, reply.usage_is_estimated) == (counted, False)


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 0, "completion_tokens": 0}])
def test_missing_usage_is_estimated_and_marked(usage: object):
    _, reply = parse(wire.chat({"content": "word " * 300}, usage=usage))
    assert reply.usage_is_estimated
    assert reply.usage.output_tokens > 300


def test_gemini_gets_the_signature_of_a_call_back():
    extras = {"google": {"thought_signature": "c2ln"}}
    signed = chat_call(0, "c1", "bash", "{}")
    signed["tool_calls"][0]["extra_content"] = extras
    _, reply = parse(wire.chat(signed, chat_call(1, "c2", "bash", "{}")))
    renamed = tuple(
        ToolUse(id=f"new_{b.id}", name=b.name, input=b.input) if isinstance(b, ToolUse) else b
        for b in reply.content
    )
    said = body(asks(User((TextBlock("q"),)), Assistant(renamed)))["messages"][-1]
    assert [call.get("extra_content") for call in said["tool_calls"]] == [extras, None]
    other = json.loads(encode(asks(Assistant(renamed)), Quirks(), "other"))["messages"][-1]
    assert "extra_content" not in json.dumps(other)


def test_openrouter_gets_its_reasoning_details_back_assembled():
    pieces = [
        {"type": "reasoning.text", "index": 0, "text": "a", "signature": None},
        {"type": "reasoning.text", "index": 0, "text": "b", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
    ]
    deltas = [{"reasoning": "r", "reasoning_details": [piece]} for piece in pieces]
    _, reply = parse(wire.chat(*deltas, {"content": "ok"}))
    said = body(asks(Assistant(reply.content)))["messages"][-1]
    assert said["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
    ]


def test_reasoning_is_sent_back_only_if_the_model_expects_it():
    request = asks(Assistant(parse(RICH)[1].content))
    assert "reasoning_content" not in body(request)["messages"][-1]
    wanting = body(request, Quirks(returns_reasoning=True))["messages"][-1]
    assert wanting["reasoning_content"] == "Hm, żółć"


def test_a_conversation_is_encoded_for_chat_completions():
    sent = body(
        asks(
            User((TextBlock("look"), PNG, PDF)),
            Assistant(
                (
                    Thinking(text="t", signature="anthropic:x"),
                    TextBlock("ok"),
                    ToolUse(id="c1", name="bash", input={"command": "ls"}),
                )
            ),
            User(
                (
                    ToolResultBlock(tool_use_id="c1", content=(TextBlock("done"), PNG)),
                    ToolResultBlock(
                        tool_use_id="c2", content=(TextBlock("no such file"),), is_error=True
                    ),
                    ToolResultBlock(tool_use_id="c3", content=()),
                    TextBlock("go on"),
                    DocumentBlock(source=PlainTextSource(data="notes"), title="N"),
                )
            ),
        )
    )
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    pdf = {"filename": "t.pdf", "file_data": "data:application/pdf;base64,aGk="}
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "bash", "arguments": '{"command":"ls"}'},
    }
    assert sent["messages"] == [
        {"role": "system", "content": "You are a test.\n\nToday is Tuesday."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, image, {"type": "file", "file": pdf}],
        },
        {"role": "assistant", "content": "ok", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error:\nno such file"},
        {"role": "tool", "tool_call_id": "c3", "content": "(no output)"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Output of tool call c1:"},
                image,
                {"type": "text", "text": "go on"},
                {"type": "text", "text": "Document: N\n\nnotes"},
            ],
        },
    ]
    assert (sent["stream_options"], sent["max_tokens"]) == ({"include_usage": True}, 8000)


def test_unsupported_parameters_are_not_sent():
    plain = body(asks(effort="high"), Quirks(supports_stream_usage=False))
    assert plain.keys() == {"model", "tools", "messages", "max_tokens", "stream"}
    quirks = Quirks(efforts=("none", "low", "high"), token_limit_field="max_completion_tokens")
    assert body(asks(effort="max"), quirks)["reasoning_effort"] == "high"
    assert body(asks(effort="none"), quirks)["reasoning_effort"] == "none"
    assert body(asks(), quirks)["max_completion_tokens"] == 8000


def test_a_longer_conversation_extends_the_bytes_of_the_shorter_one():
    turns: list[Message] = []
    shorter = b""
    for number in range(15):
        turns += [User((TextBlock("q"), PNG)), Assistant((TextBlock(f"a{number}"),))]
        longer = encode(asks(*turns, cache_messages=(len(turns) - 1,)), Quirks(), "local")
        assert longer.startswith(shorter)
        shorter = longer[: longer.rindex(b'],"max_tokens"')]


def test_missing_media_are_refused_and_invisible_ones_described():
    lost = ImageBlock(source=BlobSource(hash="h", size=1, media_type="image/png"))
    with pytest.raises(InvalidInput, match="blob h"):
        body(asks(User((lost,))))
    blind = body(asks(User((PNG, PDF))), Quirks(supports_images=False, supports_documents=False))
    assert "cannot see" in blind["messages"][-1]["content"]
    url = body(asks(User((ImageBlock(source=UrlSource(url="https://x.test/a.png")),))))
    assert url["messages"][-1]["content"][0]["image_url"] == {"url": "https://x.test/a.png"}


def test_unknown_fields_and_chunks_without_choices_are_ignored():
    noise = [event({"object": "ping"}), event({"choices": None, "prompt_filter_results": []})]
    assert parse([*noise, *wire.chat({"content": "x", "audio": None})])[1].content == (
        TextBlock("x"),
    )
