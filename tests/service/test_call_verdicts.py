"""A call is shown only once it is known whether it may be done: who has hands does it at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
import pytest
from tests.log.sample_sessions import asks, opened, says

from mainspring.core.content import TextBlock
from mainspring.core.events import (
    AgentToolResult,
    AgentToolUse,
    KnownPayload,
    ModelRequestStarted,
    StatusIdle,
    StopReason,
    ThreadCreated,
    ToolCallAuthorized,
    ToolCallStarted,
    UserToolConfirmation,
    UserToolResult,
)
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.log.writer import Writer
from mainspring.service.sessions.events.event_pages import EventPages, ListEvents, event_query
from mainspring.service.sessions.events.event_streams import (
    EventStreams,
    StreamMessage,
    StreamRequest,
    StreamSubscription,
)
from mainspring.service.sessions.events.preview_deltas import LocalDeltas
from mainspring.service.sessions.events.wire_events import EventView, WireEvent

BASH = AgentToolUse(name="bash", input={"command": "ls"})
IDLE = StatusIdle(stop_reason=StopReason(type="end_turn"))
NEXT = ModelRequestStarted(model="m")


def authorized_event(
    call_id: str,
    decision: Literal["allow", "ask", "deny"],
    updated_input: dict[str, object] | None = None,
) -> KnownPayload:
    return ToolCallAuthorized(
        tool_use_id=call_id, decision=decision, gate="rule", updated_input=updated_input
    )


def handed_over_event(call_id: str) -> KnownPayload:
    return ToolCallStarted(tool_use_id=call_id, idempotency_key="k", by_client=True)


def started_event(call_id: str) -> KnownPayload:
    return ToolCallStarted(tool_use_id=call_id, idempotency_key="k")


def result(call_id: str) -> KnownPayload:
    return AgentToolResult(tool_use_id=call_id, content=(TextBlock("x"),))


def view(session: SessionRow) -> EventView:
    return EventView(session_id=session.id, main_thread_id=session.thread_id)


async def list_wire_events(
    log: SessionLog, session: SessionRow, asked: ListEvents | None = None
) -> list[WireEvent]:
    pages, found, cursor = EventPages(log), list[WireEvent](), None
    while True:
        page = await pages.page(event_query(view(session), asked or ListEvents()), cursor)
        found += page.data
        if (cursor := page.next_page) is None:
            return found


async def read_messages(stream: StreamSubscription) -> list[StreamMessage]:
    """All that there is to tell now."""
    found: list[StreamMessage] = []
    with anyio.fail_after(60):
        stream.stop_waiting()
        while more := await stream.next():
            found += more
    return found


def calls(found: Sequence[StreamMessage]) -> list[tuple[str, str]]:
    bodies: list[dict[str, Any]] = [msgspec.json.decode(item.data) for item in found]
    return [(b["id"], b["evaluated_permission"]) for b in bodies if b["type"] == "agent.tool_use"]


async def start_call(log: SessionLog) -> tuple[SessionRow, Writer, str]:
    """A session with a call that no gate has spoken on."""
    session = await log.create()
    writer = await log.hold(session.id, owner="test")
    await writer.append(says("Let me look."))
    [call] = await writer.append(BASH)
    return session, writer, call.id


@pytest.mark.parametrize("decision", ["allow", "ask", "deny"])
async def test_a_call_is_streamed_only_after_its_authorization(
    decision: Literal["allow", "ask", "deny"], log: SessionLog
):
    session, writer, call_id = await start_call(log)
    streams = EventStreams(log, LocalDeltas())
    everything, from_now = (
        StreamRequest(tenant="a", session_id=session.id, after=0),
        StreamRequest(tenant="a", session_id=session.id),
    )
    async with streams.open(everything) as old, streams.open(from_now) as new:
        assert [item.name for item in await read_messages(old)] == ["agent.message"]
        assert await read_messages(new) == []
        assert [item["type"] for item in await list_wire_events(log, session)] == ["agent.message"]
        newest = await list_wire_events(log, session, ListEvents(order="desc", limit=1))
        assert [item["type"] for item in newest] == ["agent.message"]
        await writer.append(says("meanwhile"))
        assert (await read_messages(old), await read_messages(new)) == ([], [])
        await writer.append(authorized_event(call_id, decision))
        for stream in (old, new):
            seen = await read_messages(stream)
            assert [item.name for item in seen] == ["agent.tool_use", "agent.message"]
            assert calls(seen) == [(call_id, decision)]
    shown = await list_wire_events(log, session)
    assert [item["type"] for item in shown[1:]] == ["agent.tool_use", "agent.message"]


async def test_streams_resumed_anywhere_miss_and_repeat_nothing(log: SessionLog):
    session, writer, first = await start_call(log)
    [second] = await writer.append(BASH)
    [thread] = await writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="s"))
    [elsewhere] = await writer.append(BASH, thread_id="sthr_2")
    story: list[tuple[KnownPayload, str | None]] = [
        (authorized_event(first, "ask"), None),
        (says("a"), None),
        (authorized_event(elsewhere.id, "ask"), "sthr_2"),
        (authorized_event(second.id, "allow"), None),
        (handed_over_event(second.id), None),
        (UserToolConfirmation(tool_use_id=first, result="allow"), None),
        (authorized_event(first, "allow"), None),
        (handed_over_event(first), None),
        (UserToolResult(tool_use_id=first), None),
        (UserToolResult(tool_use_id=second.id), None),
        (NEXT, None),
        (IDLE, None),
    ]
    streams, last = EventStreams(log, LocalDeltas()), 0
    steady: list[StreamMessage] = []
    broken: list[StreamMessage] = []
    async with streams.open(StreamRequest(tenant="a", session_id=session.id, after=0)) as whole:
        for payload, thread_id in story:
            await writer.append(payload, thread_id=thread_id)
            steady += await read_messages(whole)
            async with streams.open(
                StreamRequest(tenant="a", session_id=session.id, after=last)
            ) as again:
                broken += await read_messages(again)
            last = max((item.seq or 0 for item in broken), default=0)
    assert [item.seq for item in steady] == [item.seq for item in broken]
    listing = [item["id"] for item in await list_wire_events(log, session)]
    assert [msgspec.json.decode(item.data)["id"] for item in steady] == listing
    assert calls(steady) == [(first, "ask"), (second.id, "allow"), (elsewhere.id, "ask")]
    assert thread.id in listing


async def test_a_call_settled_without_running_is_never_shown_as_allowed(tmp_path: Path):
    """A worker that comes later reads the history, and does what has no result of a client's."""
    async with opened(tmp_path / "log.db") as log:
        session, writer, invalid = await start_call(log)
        await writer.append(result(invalid), NEXT)
        [cut, unsure, refused, ran, done] = await writer.append(BASH, BASH, BASH, BASH, BASH)
        await writer.append(
            authorized_event(cut.id, "allow"),
            handed_over_event(cut.id),
            authorized_event(unsure.id, "ask"),
            authorized_event(refused.id, "ask"),
            authorized_event(ran.id, "allow"),
            started_event(ran.id),
            authorized_event(done.id, "allow"),
            handed_over_event(done.id),
            IDLE,
            UserToolConfirmation(tool_use_id=refused.id, result="deny"),
            authorized_event(refused.id, "deny"),
            result(refused.id),
            UserToolResult(tool_use_id=done.id),
            result(cut.id),  # interrupted
            result(unsure.id),
            result(ran.id),
            NEXT,
            asks("go on"),
        )
        shown = {
            item["id"]: item["evaluated_permission"]
            for item in await list_wire_events(log, session)
            if item["type"] == "agent.tool_use"
        }
    assert shown == {
        invalid: "deny",
        cut.id: "deny",
        unsure.id: "deny",
        refused.id: "ask",  # the no that follows says the rest
        ran.id: "allow",
        done.id: "allow",
    }


