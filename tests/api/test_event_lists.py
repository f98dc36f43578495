import operator
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import collect
from tests.api.sessions_api import SessionsApi, kinds, message, service, session

from mainspring.core.events import AgentToolUse, ThreadCreated, ToolCallAuthorized
from mainspring.testing import Scripted, says


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[SessionsApi]:
    async with service(tmp_path, Scripted(otherwise=says("Done."))) as running:
        yield running


async def test_a_message_is_sent_answered_and_listed(api: SessionsApi, acme: AsyncAnthropic):
    made = await session(acme)
    sent = await acme.beta.sessions.events.send(made.id, events=[message("hello")])
    assert sent.data is not None
    [echo] = sent.data
    assert (echo.type, echo.processed_at) == ("user.message", None)
    await api.worker.settled()
    listed = await collect(acme.beta.sessions.events.list(made.id))
    assert [item.type for item in listed] == [
        "user.message",
        "session.status_running",
        "span.model_request_start",
        "agent.message",
        "span.model_request_end",
        "session.status_idle",
    ]
    assert listed[0].id == echo.id
    assert listed[0].processed_at is not None
    assert await kinds(acme, made.id, types=["agent.message"]) == ["agent.message"]
    assert await kinds(acme, made.id, order="desc") == [item.type for item in listed][::-1]


async def test_pending_messages_are_listed_last_and_unprocessed(
    api: SessionsApi, acme: AsyncAnthropic
):
    made = await session(acme, initial_events=[message("one")])
    await api.worker.settled()
    api.worker.is_asleep = True
    for words in ("two", "three", "four"):
        await acme.beta.sessions.events.send(made.id, events=[message(words)])
    asked: dict[str, Any] = {"types": ["user.message"]}
    for limit in (1, 2, 3, 4, 5):
        up = await collect(acme.beta.sessions.events.list(made.id, limit=limit, **asked))
        assert [item.processed_at is None for item in up] == [False, True, True, True]
        down = await collect(
            acme.beta.sessions.events.list(made.id, limit=limit, order="desc", **asked)
        )
        assert [item.id for item in down] == [item.id for item in up][::-1]
    timed = acme.beta.sessions.events.list(made.id, created_at_gte=made.created_at, **asked)
    assert len([item async for item in timed]) == 1


async def test_events_are_listed_by_time_in_both_orders(api: SessionsApi, acme: AsyncAnthropic):
    made = await session(acme)
    for words in ("one", "two", "three"):
        await acme.beta.sessions.events.send(made.id, events=[message(words)])
        await api.worker.settled()
    whole = await collect(acme.beta.sessions.events.list(made.id))
    paged = await collect(acme.beta.sessions.events.list(made.id, limit=4))
    assert [item.id for item in paged] == [item.id for item in whole]
    back = acme.beta.sessions.events.list(made.id, limit=4, order="desc")
    assert [item.id async for item in back] == [item.id for item in whole][::-1]
    edge = [item for item in whole if item.type == "session.status_idle"][1].processed_at
    assert edge is not None
    bounds: dict[str, Callable[[Any, Any], bool]] = {
        "created_at_gte": operator.ge,
        "created_at_gt": operator.gt,
        "created_at_lte": operator.le,
        "created_at_lt": operator.lt,
    }
    for bound, is_in in bounds.items():
        expected = [item.id for item in whole if is_in(item.processed_at, edge)]
        assert expected
        for order in ("asc", "desc"):
            asked: dict[str, Any] = {bound: edge, "order": order}
            found = acme.beta.sessions.events.list(made.id, limit=3, **asked)
            listed = [item.id async for item in found]
            assert listed == (expected if order == "asc" else expected[::-1])


async def test_internal_events_are_shown_only_on_request(api: SessionsApi, acme: AsyncAnthropic):
    made = await session(acme, initial_events=[message("go")])
    await api.worker.settled()
    assert "session.created" not in await kinds(acme, made.id)
    assert "session.created" in await kinds(acme, made.id, extra_query={"include[]": "internal"})
    with pytest.raises(anthropic.BadRequestError, match="tool_call"):
        await kinds(acme, made.id, types=["tool_call.started"])
    shown = await kinds(
        acme, made.id, types=["budget.settled"], extra_query={"include": "internal"}
    )
    assert shown == ["budget.settled"]
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await kinds(acme, made.id, page="bm8")


async def test_answers_go_to_the_thread_of_their_call(api: SessionsApi, acme: AsyncAnthropic):
    made = await session(acme)
    api.worker.is_asleep = True
    writer = await api.log.hold(made.id, owner="test")
    await writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="scout"))
    [call] = await writer.append(AgentToolUse(name="bash", input={}), thread_id="sthr_2")
    [hidden] = await writer.append(AgentToolUse(name="read", input={}), thread_id="sthr_2")
    await writer.append(
        ToolCallAuthorized(tool_use_id=call.id, decision="ask", gate="rule"),
        ToolCallAuthorized(tool_use_id=hidden.id, decision="allow", gate="rule"),
        thread_id="sthr_2",
    )
    listed = await collect(acme.beta.sessions.events.list(made.id))
    [asked] = [item for item in listed if item.type == "agent.tool_use"]
    assert (asked.id, asked.session_thread_id) == (call.id, "sthr_2")
    sent = await acme.beta.sessions.events.send(
        made.id,
        events=[{"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"}],
    )
    assert sent.data is not None
    assert sent.data[0].type == "user.tool_confirmation"
    assert sent.data[0].session_thread_id == "sthr_2"
    within = [
        e.type
        async for e in acme.beta.sessions.threads.events.list("sthr_2", session_id=made.id, limit=1)
    ]
    assert within == ["agent.tool_use", "agent.tool_use"]  # an answer shows once it counts
