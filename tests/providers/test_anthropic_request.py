import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter
from tests.providers.wire import asks

from mainspring.capabilities.providers.anthropic.request import encode
from mainspring.capabilities.providers.quirks import Quirks
from mainspring.core.content import (
    Base64Source,
    BlobBlock,
    BlobSource,
    DocumentBlock,
    FileSource,
    ImageBlock,
    PlainTextSource,
    RedactedBlock,
    SearchResultBlock,
    SearchResultCitations,
    TextBlock,
    UrlSource,
)
from mainspring.core.errors import InvalidInput
from mainspring.core.model import (
    Assistant,
    Effort,
    Message,
    Request,
    Thinking,
    ToolResultBlock,
    ToolUse,
    User,
)

PNG = ImageBlock(source=Base64Source(media_type="image/png", data="aGk="))
PDF = DocumentBlock(source=Base64Source(media_type="application/pdf", data="aGk="), title="T")
ADAPTIVE = Quirks(thinking="adaptive", efforts=("low", "medium", "high", "max"))
EVERYTHING: tuple[Message, ...] = (
    User((TextBlock("look"), PNG, PDF, ImageBlock(source=UrlSource(url="https://x.test/a.png")))),
    Assistant(
        (
            Thinking(text="hm", signature="anthropic:c2ln"),
            Thinking(text="", signature="anthropic-redacted:b3A="),
            Thinking(text="foreign", signature="openai:{}"),
            Thinking(text="unsigned"),
            TextBlock("I look."),
            TextBlock("  "),
            ToolUse(id="toolu_1", name="bash", input={"command": "ls"}),
            ToolUse(id="functions.bash:1", name="bash", input={}),
        )
    ),
    User(
        (
            ToolResultBlock(tool_use_id="toolu_1", content=(TextBlock("a.txt"), PNG)),
            ToolResultBlock(tool_use_id="functions.bash:1", content=(), is_error=True),
            DocumentBlock(source=PlainTextSource(data="notes"), context="old"),
            DocumentBlock(source=Base64Source(media_type="text/markdown", data="IyBIaQ==")),
            DocumentBlock(source=UrlSource(url="https://x.test/a.pdf")),
            BlobBlock(preview="first lines", hash="h", size=9),
            RedactedBlock(),
            SearchResultBlock(
                source="https://x.test",
                title="X",
                content=(TextBlock("found"),),
                citations=SearchResultCitations(enabled=False),
            ),
        )
    ),
)


def body(request: Request, quirks: Quirks = ADAPTIVE) -> dict[str, Any]:
    return json.loads(encode(request, quirks))


def without_markers(encoded: bytes) -> bytes:
    return encoded.replace(b',"cache_control":{"type":"ephemeral"}', b"")


def test_the_official_sdk_accepts_every_kind_of_content_and_every_field():
    sent = body(asks(*EVERYTHING, cache_messages=(1, 2), effort="high"))
    adapter = TypeAdapter[Any](MessageCreateParamsStreaming)  # must outlive what it validates
    accepted = plain(adapter.validate_python(sent, strict=True))
    assert accepted == sent  # a field that the SDK does not know would be missing


