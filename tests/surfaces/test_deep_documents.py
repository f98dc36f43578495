"""JSON that is nested deeper than the decoder goes. It raises `RecursionError` then, which is no
error of msgspec: whoever reads foreign JSON must expect both."""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.row_checks import for_each

from mainspring.capabilities.mcp.login.oauth_documents import error_code
from mainspring.capabilities.mcp.protocol.messages import decode_message
from mainspring.core.envelope import decode_payload
from mainspring.core.errors import MainspringError
from mainspring.core.ports import HttpReply
from mainspring.edges.cli.run.stream_input import parse_line
from mainspring.improve.dreams.model_lessons import read_facts
from mainspring.improve.evals.scoring.judges import read_pair, read_verdict

SOURCE = Path(__file__).parents[2] / "src/mainspring"
_HANDLER = re.compile(
    r"(?:except \(?|suppress\()[^():]*msgspec\.(?:DecodeError|MsgspecError)[^():]*\)?"
)
DEEP = [
    "[" * 200_000,
    "[" * 5_000 + "]" * 5_000,
    '{"a":' * 5_000 + "1" + "}" * 5_000,
    '{"jsonrpc":"2.0","id":1,"result":' + "[" * 5_000 + "]" * 5_000 + "}",
    '{"reason":' + '{"a":' * 5_000 + "1" + "}" * 5_001,
    '{"type":"control_request","request_id":"1","request":' + '{"a":' * 3_000 + "1" + "}" * 3_001,
    '{"type":"user.message","content":' + "[" * 3_000 + "]" * 3_000 + "}",
]
READERS: dict[str, Callable[[str], object]] = {
    "MCP": lambda text: decode_message(text.encode()),
    "OAuth": lambda text: error_code(
        HttpReply(status=400, content_type="application/json", body=text.encode())
    ),
    "stream-json": lambda text: parse_line(text.encode(), 1),
    "a dream's model": lambda text: read_facts(text + "]", {}),
    "a judge": lambda text: read_verdict(text, ()),
    "a judge of pairs": read_pair,
    "a stored event": lambda text: decode_payload(text.encode()),
}


def test_every_handler_of_malformed_json_expects_json_that_is_too_deep() -> None:
    missing: list[str] = []
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "except RecursionError" not in text:
            handlers = [item for item in _HANDLER.findall(text) if "RecursionError" not in item]
            missing += [f"{path.relative_to(SOURCE)}: {item}" for item in handlers]
    assert missing == []


@for_each("reader", READERS)
def test_text_that_is_too_deep_is_refused_like_any_other(reader: str) -> None:
    for text in DEEP:
        with suppress(MainspringError):  # anything else is a crash
            READERS[reader](text)
