"""Replay of sessions with hands: what hooks, people and tools did to a session happens again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from tests.harness.session_setup import always, echo, stage, texts
from tests.harness.test_speculative_reads import StreamingModel, reading_tool, use
from tests.testing.test_replay import check_identical, deadly_tool, replay_play, run_until_killed

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.events import (
    NetworkRequested,
    PermissionUpdate,
    PermissionUpdated,
    Todo,
    TodosWritten,
    ToolsLoaded,
    Usage,
    UserToolConfirmation,
)
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent, HookResult
from mainspring.core.tool import Call, InDoubtPolicy, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.state.thread import JUDGEMENT, Thread
from mainspring.harness.stop_reasons import Ended
from mainspring.harness.tool_calls.tool_pipeline import APPROVAL_VOID_REASON

RAN = events.HookRan(hook_event="PreToolUse", handler="check", outcome="ok")


@dataclass
class HookedAuthorizer(AllowAll):
    """Gates whose hooks say what they are told to, once each."""

    hook_results: Mapping[str, list[HookResult]] = field(
        default_factory=dict[str, "list[HookResult]"]
    )
    decisions: list[Decision] = field(default_factory=list[Decision])

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        allow = Decision(decision="allow", gate="default")
        return self.decisions.pop(0) if self.decisions else allow

    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        left = self.hook_results.get(hook_event.event)
        return left.pop(0) if left else EMPTY_HOOK_RESULT


def adds(*texts: str) -> HookResult:
    return HookResult(context=texts, hook_runs=(RAN,))


async def test_context_added_by_hooks_is_replayed_in_place(tmp_path: Path):
    authorizer = HookedAuthorizer(
        {
            "UserPromptSubmit": [adds("The branch is main."), EMPTY_HOOK_RESULT, adds("It rains.")],
            "PostToolUse": [HookResult(context=("The file was formatted.",), updated_output="new")],
            "PostToolBatch": [adds("All files were checked.", "Twice.")],
        },
        [Decision(decision="allow", gate="hook", context=("Careful.",), facts=(RAN,))],
    )
    model = Scripted(calls("echo", x="1"), says("done"), says("well"))
    async with stage(tmp_path, model, echo(), authorizer=authorizer) as play:
        assert await play.play("go", "on") == Ended("completed")
        assert await play.play("more") == Ended("completed")
        assert (await play.kinds()).count("context.added") == 4
        await check_identical(play, calls=3)
        for start in range(1, len(await play.events()) + 1):
            assert (await replay_play(play, start=start)).divergence is None


async def test_context_added_at_session_start_is_replayed(tmp_path: Path):
    async with stage(tmp_path, Scripted(says("a"), says("b"))) as play:
        for words in ("hello", "again"):
            await play.send(words)
            context = await play.context()
            context.note(events.ContextAdded(text=f"before {words}", source="SessionStart hook"))
            await context.event_sink.commit()
            await context.writer.release()
            assert await play.play() == Ended("completed")
        await check_identical(play, calls=2)


async def test_a_withheld_message_is_withheld_again(tmp_path: Path):
    no = HookResult(blocked=True, reason="it has a secret", context=("Ask without it.",))
    authorizer = HookedAuthorizer(
        {"UserPromptSubmit": [no, EMPTY_HOOK_RESULT, EMPTY_HOOK_RESULT, no, EMPTY_HOOK_RESULT]}
    )
    model = Scripted(says("a"), calls("echo", x="1"), says("b"))
    async with stage(tmp_path, model, echo(), authorizer=authorizer) as play:
        assert (await play.end_of("the secret")).reason == "hook_stopped"
        assert await play.play("no secret") == Ended("completed")
        assert (await play.end_of("fine", "another secret")).reason == "hook_stopped"
        assert await play.play("go on") == Ended("completed")
        await check_identical(play, calls=len(model.requests))


async def test_a_message_withheld_between_rounds_is_withheld_again(tmp_path: Path):
    async def sends(call: Call) -> ToolResult:
        await play.send("a secret")
        return ToolResult.text("sent")

    no = HookResult(blocked=True)
    authorizer = HookedAuthorizer({"UserPromptSubmit": [EMPTY_HOOK_RESULT, no, EMPTY_HOOK_RESULT]})
    model = Scripted(calls("echo"), says("b"))
    async with stage(tmp_path, model, replace(echo(), run=sends), authorizer=authorizer) as play:
        assert (await play.end_of("go")).reason == "hook_stopped"
        assert await play.play("go on") == Ended("completed")
        await check_identical(play, calls=2)


async def test_a_run_stopped_by_hooks_stops_again(tmp_path: Path):
    authorizer = HookedAuthorizer(
        {
            "UserPromptSubmit": [HookResult(stop="not now")],
            "PostToolBatch": [HookResult(stop="enough"), EMPTY_HOOK_RESULT],
            "Stop": [
                HookResult(blocked=True, reason="Run the tests."),
                HookResult(stop="that will do"),
            ],
        }
    )
    model = Scripted(calls("echo", x="1"), says("a"), says("b"))
    async with stage(tmp_path, model, echo(), authorizer=authorizer) as play:
        for words in ("go", "go on", "and on"):
            await play.play(words)
        assert await play.ended() == ["hook_stopped", "hook_stopped", "stop_hook_prevented"]
        await check_identical(play, calls=3)


def loading_tool(*names: str) -> Tool:
    async def run(call: Call) -> ToolResult:
        if call.input.get("x") == "todo":
            todo = Todo(content="look", status="pending")
            return ToolResult((TextBlock("noted"),), facts=(TodosWritten(todos=(todo,)),))
        return ToolResult((TextBlock("loaded"),), facts=(ToolsLoaded(names=names),))

    return replace(echo("tool_search"), run=run)


async def test_loaded_tools_are_loaded_again(tmp_path: Path):
    model = Scripted(
        calls("tool_search", x="todo"),
        calls("tool_search") + calls("echo", x="1"),
        calls("far", x="2"),
        says("done"),
        says("well"),
    )
    far = replace(echo("far"), invalid=always(None))
    async with stage(
        tmp_path, model, echo(), loading_tool("far"), far, deferred=frozenset({"far", "farther"})
    ) as play:
        assert await play.play("go") == Ended("completed")
        assert await play.play("on") == Ended("completed")
        assert [len(request.tools) for request in model.requests] == [2, 2, 3, 3, 3]
        await check_identical(play, calls=5)
        for start in range(1, len(await play.events()) + 1):
            assert (await replay_play(play, start=start)).divergence is None


async def test_missing_and_renamed_tools_are_answered_as_before(tmp_path: Path):
    model = Scripted(calls("Bash", x="1") + calls("fly"), says("done"))
    async with stage(
        tmp_path,
        model,
        echo("bash"),
        echo("hidden"),
        aliases={"Bash": "bash"},
        deferred=frozenset({"hidden"}),
    ) as play:
        assert await play.play("go") == Ended("completed")
        assert "hidden" in texts(await play.events(), "agent.tool_result")[-1]
        await check_identical(play, calls=2)


async def test_a_call_rejected_once_and_then_made_is_replayed(tmp_path: Path):
    objections = ["read it first"]

    async def object_to(_: Call) -> str | None:
        return objections.pop() if objections else None

    tool = replace(echo(), objection=object_to)
    model = Scripted(calls("echo", x="1"), calls("echo", x="1") + calls("echo", x="1"), says("ok"))
    async with stage(tmp_path, model, tool) as play:
        assert await play.play("go") == Ended("completed")
        told = texts(await play.events(), "agent.tool_result")
        assert told == ["read it first", "echo 1", "echo 1"]
        await check_identical(play, calls=3)


async def test_a_changed_input_is_changed_again(tmp_path: Path):
    changed = Decision(decision="allow", gate="hook", updated_input={"x": "2"})
    model = Scripted(calls("echo", x="1"), calls("echo", x="1"), says("done"))
    async with stage(
        tmp_path, model, echo(), authorizer=HookedAuthorizer(decisions=[changed])
    ) as play:
        assert await play.play("go") == Ended("completed")
        assert texts(await play.events(), "agent.tool_result") == ["echo 2", "echo 1"]
        await check_identical(play, calls=3)


@pytest.mark.parametrize("policy", ["retry", "report"])
async def test_a_changed_call_in_which_a_worker_died_is_settled_again(
    tmp_path: Path, policy: InDoubtPolicy
):
    changed = Decision(decision="allow", gate="hook", updated_input={"x": "2"})
    model = Scripted(calls("act", x="1"), says("done"))
    async with stage(
        tmp_path, model, deadly_tool(policy), authorizer=HookedAuthorizer(decisions=[changed])
    ) as play:
        await run_until_killed(play, "go")
        assert await play.play() == Ended("completed")
        await check_identical(play, calls=2)


async def test_denials_are_replayed_with_their_full_text(tmp_path: Path):
    async def preview(_: Call) -> str | None:
        return "-a\n+b"

    tool = replace(echo(), preview=preview)
    authorizer = HookedAuthorizer(
        {
            "PermissionDenied": [
                EMPTY_HOOK_RESULT,
                HookResult(context=("Ask Ann.",)),
                EMPTY_HOOK_RESULT,
            ]
        },
        [
            Decision(decision="deny", gate="mode", reason="plan mode"),
            Decision(decision="deny", gate="rule"),
            Decision(decision="ask", gate="default"),
        ],
    )
    model = Scripted(
        calls("echo", x="1"), calls("echo", x="2"), calls("echo", x="3"), says("then not")
    )
    async with stage(tmp_path, model, tool, authorizer=authorizer) as play:
        ended = await play.end_of("go")
        answer = UserToolConfirmation(
            tool_use_id=ended.waiting_for[0], result="deny", deny_message="never\never"
        )
        assert await play.play(answer) == Ended("completed")
        await check_identical(play, calls=4)


async def test_a_void_approval_is_void_again(tmp_path: Path):
    previews = ["one", "two", "two"]

    async def preview(_: Call) -> str | None:
        return previews.pop(0)

    tool = replace(echo(), preview=preview)
    authorizer = HookedAuthorizer(decisions=[Decision(decision="ask", gate="default")])
    async with stage(
        tmp_path, Scripted(calls("echo", x="1"), says("ok")), tool, authorizer=authorizer
    ) as play:
        ended = await play.play("go")
        for expected in ("requires_action", "completed"):
            assert ended is not None
            [waiting] = ended.waiting_for
            ended = await play.end_of(UserToolConfirmation(tool_use_id=waiting, result="allow"))
            assert ended.reason == expected
        reasons = [
            event.payload.reason
            for event in await play.events()
            if isinstance(event.payload, events.ToolCallAuthorized)
        ]
        assert reasons == [None, APPROVAL_VOID_REASON, None]
        await check_identical(play, calls=2)


class OverrulingAuthorizer(HookedAuthorizer):
    """Has a rule by the time that a person agrees."""

    def still_forbidden(self, call: Call, traits: Traits) -> Decision | None:
        return Decision(decision="deny", gate="rule", rule="Echo", reason="a rule denies it")


async def test_an_approval_overruled_by_a_rule_is_refused_again(tmp_path: Path):
    ran: list[str] = []
    authorizer = OverrulingAuthorizer(decisions=[Decision(decision="ask", gate="default")])
    model = Scripted(calls("echo", x="1"), says("done"))
    async with stage(tmp_path, model, echo(ran=ran), authorizer=authorizer) as play:
        ended = await play.end_of("go")
        [waiting] = ended.waiting_for
        allow = UserToolConfirmation(tool_use_id=waiting, result="allow")
        assert await play.play(allow) == Ended("completed")
        assert ran == []
        await check_identical(play, calls=2)


async def test_speculative_reads_replay_identically(tmp_path: Path):
    ran: list[str] = []
    go_on = anyio.Event()
    model = StreamingModel(use("read", 1), use("read", 2), use("write", 3), go_on=go_on)
    async with stage(tmp_path, model, reading_tool(ran, go_on, after=2), echo("write")) as play:
        with anyio.fail_after(60):
            assert await play.play("go") == Ended("completed")
        await check_identical(play, calls=2)


async def test_truncated_results_are_truncated_as_before(tmp_path: Path):
    async def run(call: Call) -> ToolResult:
        return ToolResult.text(str(call.input["x"]) * 90_000)

    tool = replace(echo(), run=run, traits=always(Traits(max_chars=100_000)))
    asks = calls("echo", x="a") + calls("echo", x="b") + calls("echo", x="c") + calls("echo", x="d")
    model = Scripted(asks, says("done"))
    async with stage(tmp_path, model, tool) as play:
        assert await play.play("go") == Ended("completed")
        assert "left out" in str(model.requests[1].messages)
        await check_identical(play, calls=2)


async def test_events_the_model_does_not_read_change_nothing(tmp_path: Path):
    """Judgements of a classifier, grants, the network, a sandbox: all of it between the others."""
    judged = events.ModelRequestEnded(
        model_request_start_id="none",
        model_usage=Usage(input_tokens=5),
        purpose=JUDGEMENT,
        stop_reason="end_turn",
        cost_usd=str(Decimal("0.01")),
    )
    granted = PermissionUpdated(
        updates=(PermissionUpdate(type="setMode", mode="acceptEdits"),), by="hook"
    )
    reached = NetworkRequested(host="localhost", decision="deny")
    decision = Decision(decision="allow", gate="mode", facts=(judged, granted, reached))
    authorizer = HookedAuthorizer(decisions=[decision, replace(decision, decision="ask")])
    model = Scripted(calls("echo", x="1"), calls("echo", x="2"), says("done"))
    async with stage(tmp_path, model, echo(), authorizer=authorizer) as play:
        context = await play.context()
        context.note(
            events.PolicyAdopted(policy="0" * 64, mode="default"),
            events.SandboxOpened(
                backend="bubblewrap", level="isolated", flags_hash="1", workspace="/w"
            ),
            events.WorkspaceSnapshotted(snapshot="2", files=3),
        )
        await context.event_sink.commit()
        await context.writer.release()
        ended = await play.end_of("go")
        [waiting] = ended.waiting_for
        update = PermissionUpdated(
            updates=(PermissionUpdate(type="setMode", mode="default"),), by="person"
        )
        answer = UserToolConfirmation(tool_use_id=waiting, result="allow")
        assert await play.play(update, answer) == Ended("completed")
        await check_identical(play, calls=3)
