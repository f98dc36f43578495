"""Work grows with the size of the answer and no faster: counted, not timed."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from tests.providers import wire
from tests.providers.wire import asks

from mainspring.capabilities.providers import tool_calls
from mainspring.capabilities.providers.adapter import ReplyParser
from mainspring.capabilities.providers.anthropic.client import MessageParser
from mainspring.capabilities.providers.openai_chat.client import ChatParser
from mainspring.capabilities.providers.openai_responses.client import ResponseParser
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.core.model import ToolUse

Story: TypeAlias = Callable[[Sequence[str]], list[bytes]]


def anthropic(pieces: Sequence[str]) -> list[bytes]:
    return wire.message(wire.tool(0, "t", "write", pieces))


def chat(pieces: Sequence[str]) -> list[bytes]:
    deltas = [wire.chat_call(0, None, None, piece) for piece in pieces]
    return wire.chat(wire.chat_call(0, "t", "write", ""), *deltas)


def responses(pieces: Sequence[str]) -> list[bytes]:
    kind = "response.function_call_arguments.delta"
    deltas: list[dict[str, Any]] = [{"type": kind, "output_index": 0, "delta": p} for p in pieces]
    return wire.response(wire.response_call("t", "write", "".join(pieces)), deltas=deltas)


STORIES: dict[str, tuple[Story, Callable[[], ReplyParser]]] = {
    "anthropic": (anthropic, lambda: MessageParser(asks(), "anthropic")),
    "chat": (chat, lambda: ChatParser(asks(), "chat")),
    "responses": (responses, lambda: ResponseParser(asks(), "openai")),
}


class Counter:
    """Counts calls of functions, ours and C's, and how often an input was parsed."""

    def __init__(self) -> None:
        self.calls = 0
        self.inputs_parsed = 0

    def __call__(self, frame: Any, event: str, _argument: object) -> None:  # noqa: ANN401
        self.calls += event in ("call", "c_call")
        is_parse = frame.f_code is tool_calls.parse_input.__code__
        self.inputs_parsed += event == "call" and is_parse


def measure_work(
    api: str, size: int, chunk: int, *, is_counted: bool = True
) -> tuple[Counter, dict[str, object]]:
    """Feed an input of `size` bytes in deltas of 16, in chunks that do not fit them."""
    story, make = STORIES[api]
    written = json.dumps({"text": "x" * size})
    stream = b"".join(story([written[at : at + 16] for at in range(0, len(written), 16)]))
    chunks = [stream[at : at + chunk] for at in range(0, len(stream), chunk)]
    splitter, parser, counter = SseDecoder(), make(), Counter()
    sys.setprofile(counter if is_counted else None)
    try:
        for piece in chunks:
            for data in splitter.feed(piece):
                parser.feed(data)
    finally:
        sys.setprofile(None)
    [use] = [block for block in parser.reply().content if isinstance(block, ToolUse)]
    return counter, use.input


@pytest.mark.parametrize("chunk", [50, 65_536])
@pytest.mark.parametrize("api", STORIES)
def test_twice_the_tool_input_takes_twice_the_work_and_one_parse(api: str, chunk: int):
    once, _ = measure_work(api, 8_000, chunk)
    twice, given = measure_work(api, 16_000, chunk)
    assert given == {"text": "x" * 16_000}
    assert (once.inputs_parsed, twice.inputs_parsed) == (1, 1)
    assert twice.calls < 2.1 * once.calls


@pytest.mark.parametrize("api", STORIES)
def test_a_megabyte_in_small_deltas_is_read(api: str):
    _, given = measure_work(api, 1_000_000, 65_536, is_counted=False)
    assert given == {"text": "x" * 1_000_000}


def test_a_long_line_in_many_pieces_is_joined_once():
    """The splitter keeps pieces; looking at what it holds must not copy them again."""
    joins: list[int] = []

    def count(frame: Any, event: str, argument: object) -> None:  # noqa: ANN401
        if event == "c_call" and getattr(argument, "__name__", "") == "join":
            joins.append(1)

    splitter = SseDecoder()
    sys.setprofile(count)
    try:
        splitter.feed(b"data: ")
        for _ in range(10_000):
            splitter.feed(b"x")
        events = splitter.feed(b"\n\n")
    finally:
        sys.setprofile(None)
    assert events == [b"x" * 10_000]
    assert len(joins) == 1