def plain(value: Any) -> Any:  # noqa: ANN401 JSON of any shape
    """Pydantic validates iterables when they are read; read them all."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def test_thinking_is_sent_back_only_to_the_provider_that_produced_it():
    said = body(asks(*EVERYTHING))["messages"][1]["content"]
    assert [block["type"] for block in said] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert said[0] == {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    assert said[1] == {"type": "redacted_thinking", "data": "b3A="}
    plain_model = body(asks(*EVERYTHING), Quirks())["messages"][1]["content"]
    assert [block["type"] for block in plain_model] == ["text", "tool_use", "tool_use"]


def test_an_id_the_api_would_reject_is_replaced_in_call_and_result():
    messages = body(asks(*EVERYTHING))["messages"]
    call, result = messages[1]["content"][-1]["id"], messages[2]["content"][1]["tool_use_id"]
    assert call == result != "functions.bash:1"
    assert call.replace("_", "").isalnum()


def test_cache_breakpoints_follow_tools_static_system_and_marked_messages():
    sent = body(asks(*EVERYTHING, cache_messages=(0, 2)))
    assert "cache_control" in sent["tools"][-1]
    assert ["cache_control" in part for part in sent["system"]] == [True, False]
    marked = [["cache_control" in block for block in item["content"]] for item in sent["messages"]]
    assert [sum(blocks) for blocks in marked] == [1, 0, 1]
    assert marked[0][-1]
    assert marked[2][-1]


def test_there_are_at_most_four_breakpoints_and_the_newest_stay():
    turns = [User((TextBlock(str(number)),)) for number in range(6)]
    sent = body(asks(*turns, cache_messages=(0, 1, 3, 5, 5)))
    marked = [
        index
        for index, each in enumerate(sent["messages"])
        if "cache_control" in each["content"][0]
    ]
    assert marked == [3, 5]
    assert encode(asks(*turns, cache_messages=(0, 1, 3, 5)), ADAPTIVE).count(b"cache_control") == 4
    bare = asks(*turns, cache_messages=(0, 1, 3, 5), tools=(), system=())
    assert encode(bare, ADAPTIVE).count(b"cache_control") == 4


def test_a_breakpoint_is_never_put_on_a_thinking_block():
    thought = Assistant((TextBlock("x"), Thinking(text="t", signature="anthropic:s")))
    sent = body(asks(User((TextBlock("q"),)), thought, cache_messages=(1,)))
    assert ["cache_control" in block for block in sent["messages"][1]["content"]] == [True, False]


def test_cache_control_follows_the_quirks_of_the_model():
    request = asks(*EVERYTHING, cache_messages=(0,))
    assert b"cache_control" not in encode(request, Quirks(supports_cache_control=False))
    assert body(request, Quirks(cache_ttl="1h"))["tools"][-1]["cache_control"] == {
        "type": "ephemeral",
        "ttl": "1h",
    }


def test_a_longer_conversation_extends_the_bytes_of_the_shorter_one():
    turns: list[Message] = []
    shorter = b""
    for number in range(15):
        turns += [*EVERYTHING, Assistant((TextBlock(f"answer {number}"),))]
        newest = len(turns) - 1
        request = asks(*turns, cache_messages=(max(0, newest - 2), newest), request_id=str(number))
        longer = without_markers(encode(request, ADAPTIVE))
        assert longer.startswith(shorter)
        shorter = longer[: longer.rindex(b'],"max_tokens"')]
    assert len(shorter) > 10_000


def test_a_request_encodes_to_the_same_bytes_after_a_json_round_trip():
    request = asks(*EVERYTHING, cache_messages=(1,), effort="low")
    travelled = msgspec.json.decode(msgspec.json.encode(request), type=Request)
    assert encode(request, ADAPTIVE) == encode(travelled, ADAPTIVE)


def test_markers_are_the_only_difference_between_marked_and_unmarked_requests():
    marked = encode(asks(*EVERYTHING, cache_messages=(0, 2)), ADAPTIVE)
    plain_quirks = msgspec.structs.replace(ADAPTIVE, supports_cache_control=False)
    assert without_markers(marked) == encode(asks(*EVERYTHING), plain_quirks)


HIGH = {"output_config": {"effort": "high"}, "thinking": {"type": "adaptive"}}
BUDGET = Quirks(thinking="budget")
TALKATIVE = Quirks(thinking="adaptive", thinking_display="summarized")
STOPPABLE = Quirks(thinking="adaptive", can_disable_thinking=True)


@pytest.mark.parametrize(
    ("effort", "quirks", "sent"),
    [
        ("high", ADAPTIVE, HIGH),
        ("xhigh", ADAPTIVE, HIGH),
        ("none", ADAPTIVE, {}),
        ("none", STOPPABLE, {"thinking": {"type": "disabled"}}),
        ("max", Quirks(), {}),
        ("low", BUDGET, {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("max", BUDGET, {"thinking": {"type": "enabled", "budget_tokens": 6000}}),
        ("high", Quirks(thinking="budget", max_output=1200), {}),
        ("low", TALKATIVE, {"thinking": {"type": "adaptive", "display": "summarized"}}),
    ],
)
def test_effort_is_sent_in_the_format_of_the_model(
    effort: Effort, quirks: Quirks, sent: dict[str, Any]
):
    told = body(asks(effort=effort), quirks)
    assert {key: told[key] for key in ("output_config", "thinking") if key in told} == sent


def test_max_tokens_does_not_exceed_the_maximum_output_of_the_model():
    assert body(asks(), Quirks(max_output=4096))["max_tokens"] == 4096
    assert body(asks(), Quirks(max_output=128_000))["max_tokens"] == 8000


@pytest.mark.parametrize(
    "source", [BlobSource(hash="h", size=1, media_type="image/png"), FileSource(file_id="file_1")]
)
def test_an_unloaded_source_is_refused(source: BlobSource | FileSource):
    with pytest.raises(InvalidInput, match="must be loaded"):
        encode(asks(User((ImageBlock(source=source),))), ADAPTIVE)


def test_a_breakpoint_on_a_missing_message_is_refused():
    with pytest.raises(InvalidInput, match="no message 1"):
        encode(asks(cache_messages=(1,)), ADAPTIVE)


def test_unsupported_media_are_described_in_words():
    blind = Quirks(supports_images=False)
    [image, text] = body(asks(User((PNG, TextBlock("?")))), blind)["messages"][0]["content"]
    assert (image["type"], text["text"]) == ("text", "?")
    assert "cannot see" in image["text"]


def test_empty_messages_are_left_out():
    sent = body(asks(User((TextBlock("a"),)), Assistant(()), User((TextBlock(" "),))))
    assert [item["role"] for item in sent["messages"]] == ["user"]
