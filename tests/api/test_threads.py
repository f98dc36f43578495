from collections.abc import AsyncGenerator
from pathlib import Path

import anthropic
import anyio
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import collect
from tests.api.sessions_api import SessionsApi, message, service, session
from tests.api.streaming import thread_workspace
from tests.log.sample_sessions import opened

from mainspring.core.content import TextBlock
from mainspring.core.events import (
    AgentMessage,
    ModelRequestEnded,
    StatusIdle,
    StatusRunning,
    StopReason,
    ThreadCreated,
    Usage,
)
from mainspring.testing import Scripted, says

ENDED = StatusIdle(stop_reason=StopReason(type="end_turn"))


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[SessionsApi]:
    async with service(tmp_path, Scripted(otherwise=says("Done."))) as running:
        yield running


async def with_child(api: SessionsApi, session_id: str) -> str:
    """A session in whose log another thread has worked."""
    writer = await api.log.hold(session_id, owner="test")
    await writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="scout"))
    await writer.append(
        StatusRunning(),
        ModelRequestEnded(
            model_request_start_id="sevt_0",
            model_usage=Usage(input_tokens=7, output_tokens=5),
            cost_usd="0.25",
        ),
        thread_id="sthr_2",
    )
    await writer.release()
    return "sthr_2"


async def test_the_main_thread_reports_its_status_usage_and_events(
    api: SessionsApi, acme: AsyncAnthropic
):
    made = await session(acme)
    [fresh] = await collect(acme.beta.sessions.threads.list(made.id))
    assert (fresh.status, fresh.stats, fresh.usage) == ("idle", None, None)
    await acme.beta.sessions.events.send(made.id, events=[message("go")])
    await api.worker.settled()
    [main] = await collect(acme.beta.sessions.threads.list(made.id))
    assert (main.type, main.session_id, main.parent_thread_id) == ("session_thread", made.id, None)
    assert main.agent.type == "agent"
    assert main.agent.id == made.agent.id
    assert main.usage is not None
    assert main.usage.output_tokens
    assert main.stats is not None
    again = await acme.beta.sessions.threads.retrieve(main.id, session_id=made.id)
    assert again.usage == main.usage
    shown = [
        e.type
        async for e in acme.beta.sessions.threads.events.list(main.id, session_id=made.id, limit=2)
    ]
    assert shown == [event.type async for event in acme.beta.sessions.events.list(made.id)]


async def test_threads_are_listed_by_status_and_in_pages(api: SessionsApi, acme: AsyncAnthropic):
    made = await session(acme)
    child = await with_child(api, made.id)
    threads = acme.beta.sessions.threads
    paged = await collect(threads.list(made.id, limit=1))
    assert [item.id for item in paged][1:] == [child]
    assert paged[1].parent_thread_id == paged[0].id
    running = await collect(threads.list(made.id, statuses=["running"]))
    assert [item.id for item in running] == [child]
    whole = await acme.beta.sessions.retrieve(made.id)
    assert (whole.status, whole.usage.input_tokens) == ("running", 7)
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await threads.list(made.id, page="nonsense")


async def test_an_archived_thread_accepts_no_events(api: SessionsApi, acme: AsyncAnthropic):
    made = await session(acme)
    child = await with_child(api, made.id)
    threads = acme.beta.sessions.threads
    with pytest.raises(anthropic.ConflictError, match="interrupt"):
        await threads.archive(child, session_id=made.id)
    writer = await api.log.hold(made.id, owner="test")
    await writer.append(ENDED, thread_id=child)
    idle = await threads.retrieve(child, session_id=made.id)
    assert idle.usage is not None
    assert idle.usage.list_cost is not None
    assert (idle.usage.input_tokens, idle.usage.list_cost.amount) == (7, "25")
    await writer.release()
    archived = await threads.archive(child, session_id=made.id)
    assert archived.archived_at is not None
    assert archived.status == "terminated"
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await acme.beta.sessions.events.send(
            made.id, events=[{"type": "user.interrupt", "session_thread_id": child}]
        )
    [main, _] = await collect(threads.list(made.id))
    with pytest.raises(anthropic.BadRequestError, match="main thread"):
        await threads.archive(main.id, session_id=made.id)


async def test_an_unknown_thread_is_not_found(acme: AsyncAnthropic):
    made = await session(acme)
    threads = acme.beta.sessions.threads
    with pytest.raises(anthropic.NotFoundError):
        await threads.retrieve("sthr_x", session_id=made.id)
    with pytest.raises(anthropic.NotFoundError):
        await threads.archive("sthr_x", session_id=made.id)
    with pytest.raises(anthropic.NotFoundError):
        await threads.events.list("sthr_x", session_id=made.id)


async def test_thread_status_is_on_the_stream_of_the_thread_and_of_the_session(tmp_path: Path):
    async with (
        opened(tmp_path / "log.db") as log,
        thread_workspace(log) as there,
        there.client() as client,
    ):
        session = await log.create()
        writer = await log.hold(session.id, owner="test")
        await writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="scout"))
        sessions = client.beta.sessions
        async with (
            await sessions.threads.events.stream("sthr_2", session_id=session.id) as own,
            await sessions.events.stream(session.id) as whole,
        ):
            said = AgentMessage(content=(TextBlock("Land."),))
            await writer.append(StatusRunning(), said, ENDED, thread_id="sthr_2")
            await writer.append(ENDED)
            with anyio.fail_after(60):
                theirs = [await anext(own) for _ in range(3)]
                ours = [await anext(whole) for _ in range(3)]
    assert [their.type for their in theirs] == [
        "session.thread_status_running",
        "agent.message",
        "session.thread_status_idle",
    ]
    assert [our.type for our in ours] == [
        "session.thread_status_running",
        "session.thread_status_idle",
        "session.status_idle",
    ]
    assert ours[0].type == "session.thread_status_running"
    assert (ours[0].agent_name, ours[0].session_thread_id) == ("scout", "sthr_2")