async def test_a_run_that_ends_before_authorization_delays_nothing(log: SessionLog):
    session, writer, call_id = await start_call(log)
    streams = EventStreams(log, LocalDeltas())
    async with streams.open(StreamRequest(tenant="a", session_id=session.id)) as stream:
        await writer.append(IDLE)
        seen = await read_messages(stream)
    assert calls(seen) == [(call_id, "ask")]  # not to be done without a yes
    assert [item.name for item in seen] == ["agent.tool_use", "session.status_idle"]


async def test_input_updated_by_an_authorizer_is_what_is_shown(log: SessionLog):
    session, writer, call_id = await start_call(log)
    await writer.append(authorized_event(call_id, "allow", updated_input={"command": "ls -l"}))
    [call] = await list_wire_events(log, session, ListEvents(types=("agent.tool_use",)))
    assert call["input"] == {"command": "ls -l"}


async def test_a_client_tool_call_of_a_subagent_is_shown_on_the_main_thread(log: SessionLog):
    session = await log.create()
    writer = await log.hold(session.id, owner="test")
    await writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="scout"))
    [theirs, ours] = await writer.append(BASH, BASH, thread_id="sthr_2")
    await writer.append(
        authorized_event(theirs.id, "allow"),
        handed_over_event(theirs.id),
        authorized_event(ours.id, "allow"),
        started_event(ours.id),
        thread_id="sthr_2",
    )
    [call] = await list_wire_events(log, session, ListEvents(types=("agent.tool_use",)))
    assert (call["id"], call["session_thread_id"]) == (theirs.id, "sthr_2")
