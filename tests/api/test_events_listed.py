import operator
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anthropic
import pytest
from tests.api.sessions_api import House, kinds, message, service, session

from mainspring import Scripted, says
from mainspring.core.events import AgentToolUse, ThreadCreated
from mainspring.core.facts import ToolCallAuthorized


@pytest.fixture
async def home(tmp_path: Path) -> AsyncGenerator[House, None]:
    async with service(tmp_path, Scripted(otherwise=says("Done."))) as running:
        yield running


async def test_a_message_is_sent_answered_and_listed(home: House):
    async with home.client() as client:
        made = await session(client)
        sent = await client.beta.sessions.events.send(made.id, events=[message("hello")])
        assert sent.data is not None
        [echo] = sent.data
        assert (echo.type, echo.processed_at) == ("user.message", None)
        await home.worker.settled()
        listed = [event async for event in client.beta.sessions.events.list(made.id)]
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
        assert await kinds(client, made.id, types=["agent.message"]) == ["agent.message"]
        newest = await kinds(client, made.id, order="desc")
        assert newest == [item.type for item in listed][::-1]


async def test_what_waits_is_listed_last_and_unprocessed(home: House):
    async with home.client() as client:
        made = await session(client, initial_events=[message("one")])
        await home.worker.settled()
        home.worker.is_asleep = True
        for words in ("two", "three", "four"):
            await client.beta.sessions.events.send(made.id, events=[message(words)])
        asked: dict[str, Any] = {"types": ["user.message"]}
        for limit in (1, 2, 3, 4, 5):
            up = [
                event
                async for event in client.beta.sessions.events.list(made.id, limit=limit, **asked)
            ]
            assert [item.processed_at is None for item in up] == [False, True, True, True]
            down = [
                event
                async for event in client.beta.sessions.events.list(
                    made.id, limit=limit, order="desc", **asked
                )
            ]
            assert [item.id for item in down] == [item.id for item in up][::-1]
        timed = client.beta.sessions.events.list(made.id, created_at_gte=made.created_at, **asked)
        assert len([item async for item in timed]) == 1


async def test_events_are_listed_by_time_and_in_pages_both_ways(home: House):
    async with home.client() as client:
        made = await session(client)
        for words in ("one", "two", "three"):
            await client.beta.sessions.events.send(made.id, events=[message(words)])
            await home.worker.settled()
        whole = [event async for event in client.beta.sessions.events.list(made.id)]
        paged = [event async for event in client.beta.sessions.events.list(made.id, limit=4)]
        assert [item.id for item in paged] == [item.id for item in whole]
        back = client.beta.sessions.events.list(made.id, limit=4, order="desc")
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
                found = client.beta.sessions.events.list(made.id, limit=3, **asked)
                listed = [item.id async for item in found]
                assert listed == (expected if order == "asc" else expected[::-1])


async def test_what_is_internal_is_shown_only_when_asked_for(home: House):
    async with home.client() as client:
        made = await session(client, initial_events=[message("go")])
        await home.worker.settled()
        assert "session.created" not in await kinds(client, made.id)
        assert "session.created" in await kinds(
            client, made.id, extra_query={"include[]": "internal"}
        )
        with pytest.raises(anthropic.BadRequestError, match="tool_call"):
            await kinds(client, made.id, types=["tool_call.started"])
        shown = await kinds(
            client,
            made.id,
            types=["budget.settled"],
            extra_query={"include": "internal"},
        )
        assert shown == ["budget.settled"]
        with pytest.raises(anthropic.BadRequestError, match="page"):
            await kinds(client, made.id, page="bm8")


async def test_answers_find_the_thread_whose_call_they_answer(home: House):
    async with home.client() as client:
        made = await session(client)
        home.worker.is_asleep = True
        writer = await home.log.hold(made.id, owner="test")
        await writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="scout"))
        [call] = await writer.append(AgentToolUse(name="bash", input={}), thread_id="sthr_2")
        [hidden] = await writer.append(AgentToolUse(name="read", input={}), thread_id="sthr_2")
        await writer.append(
            ToolCallAuthorized(tool_use_id=call.id, decision="ask", gate="rule"),
            ToolCallAuthorized(tool_use_id=hidden.id, decision="allow", gate="rule"),
            thread_id="sthr_2",
        )
        listed = [event async for event in client.beta.sessions.events.list(made.id)]
        [asked] = [item for item in listed if item.type == "agent.tool_use"]
        assert (asked.id, asked.session_thread_id) == (call.id, "sthr_2")
        sent = await client.beta.sessions.events.send(
            made.id,
            events=[{"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"}],
        )
        assert sent.data is not None
        assert sent.data[0].type == "user.tool_confirmation"
        assert sent.data[0].session_thread_id == "sthr_2"
        within = [
            event.type
            async for event in client.beta.sessions.threads.events.list(
                "sthr_2", session_id=made.id, limit=1
            )
        ]
        assert within == ["agent.tool_use", "agent.tool_use"]  # an answer shows once it counts
