"""The loop: every reason to stop and to go on, reached through a scripted model on a real log."""

from collections.abc import AsyncGenerator
from decimal import Decimal
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest
from tests.harness.session_setup import echo, stage, texts

from mainspring.capabilities.providers.scripted import Scripted, calls, fails, says
from mainspring.core.content import TextBlock
from mainspring.core.events import UserCustomToolResult, UserToolConfirmation
from mainspring.core.model import Delta, Reply, Request, TextDelta, ToolSpec
from mainspring.core.model_facts import ModelFacts, Price
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.limits import Limits
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Continue, Ended


async def test_a_user_message_gets_a_reply(tmp_path: Path):
    async with stage(tmp_path, Scripted(says("hello"))) as play:
        assert await play.play("hi") == Ended("completed")
        assert await play.kinds() == [
            "session.created",
            "user.message",
            "session.status_running",
            "budget.reserved",
            "span.model_request_start",
            "agent.message",
            "span.model_request_end",
            "budget.settled",
            "session.status_idle",
        ]
        assert texts(await play.events(), "agent.message") == ["hello"]
        assert TextDelta("hello") in play.deltas


async def test_a_run_without_pending_work_writes_nothing(tmp_path: Path):
    async with stage(tmp_path, Scripted(says("hello"))) as play:
        assert await play.play() is None
        await play.play("hi")
        before = await play.events()
        assert await play.play() is None
        assert await play.events() == before


async def test_a_tool_call_runs_and_its_result_reaches_the_model(tmp_path: Path):
    model = Scripted(calls("echo", x="1"), says("done"))
    async with stage(tmp_path, model, echo()) as play:
        assert await play.play("go") == Ended("completed")
        assert await play.continued() == ["next_turn"]
        assert texts(await play.events(), "agent.tool_result") == ["echo 1"]
        assert msgspec.json.encode(model.requests[1].messages[-1]).count(b"echo 1") == 1


async def test_tool_results_reach_the_model_in_call_order(tmp_path: Path):
    first_may_finish = anyio.Event()

    async def answer(call: Call) -> ToolResult:
        if call.input["x"] == "slow":
            await first_may_finish.wait()
        else:
            first_may_finish.set()
        return ToolResult.text(f"did {call.input['x']}")

    tool = Tool(
        spec=ToolSpec(name="act", description="", input_schema={}),
        run=answer,
        traits=lambda _: Traits(concurrent=True),
    )
    model = Scripted(calls("act", x="slow") + calls("act", x="quick"), says("done"))
    async with stage(tmp_path, model, tool) as play:
        with anyio.fail_after(60):
            await play.play("go")
        assert texts(await play.events(), "agent.tool_result") == ["did quick", "did slow"]
        sent = msgspec.json.encode(model.requests[1].messages[-1])
        assert sent.index(b"did slow") < sent.index(b"did quick")


async def test_calls_that_are_not_concurrency_safe_run_one_at_a_time(tmp_path: Path):
    under_way: list[str] = []

    async def answer(call: Call) -> ToolResult:
        assert not under_way
        under_way.append(call.id)
        await anyio.lowlevel.checkpoint()
        under_way.clear()
        return ToolResult.text("ok")

    tool = Tool(spec=ToolSpec(name="act", description="", input_schema={}), run=answer)
    model = Scripted(calls("act", n=1) + calls("act", n=2) + calls("act", n=3), says("done"))
    async with stage(tmp_path, model, tool) as play:
        assert await play.play("go") == Ended("completed")
        assert len(texts(await play.events(), "agent.tool_result")) == 3


async def test_a_call_to_an_unknown_tool_is_reported_to_the_model(tmp_path: Path):
    async with stage(tmp_path, Scripted(calls("fly"), says("sorry")), echo()) as play:
        assert await play.play("go") == Ended("completed")
        assert texts(await play.events(), "agent.tool_result") == [
            "There is no tool 'fly'. Available tools: echo."
        ]


class RuleAuthorizer(AllowAll):
    """Asks or denies by the call's `x`."""

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        match call.input.get("x"):
            case "ask":
                return Decision(decision="ask", gate="rule", rule="Ask(x)")
            case "deny":
                return Decision(decision="deny", gate="rule", rule="Deny(x)", reason="never that")
            case _:
                return Decision(decision="allow", gate="default")


