from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import collect
from tests.api.sessions_api import (
    SessionsApi,
    confirmation,
    environment_id,
    idles,
    kinds,
    message,
    send,
    service,
    session,
    text,
    waiting,
)

from mainspring.core.content import ImageBlock, PlainTextSource, plain_text
from mainspring.core.errors import Forbidden
from mainspring.core.events import AgentToolUse, StatusRunning, UserMessage
from mainspring.service.access.principal import Principal
from mainspring.service.approvals.approval_policy import AnswerPermission
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.events.event_content import SendConfirmation
from mainspring.testing import Model, Scripted, calls, says


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[SessionsApi]:
    async with service(tmp_path, Scripted(otherwise=says("Done."))) as running:
        yield running


async def test_calls_wait_for_approval_and_partial_answers_leave_the_others_waiting(tmp_path: Path):
    model = Scripted(calls("erase", x="a") + calls("erase", x="b"), says("Both handled."))
    async with service(tmp_path, model) as api, api.client() as client:
        made = await session(client, initial_events=[message("clean up")])
        await api.worker.settled()
        first, second = await waiting(client, made.id)
        listed = await collect(client.beta.sessions.events.list(made.id, types=["agent.tool_use"]))
        assert [item.id for item in listed] == [first, second]
        assert {i.evaluated_permission for i in listed if i.type == "agent.tool_use"} == {"ask"}
        await send(client, made.id, confirmation(first))
        await api.worker.settled()
        assert await waiting(client, made.id) == [second]
        with pytest.raises(anthropic.BadRequestError, match=f"is not waiting.*{second}"):
            await send(client, made.id, confirmation("sevt_no"))
        await send(client, made.id, confirmation(second, "deny", deny_message="not that one"))
        await api.worker.settled()
        assert [idle.stop_reason.type for idle in await idles(client, made.id)] == [
            "requires_action",
            "requires_action",
            "end_turn",
        ]


async def test_a_custom_tool_is_run_by_the_client(tmp_path: Path):
    model = Scripted(calls("ask_owner", question="Why?"), says("I see."))
    async with service(tmp_path, model) as api, api.client() as client:
        made = await session(client, initial_events=[message("go")])
        await api.worker.settled()
        [call] = await waiting(client, made.id)
        with pytest.raises(anthropic.BadRequestError, match="confirmation"):
            await send(client, made.id, confirmation(call))
        result: Any = {
            "type": "user.custom_tool_result",
            "custom_tool_use_id": call,
            "content": [text("Because.")],
        }
        with pytest.raises(anthropic.BadRequestError, match="answered already"):
            await send(client, made.id, result, result)
        with pytest.raises(anthropic.BadRequestError, match="self_hosted"):
            await send(client, made.id, {"type": "user.tool_result", "tool_use_id": call})
        assert "user.custom_tool_result" not in await kinds(client, made.id)
        system: Any = {"type": "system.message", "content": [text("Be kind.")]}
        await send(client, made.id, result, system)
        await api.worker.settled()
        assert (await idles(client, made.id))[-1].stop_reason.type == "end_turn"
        assert "Be kind." in str(model.requests[-1].messages)


async def test_a_repeated_answer_gets_the_same_reply_and_a_different_one_conflicts(tmp_path: Path):
    model = Scripted(calls("erase", x="a"), calls("ask_owner", question="Why?"), says("I see."))
    async with service(tmp_path, model) as api, api.client() as client:
        made = await session(client, initial_events=[message("go")])
        for type_, name in (
            ("tool_confirmation", "tool_use_id"),
            ("custom_tool_result", "custom_tool_use_id"),
        ):
            await api.worker.settled()
            [call] = await waiting(client, made.id)
            same: Any = {"type": f"user.{type_}", name: call}
            other: Any = dict(same)
            if type_ == "tool_confirmation":
                same["result"], other["result"] = "allow", "deny"
            else:
                same["content"], other["content"] = [text("Because.")], [text("No idea.")]
            api.worker.is_asleep = True
            first = await send(client, made.id, same)
            waits = await send(client, made.id, same)
            with pytest.raises(anthropic.ConflictError, match="answered already"):
                await send(client, made.id, other)
            api.worker.is_asleep = False
            api.worker.run(made.id)
            await api.worker.settled()
            taken = await send(client, made.id, same)
            with pytest.raises(anthropic.ConflictError, match="answered already"):
                await send(client, made.id, other)
            assert first.to_json() == waits.to_json() == taken.to_json()
            assert (await kinds(client, made.id)).count(f"user.{type_}") == 1
        assert (await idles(client, made.id))[-1].stop_reason.type == "end_turn"
        await client.beta.sessions.archive(made.id)
        again = await send(client, made.id, same)
        assert again.to_json() == taken.to_json()


