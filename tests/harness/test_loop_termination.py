"""What would keep a loop busy for ever, or make it do what was taken back."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from tests.harness.session_setup import echo, stage, texts

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.content import TextBlock
from mainspring.core.events import (
    UserCustomToolResult,
    UserInterrupt,
    UserMessage,
    UserToolConfirmation,
)
from mainspring.core.model import Delta, Reply, Request, TextDelta
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.limits import Limits
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Continue, Ended


async def test_a_model_that_pauses_forever_is_stopped(tmp_path: Path):
    model = Scripted(otherwise=says("wait", reason="pause_turn"))
    async with stage(tmp_path, model) as play:
        with anyio.fail_after(60):
            assert await play.play("go") == Ended("output_truncated")
        assert len(model.requests) == 4


async def test_a_stop_check_that_is_never_satisfied_is_overruled(tmp_path: Path):
    class Never(AllowAll):
        async def before_stop(self, thread: Thread) -> Continue | Ended | None:
            return Continue("stop_hook_feedback", "not good enough")

    model = Scripted(otherwise=says("done"))
    async with stage(tmp_path, model, authorizer=Never()) as play:
        with anyio.fail_after(60):
            assert await play.play("go") == Ended("completed")
        assert len(model.requests) == 4


async def test_a_model_stream_that_ends_without_a_reply_is_an_error(tmp_path: Path):
    class Mute:
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            yield TextDelta("I was going to s")

    async with stage(tmp_path, Mute()) as play:
        with anyio.fail_after(60):
            ended = await play.end_of("go")
        assert ended.reason == "model_error"
        assert "without a reply" in (ended.detail or "")


async def test_a_confirmation_is_not_a_result_of_a_client_tool(tmp_path: Path):
    model = Scripted(calls("lookup"), says("done"))
    async with stage(tmp_path, model, custom_tools=frozenset({"lookup"})) as play:
        waiting = await play.play("go")
        assert waiting is not None
        [call_id] = waiting.waiting_for
        with anyio.fail_after(60):
            assert (
                await play.play(UserToolConfirmation(tool_use_id=call_id, result="allow")) is None
            )
        result = UserCustomToolResult(custom_tool_use_id=call_id, content=(TextBlock("1"),))
        assert await play.play(result) == Ended("completed")


async def test_a_client_cannot_answer_for_a_tool_that_is_not_its_own(tmp_path: Path):
    class Ask(AllowAll):
        async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
            return Decision(decision="ask", gate="rule")

    async with stage(tmp_path, Scripted(calls("echo")), echo(), authorizer=Ask()) as play:
        waiting = await play.play("go")
        assert waiting is not None
        [call_id] = waiting.waiting_for
        forged = UserCustomToolResult(custom_tool_use_id=call_id, content=(TextBlock("done"),))
        assert await play.play(forged) is None
        assert texts(await play.events(), "agent.tool_result") == []


async def test_calls_over_the_limit_do_not_run(tmp_path: Path):
    ran: list[str] = []
    many = calls("echo", x=1)
    for number in range(2, 8):
        many += calls("echo", x=number)
    model = Scripted(many, says("never"))
    async with stage(tmp_path, model, echo(ran=ran), limits=Limits(max_tool_calls=2)) as play:
        assert (await play.end_of("go")).reason == "budget_reached"
        assert len(ran) == 2
        assert len(texts(await play.events(), "agent.tool_result")) == 7


async def test_a_message_interrupted_before_its_turn_is_not_answered(tmp_path: Path):
    model = Scripted(says("never asked"))
    async with stage(tmp_path, model) as play:
        await play.send("delete everything", UserInterrupt())
        assert await play.play() == Ended("interrupted_streaming")
        assert await play.play() is None
        assert model.requests == []


async def test_a_session_waiting_for_approval_can_be_interrupted(tmp_path: Path):
    class Ask(AllowAll):
        async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
            return Decision(decision="ask", gate="rule")

    ran: list[str] = []
    model = Scripted(calls("echo"), says("all right"))
    async with stage(tmp_path, model, echo(ran=ran), authorizer=Ask()) as play:
        await play.play("go")
        assert await play.play(UserInterrupt()) == Ended("interrupted_tools")
        assert await play.play("something else") == Ended("completed")
        assert ran == []


async def test_calls_of_a_refused_reply_do_not_run(tmp_path: Path):
    ran: list[str] = []
    refused = calls("echo") + says("I will not.", reason="refusal")
    async with stage(tmp_path, Scripted(refused, says("hello")), echo(ran=ran)) as play:
        assert await play.play("go") == Ended("refusal")
        assert await play.play("hello") == Ended("completed")
        assert ran == []


async def test_an_interrupt_for_another_thread_has_no_effect(tmp_path: Path):
    finish = anyio.Event()
    runs: list[str] = []

    async def answer(call: Call) -> ToolResult:
        runs.append(call.id)
        await play.send(UserInterrupt(session_thread_id="sthr_other"))
        with anyio.move_on_after(0.2):
            await finish.wait()
        return ToolResult.text("done")

    model = Scripted(calls("act"), says("done"))
    tool = Tool(spec=echo("act").spec, run=answer)
    async with stage(tmp_path, model, tool) as play:
        with anyio.fail_after(60):
            assert await play.play("go") == Ended("completed")
        assert len(runs) == 1


@pytest.mark.parametrize("at", range(5, 16))
async def test_a_fork_during_a_run_does_not_repeat_its_parents_work(tmp_path: Path, at: int):
    ran: list[str] = []
    model = Scripted(calls("echo", x=1), says("parent done"), otherwise=says("fork done"))
    async with stage(tmp_path, model, echo(ran=ran)) as play:
        await play.play("go")
        before = len(ran)
        forked = await play.log.fork(play.session_id, at=at)
        play.session_id = forked.id
        context = await play.context()
        assert not context.thread.running
        assert context.thread.open_reservation is None
        await context.writer.release()
        with anyio.fail_after(60):
            ended = await play.play(UserMessage(content=(TextBlock("and here?"),)))
        assert ended == Ended("completed")
        started = [e for e in await play.events() if e.type == "tool_call.started"]
        assert len(ran) - before == len([e for e in started if e.session_id == forked.id])
        if any(e.session_id != forked.id for e in started):
            assert len(ran) == before  # what the parent had started, the fork does not do again