async def test_a_denied_call_is_reported_to_the_model_and_the_turn_continues(tmp_path: Path):
    ran: list[str] = []
    model = Scripted(calls("echo", x="deny"), says("understood"))
    async with stage(tmp_path, model, echo(ran=ran), authorizer=RuleAuthorizer()) as play:
        assert await play.play("go") == Ended("completed")
        assert texts(await play.events(), "agent.tool_result") == ["Not allowed: never that."]
        assert ran == []


@pytest.mark.parametrize(("answer", "result"), [("allow", "echo ask"), ("deny", "Not allowed")])
async def test_a_call_that_needs_approval_waits_for_the_answer(
    tmp_path: Path, answer: str, result: str
):
    ran: list[str] = []
    model = Scripted(calls("echo", x="ask"), says("done"))
    async with stage(tmp_path, model, echo(ran=ran), authorizer=RuleAuthorizer()) as play:
        waiting = await play.play("go")
        assert waiting is not None
        assert waiting.reason == "requires_action"
        assert ran == []
        assert await play.play() is None  # still waiting
        [call_id] = waiting.waiting_for
        confirmation = UserToolConfirmation(
            tool_use_id=call_id, result="allow" if answer == "allow" else "deny"
        )
        assert await play.play(confirmation) == Ended("completed")
        assert texts(await play.events(), "agent.tool_result")[0].startswith(result)
        assert len(ran) == (1 if answer == "allow" else 0)


async def test_answering_some_calls_leaves_the_others_waiting(tmp_path: Path):
    model = Scripted(calls("echo", x="ask", n=1) + calls("echo", x="ask", n=2), says("done"))
    async with stage(tmp_path, model, echo(), authorizer=RuleAuthorizer()) as play:
        waiting = await play.play("go")
        assert waiting is not None
        first, second = waiting.waiting_for
        rest = await play.play(UserToolConfirmation(tool_use_id=first, result="allow"))
        assert rest == Ended("requires_action", waiting_for=(second,))
        assert await play.play(UserToolConfirmation(tool_use_id=second, result="allow")) == Ended(
            "completed"
        )


async def test_a_client_runs_its_own_tools(tmp_path: Path):
    model = Scripted(calls("lookup", key="a"), says("done"))
    async with stage(tmp_path, model, custom_tools=frozenset({"lookup"})) as play:
        waiting = await play.play("go")
        assert waiting is not None
        [call_id] = waiting.waiting_for
        result = UserCustomToolResult(custom_tool_use_id=call_id, content=(TextBlock("42"),))
        assert await play.play(result) == Ended("completed")
        assert b"42" in msgspec.json.encode(model.requests[1].messages[-1])


async def test_max_turns_ends_the_run(tmp_path: Path):
    model = Scripted(calls("echo", x="1"), calls("echo", x="2"), says("never"))
    async with stage(tmp_path, model, echo(), limits=Limits(max_turns=2)) as play:
        assert (await play.end_of("go")).reason == "max_turns"
        assert len(model.requests) == 2


async def test_a_request_that_might_exceed_the_budget_is_not_sent(tmp_path: Path):
    dear = ModelFacts(
        id="scripted:test",
        window=200_000,
        max_output=8_000,
        price=Price(
            input=Decimal(3),
            output=Decimal(15),
            cache_read=Decimal(1),
            cache_write=Decimal(4),
            date="2026-11-15",
        ),
    )
    model = Scripted(says("never"))
    limits = Limits(max_cost_usd=Decimal("0.001"))
    async with stage(tmp_path, model, facts=dear, limits=limits) as play:
        assert (await play.end_of("go")).reason == "budget_reached"
        assert model.requests == []


async def test_a_truncated_reply_is_requested_again_with_a_higher_cap(tmp_path: Path):
    model = Scripted(says("cut", reason="max_tokens"), says("whole"))
    async with stage(tmp_path, model) as play:
        assert await play.play("go") == Ended("completed")
        assert await play.continued() == ["output_escalated"]
        assert [request.max_tokens for request in model.requests] == [8_000, 64_000]
        assert texts(await play.events(), "agent.message") == ["whole"]


async def test_a_reply_truncated_at_the_highest_cap_is_continued_three_times(tmp_path: Path):
    model = Scripted(otherwise=says("part", reason="max_tokens"))
    async with stage(tmp_path, model) as play:
        assert await play.play("go") == Ended("output_truncated")
        assert await play.continued() == ["output_escalated", *["output_continued"] * 3]
        assert texts(await play.events(), "agent.message") == ["part"] * 4


async def test_a_refusal_ends_the_run(tmp_path: Path):
    async with stage(tmp_path, Scripted(says("I will not.", reason="refusal"))) as play:
        assert await play.play("go") == Ended("refusal")