async def test_an_interrupt_stops_a_running_session(tmp_path: Path):
    slow = Scripted(says("Never."), latency_seconds=60)
    async with service(tmp_path, slow) as api, api.client() as client:
        made = await session(client, initial_events=[message("go")])
        await api.until(made.id, "span.model_request_start")
        await client.beta.sessions.events.send(made.id, events=[{"type": "user.interrupt"}])
        await api.worker.settled()
        shown = await kinds(client, made.id)
        assert "user.interrupt" in shown
        assert shown[-1] == "session.status_idle"
        assert (await client.beta.sessions.retrieve(made.id)).status == "idle"


async def test_an_outcome_starts_work_that_is_graded_by_its_rubric(tmp_path: Path):
    verdict = '{"criteria": [{"criterion": "Rows", "reason": "all there", "met": true}]}'
    model = Scripted(says("Written."), says(verdict))
    async with service(tmp_path, model) as api, api.client() as client:
        made = await session(client)
        sent = await send(
            client,
            made.id,
            {
                "type": "user.define_outcome",
                "description": "A report on rates",
                "rubric": {"type": "file", "file_id": "file_text"},
                "max_iterations": 5,
            },
        )
        assert sent.data is not None
        [echo] = sent.data
        assert echo.type == "user.define_outcome"
        assert (echo.outcome_id[:5], echo.max_iterations) == ("outc_", 5)
        assert echo.rubric.type == "text"
        await api.worker.settled()
        shown = str(model.requests[0].messages)
        assert "A report on rates" in shown
        assert "Rows and rows." in shown
        current = (await client.beta.sessions.retrieve(made.id)).outcome_evaluations
        assert [(i.outcome_id, i.result) for i in current] == [(echo.outcome_id, "satisfied")]


async def test_files_and_images_reach_the_log_unchanged(api: SessionsApi, acme: AsyncAnthropic):
    made = await session(acme)
    asked: Any = {
        "type": "user.message",
        "content": [
            {"type": "image", "source": {"type": "file", "file_id": "file_png"}},
            {"type": "document", "source": {"type": "file", "file_id": "file_text"}},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
            },
        ],
    }
    await acme.beta.sessions.events.send(made.id, events=[asked])
    await api.worker.settled()
    [event] = await api.log.read(made.id, types=["user.message"])
    assert isinstance(event.payload, UserMessage)
    picture, document, _ = event.payload.content
    assert isinstance(picture, ImageBlock)
    assert plain_text((document,)) == "Rows and rows."
    assert getattr(document, "source", None) == PlainTextSource(data="Rows and rows.")


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}
BLOB = {
    "type": "image",
    "source": {"type": "blob", "hash": "sha256:00", "size": 1, "media_type": "image/png"},
}


