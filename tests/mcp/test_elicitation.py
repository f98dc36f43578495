"""What servers of both eras ask people, at the level of the connection."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import anyio
import anyio.lowlevel
import pytest
from tests.mcp.peers import CLIENT
from tests.mcp.scripted_server import Fields, Respond, ScriptedProgram, legacy, modern, result

from mainspring.capabilities.mcp.elicitation import Elicitations
from mainspring.capabilities.mcp.protocol.client import ClientLimits
from mainspring.capabilities.mcp.protocol.messages import CallResult
from mainspring.capabilities.mcp.server_connection import OpenTransport, ServerConnection
from mainspring.capabilities.mcp.transports.channel import ChannelTransport, LineChannel
from mainspring.core.errors import McpFailed
from mainspring.core.events import ApprovalAnswered
from mainspring.core.tool import Call, PersonQuestion

FORM: Fields = {
    "message": "Which\u202e seat?",
    "requestedSchema": {
        "type": "object",
        "properties": {"seat": {"type": "string"}, "bags": {"type": "integer", "default": 1}},
        "required": ["seat"],
    },
}
LINK: Fields = {"mode": "url", "message": "Pay", "url": "https://pay.example/1"}


def asking_server(*asked: Fields, is_modern: bool) -> Respond:
    """A server whose tool asks one thing after the other, and then says what it was answered."""
    calls: list[Fields] = []
    answers: list[object] = []

    def ask(number: int) -> Fields:
        params = asked[number]
        return {
            "jsonrpc": "2.0",
            "id": f"q{number}",
            "method": "elicitation/create",
            "params": params,
        }

    def respond_modern(message: Fields) -> list[object]:
        params = cast(Fields, message["params"])
        given = cast(Fields, params.get("inputResponses") or {})
        state = int(str(params.get("requestState", "0")))
        answers.extend(given.values())
        if state < len(asked):
            wanted = {"method": "elicitation/create", "params": asked[state]}
            more: Fields = {"inputRequests": {"q": wanted}, "requestState": str(state + 1)}
            return [result(message, **{"resultType": "input_required", **more})]
        return [result(message, resultType="complete", content=[text(answers)])]

    def respond_legacy(message: Fields) -> list[object]:
        if "method" in message:
            calls.append(message)
            answers.clear()
            return [ask(0)]
        answers.append(message.get("result", message.get("error")))
        if len(answers) < len(asked):
            return [ask(len(answers))]
        return [result(calls[-1], content=[text(answers)])]

    return modern(respond_modern) if is_modern else legacy(respond_legacy)


def text(value: object) -> Fields:
    return {"type": "text", "text": repr(value)}


@asynccontextmanager
async def open_connection(
    respond: Respond, limits: ClientLimits | None = None
) -> AsyncGenerator[tuple[ServerConnection, ScriptedProgram], None]:
    program = ScriptedProgram(respond)

    async def opener() -> OpenTransport:
        return OpenTransport(transport=ChannelTransport(LineChannel(program)))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            connection = ServerConnection(
                opener,
                group,
                implementation=CLIENT,
                limits=limits,
                elicitations=Elicitations("air", group),
            )
            yield connection, program
            await connection.aclose()
            group.cancel_scope.cancel()


def call_with(**answers: ApprovalAnswered) -> Call:
    return Call(
        id="call_1", name="book", input={}, idempotency_key="k", session_id="s", thread_id="t",
        answers=answers,
    )  # fmt: skip


def allow(question: PersonQuestion, form: Mapping[str, object] | None = None) -> ApprovalAnswered:
    id_ = question.approval_id("call_1")
    return ApprovalAnswered(
        approval_id=id_, decision="allow", form=None if form is None else dict(form)
    )


def deny(question: PersonQuestion) -> ApprovalAnswered:
    return ApprovalAnswered(approval_id=question.approval_id("call_1"), decision="deny")


def call_with_answers(*answers: ApprovalAnswered) -> Call:
    return call_with(**{answer.approval_id: answer for answer in answers})


def ignore_progress(_: str) -> None:
    return None


@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_call_asks_and_continues_with_the_answers(is_modern: bool) -> None:
    limits = ClientLimits(call_seconds=0.2)
    async with open_connection(asking_server(FORM, LINK, FORM, is_modern=is_modern), limits) as (
        connection,
        _,
    ):
        first = await connection.call(call_with(), "book", ignore_progress)
        assert isinstance(first, tuple)
        [seat] = first
        assert seat.text == "The MCP server air asks: Which seat?"
        assert seat.form_schema is not None
        await anyio.sleep(0.4)  # a person takes longer than a server may
        seated = allow(seat, {"seat": "aisle"})
        second = await connection.call(call_with_answers(seated), "book", ignore_progress)
        assert isinstance(second, tuple)
        [link] = second
        assert link.form_schema is None
        assert link.evidence[0].ref == "https://pay.example/1"
        third = await connection.call(
            call_with_answers(seated, allow(link)), "book", ignore_progress
        )
        assert isinstance(third, tuple)
        [again] = third  # the same words once more are another question
        done = await connection.call(
            call_with_answers(seated, allow(link), deny(again)), "book", ignore_progress
        )
    assert isinstance(done, CallResult)
    answers = "[{'action': 'accept', 'content': {'bags': 1, 'seat': 'aisle'}}," \
        " {'action': 'accept'}, {'action': 'decline'}]"  # fmt: skip
    assert answers.encode() in bytes(done.content[0])


@pytest.mark.parametrize("is_modern", [True, False])
async def test_another_process_can_supply_the_answers(is_modern: bool) -> None:
    async with open_connection(asking_server(FORM, is_modern=is_modern)) as (connection, _):
        asked = await connection.call(call_with(), "book", ignore_progress)
        assert isinstance(asked, tuple)
    async with open_connection(asking_server(FORM, is_modern=is_modern)) as (connection, _):
        answer = allow(asked[0], {"seat": "window", "bags": 2})
        done = await connection.call(call_with_answers(answer), "book", ignore_progress)
    assert isinstance(done, CallResult)
    assert b"'bags': 2, 'seat': 'window'" in bytes(done.content[0])


@pytest.mark.parametrize(
    "params",
    [
        {"requestedSchema": {"properties": {"api_key": {"type": "string"}}}},
        {"requestedSchema": {"properties": {"x": {"type": "string", "title": "Password"}}}},
        {"requestedSchema": {"properties": {"x": {"type": "object", "properties": {}}}}},
        {"requestedSchema": {"properties": {"x": 1}}},
        {"requestedSchema": {"properties": []}},
        {"requestedSchema": {"properties": {}, "required": [1]}},
        {"mode": "url", "url": "javascript:alert(1)"},
        {"mode": "url", "url": "file:///etc/passwd"},
        {"mode": "other"},
    ],
)
async def test_an_invalid_question_is_refused(params: Fields) -> None:
    async with open_connection(asking_server({"message": "m", **params}, is_modern=False)) as (
        connection,
        _,
    ):
        done = await connection.call(call_with(), "book", ignore_progress)
    assert isinstance(done, CallResult)
    assert b"'code': -326" in bytes(done.content[0])


async def test_sampling_is_refused_and_a_question_outside_a_call_is_cancelled() -> None:
    asked = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": FORM}
    sampling = {"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage"}

    def respond(message: Fields) -> list[object]:
        return [asked, sampling] if message.get("method") == "tools/list" else []

    async with open_connection(legacy(respond), ClientLimits(request_seconds=0.3)) as (
        connection,
        made,
    ):
        with pytest.raises(McpFailed):
            await connection.list_tools()
        answers = {item["id"]: item for item in made.heard if "method" not in item}
    assert answers["q"]["result"] == {"action": "cancel"}
    assert cast(Fields, answers["s"]["error"])["code"] == -32601


async def test_a_server_can_withdraw_its_question_and_an_interrupt_cancels_the_call() -> None:
    def respond(message: Fields) -> list[object]:
        if message.get("method") != "tools/call":
            return []
        params = {"requestId": "q"}
        return [
            {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": FORM},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params},
        ]

    async with open_connection(legacy(respond)) as (connection, program):
        assert isinstance(await connection.call(call_with(), "book", ignore_progress), tuple)
        with anyio.move_on_after(0.3) as waiting:  # there is nothing left to be answered
            await connection.call(call_with(), "book", ignore_progress)
        assert waiting.cancelled_caught
        while "notifications/cancelled" not in program.methods():
            await anyio.lowlevel.checkpoint()