async def test_a_model_error_ends_the_run_and_the_session_can_continue(tmp_path: Path):
    async with stage(tmp_path, Scripted(fails("forbidden", "revoked"), says("back"))) as play:
        assert (await play.end_of("go")).reason == "model_error"
        assert "session.error" in await play.kinds()
        assert await play.play("again?") == Ended("completed")


async def test_a_reply_that_breaks_off_is_retried_twice(tmp_path: Path):
    broken = fails("connection", "reset by peer", after=says("I was going to s"))
    model = Scripted(broken, broken, says("whole"), broken, broken, broken)
    async with stage(tmp_path, model) as play:
        assert await play.play("go") == Ended("completed")
        assert texts(await play.events(), "agent.message") == ["whole"]
        assert await play.continued() == ["broken_stream_retry"] * 2
        first, *others = model.requests
        assert [request.messages for request in others] == [first.messages] * 2
        assert (await play.end_of("again")).reason == "model_error"
        assert len(model.requests) == 6


async def test_a_stalled_stream_is_retried_without_streaming(tmp_path: Path):
    model = Scripted(fails("stalled"), says("whole"))
    async with stage(tmp_path, model) as play:
        assert await play.play("go") == Ended("completed")
        assert [request.stream for request in model.requests] == [True, False]


async def test_a_repeated_identical_call_is_stopped_as_a_loop(tmp_path: Path):
    model = Scripted(otherwise=calls("echo", x="same"))
    async with stage(tmp_path, model, echo()) as play:
        assert (await play.end_of("go")).reason == "loop_detected"
        assert len(model.requests) < 20
        assert "session.error" in await play.kinds()


class StopAuthorizer(AllowAll):
    def __init__(self, *verdicts: Continue | Ended | None) -> None:
        self.verdicts = list(verdicts)

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        return self.verdicts.pop(0) if self.verdicts else None


@pytest.mark.parametrize("reason", ["stop_hook_feedback", "outcome_revision"])
async def test_a_stop_check_sends_the_model_back_to_work(tmp_path: Path, reason: str):
    verdict = (
        Continue("outcome_revision", "cite sources")
        if reason == "outcome_revision"
        else Continue("stop_hook_feedback", "cite sources")
    )
    model = Scripted(says("done"), says("really done"))
    async with stage(tmp_path, model, authorizer=StopAuthorizer(verdict)) as play:
        assert await play.play("go") == Ended("completed")
        assert await play.continued() == [reason]
        assert b"cite sources" in msgspec.json.encode(model.requests[1].messages[-1])


async def test_a_stop_hook_can_end_the_run(tmp_path: Path):
    authorizer = StopAuthorizer(Ended("stop_hook_prevented", "wait for me"))
    async with stage(tmp_path, Scripted(says("done")), authorizer=authorizer) as play:
        assert await play.play("go") == Ended("stop_hook_prevented", "wait for me")


async def test_an_after_round_hook_can_end_the_run(tmp_path: Path):
    class After(AllowAll):
        async def after_round(self, thread: Thread) -> Ended | None:
            return Ended("hook_stopped", "enough")

    async with stage(tmp_path, Scripted(calls("echo")), echo(), authorizer=After()) as play:
        assert await play.play("go") == Ended("hook_stopped", "enough")


async def test_a_model_that_stops_early_is_told_the_rest_of_its_token_target(tmp_path: Path):
    model = Scripted(says("a bit " * 2000), says("more " * 4000), otherwise=says("x " * 20_000))
    async with stage(tmp_path, model, limits=Limits(target_tokens=10_000)) as play:
        assert await play.play("go") == Ended("completed")
        assert "budget_continuation" in await play.continued()


async def test_a_prompt_that_stays_too_long_ends_the_run(tmp_path: Path):
    model = Scripted(otherwise=fails("prompt_too_long"))
    async with stage(tmp_path, model) as play:
        assert (await play.end_of("go")).reason == "prompt_too_long"


async def test_a_session_that_keeps_crashing_is_abandoned(tmp_path: Path):
    class Dies:
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            yield TextDelta("I ")
            raise RuntimeError("power cut")

    async with stage(tmp_path, Dies()) as play:
        await play.send("go")
        ended = None
        for _ in range(7):
            try:
                ended = await play.play()
            except* RuntimeError:
                assert ended is None
        assert ended is not None
        assert ended.reason == "recovery_exhausted"
        assert (await play.kinds()).count("session.woken") == 6