REFUSED: list[tuple[list[Any], str]] = [
    ([], "events"),
    ([message("x")] * 101, "events"),
    ([{"type": "agent.message", "content": [text("x")]}], "type"),
    ([{"type": "session.updated", "title": "x"}], "type"),
    ([{"type": "permission.updated", "updates": []}], "type"),
    ([{"type": "user.message", "content": []}], "content"),
    ([{"type": "user.message", "content": [IMAGE]}], "base64"),
    ([{"type": "user.message", "content": [BLOB]}], "type"),
    (
        [{"type": "user.message", "content": [{**IMAGE, "source": {"type": "url", "url": "x"}}]}],
        "url",
    ),
    (
        [
            {
                "type": "user.message",
                "content": [{"type": "image", "source": {"type": "file", "file_id": "no"}}],
            }
        ],
        "no file no",
    ),
    ([{"type": "user.tool_confirmation", "tool_use_id": "x", "result": "maybe"}], "result"),
    (
        [
            {
                "type": "user.tool_confirmation",
                "tool_use_id": "x",
                "result": "allow",
                "deny_message": "y",
            }
        ],
        "deny_message",
    ),
    ([{"type": "user.interrupt", "session_thread_id": "sthr_x"}], "sthr_x"),
    (
        [{"type": "user.interrupt"}, {"type": "system.message", "content": [text("x")]}],
        "accompanies",
    ),
    ([{"type": "system.message", "content": [text("x")]}, message("x")], "accompanies"),
    (
        [
            {
                "type": "user.define_outcome",
                "description": "x",
                "rubric": {"type": "text", "content": "y"},
                "max_iterations": 21,
            }
        ],
        "max_iterations",
    ),
]


@pytest.mark.parametrize(("events", "words"), REFUSED)
async def test_an_invalid_event_rejects_the_whole_request(
    api: SessionsApi, events: list[Any], words: str, acme: AsyncAnthropic
):
    made = await session(acme)
    with pytest.raises(anthropic.BadRequestError, match=words):
        await acme.beta.sessions.events.send(
            made.id, events=[message("first"), *events] if len(events) == 1 else events
        )
    await api.worker.settled()
    assert await kinds(acme, made.id) == []


async def test_a_request_with_an_idempotency_key_is_applied_once(tmp_path: Path):
    model = Scripted(calls("ask_owner", question="Why?"), otherwise=says("I see."))
    async with service(tmp_path, model) as api, api.client() as client:
        made = await session(client, initial_events=[message("go")])
        await api.worker.settled()
        [call] = await waiting(client, made.id)
        result: Any = {
            "type": "user.custom_tool_result",
            "custom_tool_use_id": call,
            "content": [text("Because.")],
        }
        ids: list[list[str]] = []
        for _ in range(2):
            sent = await client.beta.sessions.events.send(
                made.id,
                events=[result, message("and now?")],
                extra_headers={"Idempotency-Key": "k1"},
            )
            await api.worker.settled()
            ids.append([item.id for item in sent.data or ()])
        assert ids[0] == ids[1]
        assert (await kinds(client, made.id)).count("user.message") == 2
        for others in ([message("else")], [message("else"), message("and more")]):
            with pytest.raises(anthropic.BadRequestError, match="sent other events"):
                await client.beta.sessions.events.send(
                    made.id, events=others, extra_headers={"Idempotency-Key": "k1"}
                )


async def test_a_client_can_send_results_of_built_in_tools(api: SessionsApi, acme: AsyncAnthropic):
    hosted = await environment_id(acme, name="mine", config={"type": "self_hosted"})
    made = await session(acme, environment_id=hosted)
    api.worker.is_asleep = True
    writer = await api.log.hold(made.id, owner="test")
    _, call = await writer.append(StatusRunning(), AgentToolUse(name="bash", input={}))
    sent = await send(acme, made.id, {"type": "user.tool_result", "tool_use_id": call.id})
    assert sent.data is not None
    assert sent.data[0].type == "user.tool_result"


async def test_an_agent_cannot_approve_calls(tmp_path: Path):
    model: Model = Scripted(calls("erase", x="a"), otherwise=says("Done."))
    async with service(tmp_path, model) as api, api.client() as client:
        made = await session(client, initial_events=[message("clean up")])
        await api.worker.settled()
        [call] = await waiting(client, made.id)
        agent = Principal(tenant="acme", key_id="k", role="admin", acting_agent="agent_1")
        allow = SendConfirmation(tool_use_id=call, result="allow")
        with pytest.raises(Forbidden, match="agent_1"):
            await EventSender(api.sessions, AnswerPermission(api.log.store.records)).send(
                agent, made.id, [allow]
            )
