"""Streams through the official client, with a runtime that produces what they show."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
from anthropic import AsyncStream
from anthropic.lib.sessions import accumulate_managed_agents_event
from tests.api.streaming import (
    CLERK,
    Held,
    eventually,
    frames,
    grown,
    studio,
    thread_workspace,
    until_idle,
)
from tests.harness.session_setup import echo
from tests.log.sample_sessions import asks, tell, texts, told

from mainspring.capabilities.providers.scripted import thinks
from mainspring.core.events import ThreadCreated
from mainspring.core.tool import Traits
from mainspring.edges.api.sse import StreamTiming
from mainspring.log.session_log import SessionLog
from mainspring.service.sessions.events.event_streams import StreamLimits
from mainspring.service.sessions.events.preview_deltas import PreviewStarted
from mainspring.testing import Scripted, calls, says

WORDS = "The quick brown fox jumps over the lazy dog, and then it sleeps."


async def test_a_stream_shows_events_after_it_was_opened(tmp_path: Path):
    async with studio(tmp_path, Scripted(says("one"), says("two"))) as here:
        session_id = await here.start()
        await here.run(session_id, "first")
        async with (
            here.thread_workspace.client() as client,
            await client.beta.sessions.events.stream(session_id) as stream,
        ):
            await here.run(session_id, "second")
            seen = await until_idle(stream)
        assert [event.type for event in seen] == [
            "user.message",
            "session.status_running",
            "span.model_request_start",
            "agent.message",
            "span.model_request_end",
            "session.status_idle",
        ]
        assert (seen[0].content[0].text, seen[3].content[0].text) == ("second", "two")


async def test_deltas_add_up_to_the_event_that_they_announce(tmp_path: Path):
    model = Held(Scripted(thinks("hm, what now") + says(WORDS), chunk_chars=7))
    seen: list[Any] = []
    async with studio(tmp_path, model) as here, here.thread_workspace.client() as client:
        session_id = await here.start()
        async with (
            await client.beta.sessions.events.stream(
                session_id, event_deltas=["agent.message", "agent.thinking"]
            ) as stream,
            anyio.create_task_group() as group,
        ):
            group.start_soon(here.run, session_id, "go")
            seen += await until_idle(stream, held=model)
    starts = {event.event.type: event.event.id for event in seen if event.type == "event_start"}
    assert starts == {event.type: event.id for event in seen if event.type.startswith("agent.")}
    accumulated: Any = None
    for event in seen:
        if event.type == "agent.message":
            assert accumulated.content[0].text
            assert WORDS.startswith(accumulated.content[0].text)
        accumulated = accumulate_managed_agents_event(accumulated, event)
    assert accumulated.content[0].text == WORDS
    kinds = [event.type for event in seen]
    assert kinds.index("span.model_request_start") < kinds.index("event_start")
    assert "event_delta" not in kinds[kinds.index("agent.message") :]


async def test_deltas_are_sent_only_on_request(tmp_path: Path):
    model = Scripted(thinks("hm") + says(WORDS), says(WORDS))
    async with studio(tmp_path, model) as here, here.thread_workspace.client() as client:
        session_id = await here.start()
        async with await client.beta.sessions.events.stream(session_id) as stream:
            await here.run(session_id, "go")
            assert "event_start" not in [event.type for event in await until_idle(stream)]
        async with await client.beta.sessions.events.stream(
            session_id, event_deltas=["agent.thinking"]
        ) as stream:
            await here.run(session_id, "go")
            assert "event_delta" not in [event.type for event in await until_idle(stream)]


async def test_text_before_a_call_is_complete_before_the_call(tmp_path: Path):
    """And each of several messages of one reply has its own id."""
    model = Scripted(says("Let me look.") + calls("nothing") + says("Or not."), says("Done."))
    async with studio(tmp_path, model) as here:
        session_id = await here.start()
        pieces = await here.side_events(session_id, "go")
        events = await here.runtime.log.read(session_id, types=["agent.message"])
    begun = [piece.event_id for piece in pieces if isinstance(piece, PreviewStarted)]
    assert begun == [event.id for event in events]
    assert texts(events) == ["Let me look.", "Or not.", "Done."]
    assert grown(pieces, begun[0]) == "Let me look."


async def test_a_late_reader_gets_no_partial_event(tmp_path: Path):
    model = Held(
        Scripted(says("The first half and the second."), chunk_chars=15), at="and the second."
    )
    kinds: list[str] = []
    async with studio(tmp_path, model) as here, here.thread_workspace.client() as client:
        session_id = await here.start()
        async with anyio.create_task_group() as group:
            group.start_soon(here.run, session_id, "go")
            with anyio.fail_after(60):
                await model.has_begun.wait()
            async with await client.beta.sessions.events.stream(
                session_id, event_deltas=["agent.message"]
            ) as stream:
                model.may_end.set()
                kinds += [event.type for event in await until_idle(stream)]
    assert kinds == ["agent.message", "span.model_request_end", "session.status_idle"]


async def test_an_interrupted_reply_keeps_the_id_it_was_announced_with(tmp_path: Path):
    model = Held(
        Scripted(says("The first half and the second."), chunk_chars=15), at="and the second."
    )
    seen: list[Any] = []
    async with studio(tmp_path, model) as here, here.thread_workspace.client() as client:
        id_ = await here.start()
        async with (
            await client.beta.sessions.events.stream(id_, event_deltas=["agent.message"]) as stream,
            anyio.create_task_group() as group,
        ):
            group.start_soon(here.run, id_, "go")
            with anyio.fail_after(60):
                while not seen or seen[-1].type != "event_start":
                    seen.append(await anext(stream))
            await (await here.runtime.resume(CLERK, id_)).interrupt()
            seen += await until_idle(stream)
    [start] = [event.event.id for event in seen if event.type == "event_start"]
    [said] = [event for event in seen if event.type == "agent.message"]
    assert (said.id, said.content[0].text) == (start, "The first half ")


async def test_a_call_is_shown_with_its_evaluated_permission(tmp_path: Path):
    model = Scripted(calls("erase", text="all"))
    eraser = replace(CLERK, tools=[echo("erase", Traits(needs_person=True))])
    async with studio(tmp_path, model) as here, here.thread_workspace.client() as client:
        session = await here.runtime.start(eraser)
        async with await client.beta.sessions.events.stream(session.id) as stream:
            await session.send("go")
            await session.run()
            seen = await until_idle(stream)
    [asked] = [event for event in seen if event.type == "agent.tool_use"]
    assert asked.evaluated_permission == "ask"
    assert seen[-1].stop_reason.event_ids == [asked.id]


SECRET = "hunter2 is what I said"
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cE3gI5"


@pytest.mark.parametrize("size", [1, 3, 8, 50])
async def test_a_secret_split_over_deltas_is_not_shown(tmp_path: Path, size: int):
    lines = [f"Now it is {SECRET}, twice {SECRET}.", f"A token {TOKEN} and more.", TOKEN]
    model = Scripted(*map(says, lines), chunk_chars=size)
    async with studio(tmp_path, model, secrets={"WORD": SECRET}) as here:
        session_id = await here.start()
        shown = [grown(await here.side_events(session_id, "say it")) for _ in lines]
        said = texts(await here.runtime.log.read(session_id, types=["agent.message"]))
    assert said[0] == "Now it is [WORD], twice [WORD]."
    assert shown[0].startswith("Now it is ")
    assert shown[1].startswith("A token ")
    assert "hunter2" not in "".join(shown)
    assert "ghp_" not in "".join(shown)


async def test_deleting_a_session_ends_its_streams(tmp_path: Path):
    async with studio(tmp_path, Scripted()) as here, here.thread_workspace.client() as client:
        session_id = await here.start()
        async with await client.beta.sessions.events.stream(session_id) as stream:
            await here.runtime.log.delete(session_id)
            with anyio.fail_after(60):
                [last] = [event async for event in stream]
        assert last.type == "session.deleted"
        assert last.id.startswith("sevt_")
        with pytest.raises(anthropic.NotFoundError):
            await client.beta.sessions.events.stream(session_id)


async def test_foreign_and_unknown_sessions_cannot_be_streamed(log: SessionLog):
    async with thread_workspace(log) as there:
        id_ = await told(log, "hello")
        async with there.client("rival:admin") as rival, there.client() as client:
            with pytest.raises(anthropic.NotFoundError):
                await rival.beta.sessions.events.stream(id_)
            with pytest.raises(anthropic.NotFoundError):
                await client.beta.sessions.events.stream("sesn_nowhere")
            with pytest.raises(anthropic.NotFoundError, match="sthr_nowhere"):
                await client.beta.sessions.threads.events.stream("sthr_nowhere", session_id=id_)


async def test_a_thread_can_be_streamed_by_itself(log: SessionLog):
    async with thread_workspace(log) as there, there.client() as client:
        session = await log.create()
        writer = await log.hold(session.id, owner="test")
        await writer.append(ThreadCreated(session_thread_id="sthr_other", agent_name="helper"))
        streams = client.beta.sessions
        async with (
            await streams.threads.events.stream("sthr_other", session_id=session.id) as other,
            await streams.threads.events.stream(session.thread_id, session_id=session.id) as main,
            await streams.events.stream(session.id) as whole,
        ):
            await writer.append(asks("main"))
            await writer.append(asks("other"), thread_id="sthr_other")
            await writer.append(asks("main again"))
            with anyio.fail_after(60):
                assert await _read_texts(other, 1) == ["other"]
                assert await _read_texts(main, 2) == ["main", "main again"]
                assert await _read_texts(whole, 2) == ["main", "main again"]


async def _read_texts(stream: AsyncStream[Any], count: int) -> list[str]:
    found: list[str] = []
    async for event in stream:
        found.append(event.content[0].text)
        if len(found) == count:
            break
    return found


async def test_an_idle_stream_sends_pings(log: SessionLog):
    pace = StreamTiming(heartbeat_seconds=0.02, patience_seconds=5)
    async with thread_workspace(log, pace=pace) as there:
        session_id = await told(log, "hello")
        async with there.raw(session_id) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            with anyio.fail_after(60):
                pings = b'event: ping\ndata: {"type":"ping"}\n\n' * 3
                assert await response.content.readexactly(len(pings)) == pings


async def test_the_number_of_streams_is_limited(log: SessionLog):
    limits = StreamLimits(in_process=3, of_tenant=2)
    async with thread_workspace(log, limits=limits) as there:
        session_id = await told(log, "hello")
        async with there.client() as client, there.raw(session_id) as one, there.raw(session_id):
            with pytest.raises(anthropic.RateLimitError, match="2 streams"):
                await client.beta.sessions.events.stream(session_id)
            assert one.status == 200
            assert there.streams.count == 2
        await tell(log, session_id, "who has gone is noticed when there is something to say")
        with anyio.fail_after(60):
            await eventually(lambda: there.streams.count == 0)


async def test_streams_end_when_the_service_closes(log: SessionLog):
    async with thread_workspace(log) as there:
        session_id = await told(log, "hello")
        async with there.raw(session_id, after="0") as response, there.raw(session_id) as idle:
            assert idle.headers["request-id"].startswith("req_")
            there.streams.close()
            with anyio.fail_after(60):
                assert [frame.name async for frame in frames(idle)] == []
                assert {frame.name async for frame in frames(response)} <= {"agent.message"}
