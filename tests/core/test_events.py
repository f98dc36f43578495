"""The vocabulary: every event reads and writes losslessly, and released formats stay readable."""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from anthropic.types.beta.sessions import beta_managed_agents_session_event_type as sdk_types
from anthropic.types.beta.sessions import beta_managed_agents_stream_session_events as sdk_events
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.core.samples import FOUND, SAMPLES, TEXT
from tests.row_checks import for_each

from mainspring.core.content import TextBlock
from mainspring.core.envelope import (
    FORMAT,
    GENESIS,
    PAYLOAD_TYPES,
    AnyPayload,
    Event,
    EventLine,
    UnknownPayload,
    decode_payload,
    encode_line,
    encode_payload,
    message_text,
)
from mainspring.core.errors import MalformedEvent
from mainspring.core.events import AgentToolResult, AgentToolUse, UserMessage
from mainspring.log.upcast import read_line, read_payload

GOLDEN = Path(__file__).parent.parent / "golden"
RELEASED = sorted(GOLDEN.glob("v*/*.json"))
MANAGED_TYPES = sorted(
    set(get_args(sdk_types.BetaManagedAgentsSessionEventType)) & set(PAYLOAD_TYPES)
)


def test_every_type_has_a_sample_and_a_golden_file():
    golden = {path.stem for path in (GOLDEN / f"v{FORMAT}").glob("*.json")}
    assert golden == set(SAMPLES) == set(PAYLOAD_TYPES)


@for_each("kind", sorted(SAMPLES))
def test_an_event_is_encoded_as_its_golden_file(kind: str):
    assert encode_payload(SAMPLES[kind]) == (GOLDEN / f"v{FORMAT}" / f"{kind}.json").read_bytes()


@for_each("path", RELEASED)
def test_every_released_format_can_be_decoded(path: Path):
    version = int(path.parent.name.removeprefix("v"))
    payload = read_payload(path.stem, path.read_bytes(), version)
    assert not isinstance(payload, UnknownPayload)
    if version == FORMAT:
        assert encode_payload(payload) == path.read_bytes()


def test_every_managed_agents_event_type_exists():
    assert set(get_args(sdk_types.BetaManagedAgentsSessionEventType)) <= set(PAYLOAD_TYPES)


@cache
def sdk_adapter() -> TypeAdapter[object]:
    return TypeAdapter(sdk_events.BetaManagedAgentsStreamSessionEvents)


@for_each("kind", MANAGED_TYPES)
def test_the_official_sdk_parses_our_events(kind: str):
    payload = SAMPLES[kind]
    if isinstance(payload, AgentToolResult):  # blobs are ours; the API resolves them on the way out
        payload = msgspec.structs.replace(payload, content=(TEXT, FOUND))
    fields: dict[str, object] = msgspec.json.decode(encode_payload(payload))
    wire = {"id": "sevt_1", "processed_at": "2026-11-15T12:00:00Z", **fields}
    event = sdk_adapter().validate_python(wire)
    assert getattr(event, "type") == kind  # noqa: B009 (the union has no common type to the checker)


def test_an_event_of_an_unknown_type_is_kept_with_its_exact_bytes():
    body = b'{"type":"agent.dreamt","of":["electric sheep"],"n":1.0}'
    payload = decode_payload(body)
    assert payload == UnknownPayload(type="agent.dreamt")
    event = make_event(body=body, payload=payload)
    assert read_line(msgspec.json.decode(encode_line(event), type=EventLine)) == event


def test_a_known_type_in_a_newer_format_is_kept_and_in_ours_refused():
    body = b'{"type":"user.message","content":[{"type":"hologram","data":"x"}]}'
    assert read_payload("user.message", body, FORMAT + 1) == UnknownPayload(type="user.message")
    with pytest.raises(MalformedEvent, match="hologram"):
        read_payload("user.message", body, FORMAT)


def test_an_unknown_field_survives_in_the_stored_bytes():
    body = b'{"type":"user.interrupt","reason":"lunch"}'
    assert b'"reason":"lunch"' in encode_line(make_event(body=body, payload=decode_payload(body)))


@for_each(
    ("body", "complaint"),
    [
        (b"", "not an event"),
        (b"[]", "not an event"),
        (b'{"content":[]}', "type"),
        (b'{"type":"user.message"}', "content"),
        (b'{"type":"user.message","content":"hi"}', "content"),
        (b'{"type":"user.tool_confirmation","tool_use_id":"x","result":"maybe"}', "maybe"),
        (b'{"type":"user.message","content":[', "user.message|not an event"),
        (b"\xff\xfe", "not an event"),
    ],
)
def test_an_invalid_event_is_refused_with_the_reason(body: bytes, complaint: str):
    with pytest.raises(MalformedEvent, match=complaint):
        decode_payload(body)


def test_text_that_is_not_unicode_cannot_be_encoded():
    with pytest.raises(MalformedEvent, match="cannot be written"):
        encode_payload(UserMessage(content=(TextBlock("\ud800"),)))


def test_an_old_event_is_upcast_through_every_version():
    def rename(fields: dict[str, object]) -> dict[str, object]:
        return {"type": "user.message", "content": [{"type": "text", "text": fields["words"]}]}

    def shout(fields: dict[str, object]) -> dict[str, object]:
        return {**fields, "words": str(fields["words"]).upper()}

    payload = read_payload(
        "user.said",
        b'{"type":"user.said","words":"hi"}',
        1,
        upcasters={("user.said", 1): shout, ("user.said", 2): rename},
        current=3,
    )
    assert payload == UserMessage(content=(TextBlock("HI"),))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), JSON, max_size=5))
def test_any_tool_input_is_unchanged_after_encoding_and_decoding(given_input: dict[str, object]):
    payload = AgentToolUse(name="any", input=given_input)
    body = encode_payload(payload)
    assert decode_payload(body) == payload
    assert encode_payload(AgentToolUse(name="any", input=given_input)) == body


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_is_unchanged_in_its_message(text: str):
    body = encode_payload(UserMessage(content=(TextBlock(text),)))
    assert message_text(decode_payload(body)) == text


def make_event(*, body: bytes, payload: AnyPayload) -> Event:
    return Event(
        id="sevt_1",
        session_id="sesn_1",
        seq=1,
        thread_id="sthr_1",
        time=datetime(2026, 11, 15, tzinfo=UTC),
        payload=payload,
        body=body,
        version=FORMAT + 1,
        prev=GENESIS,
    )
