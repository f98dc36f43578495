"""One pipeline for every call: each of its steps, shown from outside."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest
from tests.harness.session_setup import always, echo, stage, texts

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core import events
from mainspring.core.content import BlobBlock
from mainspring.core.errors import SandboxFailed
from mainspring.core.events import UserToolConfirmation
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent, HookResult
from mainspring.core.tool import SAFE_READ, Call, Tool, ToolResult, Traits
from mainspring.function_tools.wrap import with_approval
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Ended
from mainspring.harness.tool_calls.tool_pipeline import APPROVAL_VOID_REASON


@dataclass
class RecordingAuthorizer(AllowAll):
    decision: Decision = field(default_factory=lambda: Decision(decision="allow", gate="default"))
    hook_results: Mapping[str, HookResult] = field(default_factory=dict[str, HookResult])
    seen: list[Call] = field(default_factory=list[Call])
    occasions: list[HookEvent] = field(default_factory=list[HookEvent])

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        self.seen.append(call)
        return self.decision

    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        self.occasions.append(hook_event)
        return self.hook_results.get(hook_event.event, EMPTY_HOOK_RESULT)

    def heard(self, event: str) -> list[HookEvent]:
        return [hook_event for hook_event in self.occasions if hook_event.event == event]


def failing_tool(name: str = "bash", *, concurrent: bool = False) -> Tool:
    async def run(call: Call) -> ToolResult:
        is_bad = call.input.get("x") == "bad"
        return ToolResult.text(f"ran {call.input.get('x')}", ok=not is_bad)

    return replace(echo(name), run=run, traits=always(Traits(cascades=True, concurrent=concurrent)))


def whole_path(given: Mapping[str, object]) -> Mapping[str, object]:
    return {**given, "x": f"/w/{given['x']}"}


def without_x(given: Mapping[str, object]) -> str | None:
    return None if "x" in given else "x is missing"


ASK = Decision(decision="ask", gate="default", reason="it writes")


async def test_a_tool_is_found_by_its_alias(tmp_path: Path):
    model = Scripted(calls("Bash", x="1"), says("done"))
    async with stage(tmp_path, model, echo("bash"), aliases={"Bash": "bash"}) as play:
        assert await play.play("go") == Ended("completed")
        assert texts(await play.events(), "agent.tool_result") == ["echo 1"]


async def test_an_invalid_input_is_reported_and_neither_authorized_nor_run(tmp_path: Path):
    ran: list[str] = []
    gate = RecordingAuthorizer()
    tool = replace(echo(ran=ran), invalid=always("x: expected a number"))
    async with stage(tmp_path, Scripted(calls("echo"), says("ok")), tool, authorizer=gate) as play:
        await play.play("go")
        [result] = [e.payload for e in await play.events() if e.type == "agent.tool_result"]
        assert isinstance(result, events.AgentToolResult)
        assert (result.error, ran, gate.seen) == ("invalid", [], [])
        assert texts(await play.events(), "agent.tool_result") == ["x: expected a number"]


async def test_an_invalid_input_to_a_deferred_tool_says_how_to_load_it(tmp_path: Path):
    tool = replace(echo("far"), invalid=always("x: missing"))
    model = Scripted(calls("far"), says("ok"))
    async with stage(tmp_path, model, tool, deferred=frozenset({"far"})) as play:
        await play.play("go")
        [told] = texts(await play.events(), "agent.tool_result")
        assert "tool_search" in told
        assert "select:far" in told
        assert model.requests[0].tools == ()


async def test_loading_a_tool_appends_its_definition_without_reordering(tmp_path: Path):
    async def load(call: Call) -> ToolResult:
        return replace(ToolResult.text("loaded"), facts=(events.ToolsLoaded(names=("far",)),))

    search = replace(echo("tool_search"), run=load)
    model = Scripted(calls("tool_search"), calls("far", x="2"), says("ok"), says("again"))
    tools = (echo("far"), search, echo("zoo"))
    async with stage(tmp_path, model, *tools, deferred=frozenset({"far"})) as play:
        await play.play("go")
        named = [[spec.name for spec in request.tools] for request in model.requests]
        assert named[:2] == [["tool_search", "zoo"], ["tool_search", "zoo", "far"]]
        assert "echo 2" in texts(await play.events(), "agent.tool_result")


async def test_a_tools_objection_comes_before_authorization(tmp_path: Path):
    async def object_to(_: Call) -> str | None:
        return "read the file first"

    gate = RecordingAuthorizer(decision=ASK)
    tool = replace(echo(), objection=object_to)
    async with stage(tmp_path, Scripted(calls("echo"), says("ok")), tool, authorizer=gate) as play:
        assert await play.play("go") == Ended("completed")
        assert texts(await play.events(), "agent.tool_result") == ["read the file first"]
        assert gate.seen == []


async def test_a_later_call_of_a_turn_is_checked_after_earlier_ones_took_effect(tmp_path: Path):
    seen: list[str] = []

    async def object_to(_: Call) -> str | None:
        return None if seen else "read it first"

    async def look(call: Call) -> ToolResult:
        seen.append(call.id)
        return ToolResult.text("seen")

    read = replace(echo("read"), run=look, traits=always(SAFE_READ))
    edit = replace(echo("edit"), objection=object_to)
    model = Scripted(calls("read") + calls("edit", x="done"), says("ok"))
    async with stage(tmp_path, model, read, edit) as play:
        await play.play("go")
        assert texts(await play.events(), "agent.tool_result") == ["seen", "echo done"]


async def test_authorizers_see_normalized_paths_and_the_log_keeps_the_original_input(
    tmp_path: Path,
):
    authorizer = RecordingAuthorizer()
    tool = replace(echo(), normalize_input=whole_path)
    async with stage(
        tmp_path, Scripted(calls("echo", x="a"), says("ok")), tool, authorizer=authorizer
    ) as play:
        await play.play("go")
        assert authorizer.seen[0].input == {"x": "/w/a"}
        assert texts(await play.events(), "agent.tool_result") == ["echo a"]


async def test_input_updated_by_an_authorizer_is_what_runs(tmp_path: Path):
    changed = Decision(
        decision="allow",
        gate="hook",
        updated_input={"x": "safe"},
        context=("made safe",),
        facts=(events.HookRan(hook_event="PreToolUse", handler="h", outcome="ok"),),
    )
    authorizer = RecordingAuthorizer(decision=changed)
    async with stage(
        tmp_path, Scripted(calls("echo", x="a"), says("ok")), echo(), authorizer=authorizer
    ) as play:
        await play.play("go")
        assert texts(await play.events(), "agent.tool_result") == [
            "echo safe<hook>made safe</hook>"
        ]
        assert "hook.ran" in await play.kinds()


async def test_input_updated_by_an_authorizer_must_be_valid_for_the_tool(tmp_path: Path):
    ran: list[str] = []
    changed = Decision(decision="allow", gate="hook", updated_input={"y": 1})
    tool = replace(echo(ran=ran), invalid=without_x)
    authorizer = RecordingAuthorizer(decision=changed)
    async with stage(
        tmp_path, Scripted(calls("echo", x="a"), says("ok")), tool, authorizer=authorizer
    ) as play:
        await play.play("go")
        [told] = texts(await play.events(), "agent.tool_result")
        assert "x is missing" in told
        assert ran == []


async def test_an_approval_covers_only_the_preview_that_was_shown(tmp_path: Path):
    content = ["old"]

    async def preview(call: Call) -> str | None:
        return f"-{content[0]}\n+{call.input['x']}"

    tool = replace(echo(), preview=preview)
    model = Scripted(calls("echo", x="new"), says("ok"))
    async with stage(tmp_path, model, tool, authorizer=RecordingAuthorizer(decision=ASK)) as play:
        waits = await play.play("go")
        assert waits is not None
        [call_id] = waits.waiting_for
        [asked] = [e.payload for e in await play.events() if e.type == "tool_call.authorized"]
        assert isinstance(asked, events.ToolCallAuthorized)
        assert asked.preview == "-old\n+new"

        content[0] = "changed meanwhile"
        assert await play.play(UserToolConfirmation(tool_use_id=call_id, result="allow")) == waits
        last = [e.payload for e in await play.events() if e.type == "tool_call.authorized"][-1]
        assert isinstance(last, events.ToolCallAuthorized)
        assert (last.decision, last.reason, last.preview) == (
            "ask",
            APPROVAL_VOID_REASON,
            "-changed meanwhile\n+new",
        )

        ended = await play.play(UserToolConfirmation(tool_use_id=call_id, result="allow"))
        assert ended == Ended("completed")
        assert texts(await play.events(), "agent.tool_result") == ["echo new"]


async def test_a_tool_that_requires_approval_waits_even_without_rules(tmp_path: Path):
    tool = with_approval(echo(), always(True))
    async with stage(tmp_path, Scripted(calls("echo", x="1"), says("ok")), tool) as play:
        waits = await play.play("go")
        assert waits is not None
        assert waits.reason == "requires_action"
        [call_id] = waits.waiting_for
        await play.play(UserToolConfirmation(tool_use_id=call_id, result="allow"))
        assert texts(await play.events(), "agent.tool_result") == ["echo 1"]


async def test_a_denial_is_reported_to_the_model_and_to_hooks(tmp_path: Path):
    ran: list[str] = []
    deny = Decision(decision="deny", gate="rule", rule="Bash(rm *)", reason="no rm here")
    authorizer = RecordingAuthorizer(decision=deny)
    async with stage(
        tmp_path, Scripted(calls("echo", x="a"), says("ok")), echo(ran=ran), authorizer=authorizer
    ) as play:
        assert await play.play("go") == Ended("completed")
        assert texts(await play.events(), "agent.tool_result") == ["Not allowed: no rm here."]
        [told] = authorizer.heard("PermissionDenied")
        assert (told.subject, told.fields["reason"], ran) == ("echo", "no rm here", [])


async def test_plan_mode_reports_what_a_denied_call_would_have_done(tmp_path: Path):
    async def preview(call: Call) -> str | None:
        return "+a line"

    deny = Decision(decision="deny", gate="mode", rule="plan", reason="in plan nothing is changed")
    tool = replace(echo(), preview=preview)
    async with stage(
        tmp_path,
        Scripted(calls("echo"), says("ok")),
        tool,
        authorizer=RecordingAuthorizer(decision=deny),
    ) as play:
        await play.play("go")
        [told] = texts(await play.events(), "agent.tool_result")
        assert told.endswith("It would do this:\n+a line")


async def test_hooks_can_extend_a_result_replace_it_and_stop_the_run(tmp_path: Path):
    gate = RecordingAuthorizer(
        hook_results={
            "PostToolUse": HookResult(
                updated_output="cleaned", context=("lint is red",), stop="enough for today"
            )
        }
    )
    async with stage(tmp_path, Scripted(calls("echo", x="a")), echo(), authorizer=gate) as play:
        assert await play.play("go") == Ended("hook_stopped", "enough for today")
        [told] = texts(await play.events(), "agent.tool_result")
        assert told == "cleaned<hook>lint is red</hook>"
        assert gate.heard("PostToolUse")[0].fields["tool_response"] == "echo a"


async def test_results_of_a_turn_share_a_size_cap(tmp_path: Path):
    async def long(_: Call) -> ToolResult:
        return ToolResult.text("x" * 90_000)

    tool = replace(echo(), run=long, traits=always(Traits(max_chars=100_000)))
    model = Scripted(calls("echo") + calls("echo") + calls("echo") + calls("echo"), says("ok"))
    async with stage(tmp_path, model, tool) as play:
        await play.play("go")
        results = [e.payload for e in await play.events() if e.type == "agent.tool_result"]
        blocks = [r.content[0] for r in results if isinstance(r, events.AgentToolResult)]
        assert [isinstance(block, BlobBlock) for block in blocks] == [False, False, True, True]
        shown = sum(len(getattr(b, "text", "") or getattr(b, "preview", "")) for b in blocks)
        assert shown < 205_000


@pytest.mark.parametrize("concurrent", [False, True])
async def test_a_failing_call_cancels_later_concurrent_calls_of_its_tool(
    tmp_path: Path, concurrent: bool
):
    began = anyio.Event()

    async def patient(call: Call) -> ToolResult:
        if call.input["x"] == "bad":
            await began.wait()
            return ToolResult.text("it broke", ok=False, error="failed")
        began.set()
        await anyio.sleep_forever()
        return ToolResult.text("never")

    tool = failing_tool(concurrent=concurrent)
    if concurrent:
        tool = replace(tool, run=patient)
    other = replace(echo("other"), traits=always(Traits(concurrent=concurrent)))
    model = Scripted(
        calls("bash", x="bad") + calls("bash", x="next") + calls("other", x="1"), says("ok")
    )
    async with stage(tmp_path, model, tool, other) as play:
        with anyio.fail_after(60):
            await play.play("go")
        results = [e.payload for e in await play.events() if e.type == "agent.tool_result"]
        found = {r.tool_use_id: r.error for r in results if isinstance(r, events.AgentToolResult)}
        asked = [e.id for e in await play.events() if e.type == "agent.tool_use"]
        assert [found[call_id] for call_id in asked] == ["failed", "cancelled", None]


async def test_a_sandbox_failure_becomes_a_result_for_the_model(tmp_path: Path):
    async def run(_: Call) -> ToolResult:
        raise SandboxFailed("no isolation here: install bubblewrap")

    async with stage(
        tmp_path, Scripted(calls("echo"), says("ok")), replace(echo(), run=run)
    ) as play:
        assert await play.play("go") == Ended("completed")
        [result] = [e.payload for e in await play.events() if e.type == "agent.tool_result"]
        assert isinstance(result, events.AgentToolResult)
        assert result.error == "unavailable"


async def test_any_exception_of_a_tool_becomes_a_result_for_the_model(tmp_path: Path):
    async def run(_: Call) -> ToolResult:
        raise KeyError("oops")

    tool = replace(echo(), run=run, traits=always(SAFE_READ))
    async with stage(tmp_path, Scripted(calls("echo"), says("ok")), tool) as play:
        assert await play.play("go") == Ended("completed")
        assert texts(await play.events(), "agent.tool_result") == ["KeyError: 'oops'"]


async def test_context_from_a_prompt_hook_reaches_the_model(tmp_path: Path):
    gate = RecordingAuthorizer(
        hook_results={"UserPromptSubmit": HookResult(context=("the build is red",))}
    )
    model = Scripted(says("hello"))
    async with stage(tmp_path, model, authorizer=gate) as play:
        await play.play("hi")
        assert "the build is red" in repr(model.requests[0].messages)


async def test_a_stop_hook_sends_the_model_back_until_it_gives_in(tmp_path: Path):
    authorizer = RecordingAuthorizer(
        hook_results={"Stop": HookResult(blocked=True, reason="run the tests")}
    )
    model = Scripted(otherwise=says("done"))
    async with stage(tmp_path, model, authorizer=authorizer) as play:
        assert await play.play("go") == Ended("completed")
        assert "run the tests" in repr(model.requests[1].messages)
        told = [hook_event.fields["stop_hook_active"] for hook_event in authorizer.heard("Stop")]
        assert told[:2] == [False, True]


class CountingSnapshots:
    """Snapshots of nothing, counted."""

    def __init__(self) -> None:
        self.taken = 0

    async def take(self) -> tuple[str, int]:
        self.taken += 1
        return f"sha256:{self.taken}", 1


async def test_only_turns_with_effects_have_snapshots(tmp_path: Path):
    snapshots = CountingSnapshots()
    read = replace(echo("read"), traits=always(SAFE_READ))
    model = Scripted(calls("read"), calls("echo"), calls("read"), calls("echo"), says("ok"))
    async with stage(tmp_path, model, read, echo(), snapshots=snapshots) as play:
        await play.play("go")
        kinds = await play.kinds()
        assert kinds.count("workspace.snapshotted") == 3  # one before the first effect
        assert kinds[: kinds.index("workspace.snapshotted")].count("tool_call.started") == 1
