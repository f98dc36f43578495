from datetime import UTC, datetime
from typing import Any, TypeVar, cast, get_args

import msgspec
from anthropic.types.beta import sessions as sdk
from anthropic.types.beta.sessions import (
    BetaManagedAgentsSessionEvent,
    BetaManagedAgentsSessionEventType,
)
from pydantic import BaseModel, TypeAdapter
from tests.core.samples import SAMPLES
from tests.row_checks import for_each

from mainspring.core import content, events
from mainspring.core.envelope import CLIENT_TYPES, GENESIS, Event, encode_payload
from mainspring.core.events import KnownPayload
from mainspring.log.blobs import digest_of
from mainspring.log.store import InboxItem
from mainspring.service.sessions.events.call_verdicts import CallVerdict
from mainspring.service.sessions.events.wire_content import NO_BLOBS, Blobs
from mainspring.service.sessions.events.wire_events import (
    PUBLIC_TYPES,
    WireEvent,
    wire_event,
    wire_pending_event,
)

T = TypeVar("T", bound=BaseModel)
MOMENT = datetime(2026, 11, 16, 12, tzinfo=UTC)
SDK: TypeAdapter[Any] = TypeAdapter(cast("Any", BetaManagedAgentsSessionEvent))


def event(payload: KnownPayload, *, thread_id: str = "sthr_main") -> Event:
    return Event(
        id="sevt_1",
        session_id="sesn_1",
        seq=1,
        thread_id=thread_id,
        time=MOMENT,
        payload=payload,
        body=encode_payload(payload),
        version=1,
        prev=GENESIS,
    )


def to_wire(payload: KnownPayload, *, blobs: Blobs = NO_BLOBS) -> WireEvent:
    return wire_event(event(payload), main_thread_id="sthr_main", blobs=blobs)


def parse_as(made: WireEvent, type_: type[T]) -> T:
    """By the SDK's own models, with nothing coerced."""
    found = SDK.validate_json(msgspec.json.encode(made), strict=True)
    assert isinstance(found, type_)
    return found


@for_each("kind", sorted(PUBLIC_TYPES))
def test_every_public_event_has_the_format_of_the_sdk(kind: str):
    made = to_wire(SAMPLES[kind])
    parse_as(made, BaseModel)
    assert (made["type"], made["id"], made["processed_at"]) == (kind, "sevt_1", MOMENT)


def test_the_public_event_types_are_those_of_the_sdk():
    assert {*get_args(BetaManagedAgentsSessionEventType), "session.deleted"} == PUBLIC_TYPES


def test_a_stored_image_is_inlined_and_a_lost_one_is_mentioned():
    picture = b"\x89PNG"
    source = content.BlobSource(hash=digest_of(picture), size=4, media_type="image/png")
    payload = events.AgentToolResult(
        tool_use_id="sevt_0", content=(content.ImageBlock(source=source),)
    )
    whole = to_wire(payload, blobs={source.hash: picture})
    assert parse_as(whole, sdk.BetaManagedAgentsAgentToolResultEvent)
    assert whole["content"][0]["source"]["data"] == "iVBORw=="
    lost = to_wire(payload)
    assert parse_as(lost, sdk.BetaManagedAgentsAgentToolResultEvent)
    assert source.hash in lost["content"][0]["text"]


def test_a_call_shows_its_evaluated_permission():
    call = event(events.AgentToolUse(name="bash", input={}))
    found = parse_as(
        wire_event(
            call,
            main_thread_id="sthr_main",
            verdict=CallVerdict(seq=1, thread_id="sthr_main", said="ask"),
        ),
        sdk.BetaManagedAgentsAgentToolUseEvent,
    )
    assert found.evaluated_permission == "ask"
    assert found.evaluation is not None
    assert found.evaluation.type == "always_ask"


def test_an_error_unknown_to_the_api_is_an_unknown_error():
    broken = events.ErrorDetail(
        type="snapshot_failed", message="disk", retry_status=events.RetryStatus(type="retrying")
    )
    made = to_wire(events.SessionFailed(error=broken))
    assert parse_as(made, sdk.BetaManagedAgentsSessionErrorEvent).error.type == "unknown_error"
    assert made["error"]["code"] == "snapshot_failed"


def test_events_of_another_thread_name_the_thread():
    made = wire_event(
        event(events.AgentCustomToolUse(name="ask", input={}), thread_id="sthr_2"),
        main_thread_id="sthr_main",
    )
    assert (
        parse_as(made, sdk.BetaManagedAgentsAgentCustomToolUseEvent).session_thread_id == "sthr_2"
    )


@for_each("kind", sorted(CLIENT_TYPES & PUBLIC_TYPES))
def test_pending_inbox_events_are_unprocessed(kind: str):
    item = InboxItem(
        sender=None,
        event_id="sevt_9",
        client_id="c",
        thread_id="sthr_main",
        time=1_000_000,
        version=1,
        type=kind,
        body=encode_payload(SAMPLES[kind]).decode(),
    )
    made = wire_pending_event(item, SAMPLES[kind], main_thread_id="sthr_main")
    parse_as(made, BaseModel)
    assert made["id"] == "sevt_9"
    is_accepted = kind == "user.define_outcome" or kind.startswith(("session.", "workflow_run."))
    assert (made["processed_at"] is None) is not is_accepted


def test_an_outcome_without_an_id_gets_a_stable_one():
    defined = events.UserDefineOutcome(description="d", rubric=events.FileRubric(file_id="file_1"))
    found = parse_as(to_wire(defined), sdk.BetaManagedAgentsUserDefineOutcomeEvent)
    assert (found.outcome_id, found.max_iterations) == ("outc_1", 3)
