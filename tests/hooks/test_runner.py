"""All hooks of a session together: who is asked, what holds, and what a failure comes to."""

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import anyio
import pytest
from tests.hooks.hook_project import Project, at, before, command, configured

from mainspring.capabilities.hooks import HookPolicy, HookRunner, HookSession, Scope
from mainspring.capabilities.hooks.verdict import GATE_EVENTS
from mainspring.core.events import HookRan
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent, HookEventName, HookResult, Hooks

OPEN = HookPolicy(fail_open=True)
TRUSTING = HookPolicy(trusted=frozenset(("managed", "user", "project", "local")))
EVENTS: tuple[HookEventName, ...] = get_args(HookEventName)


def lines(project: Project) -> list[str]:
    file = project.root / "ran"
    return file.read_text().splitlines() if file.exists() else []


def decision_hook(decision: str) -> dict[str, object]:
    said = f'{{"hookSpecificOutput": {{"permissionDecision": "{decision}"}}}}'
    return command(f"echo '{said}'")


async def test_a_runner_without_hooks_returns_an_empty_result(project: Project):
    hooks: Hooks = project.runner()
    assert await hooks.run(before()) == EMPTY_HOOK_RESULT


@pytest.mark.parametrize("event", EVENTS)
async def test_a_failing_hook_blocks_gate_events_and_is_reported_for_others(
    project: Project, event: HookEventName
):
    runner = project.runner(configured(event, command("exit 1")))
    hook_result = await runner.run(at(event))
    assert hook_result.blocked is (event in GATE_EVENTS)
    assert [fact.outcome for fact in hook_result.hook_runs] == ["failed"]
    if event not in GATE_EVENTS:
        assert hook_result.messages == ("hook exit 1 exited with 1",)


@pytest.mark.parametrize("event", sorted(GATE_EVENTS))
@pytest.mark.parametrize("text", ["exit 1", "echo '{'", "sleep 60"])
async def test_with_fail_open_a_failing_hook_does_not_block(
    project: Project, event: HookEventName, text: str
):
    runner = project.runner(configured(event, command(text, timeout=0.1)), policy=OPEN)
    hook_result = await runner.run(at(event))
    assert (hook_result.blocked, hook_result.permission) == (False, None)
    assert hook_result.messages[0].startswith(f"hook {text} ")


async def test_fail_open_does_not_override_a_hook_that_denies(project: Project):
    runner = project.runner(configured("PreToolUse", command("exit 2")), policy=OPEN)
    assert (await runner.run(before())).permission == "deny"


@pytest.mark.parametrize(
    ("decisions", "together"),
    [
        (["allow", "ask"], "ask"),
        (["allow", "defer", "ask"], "defer"),
        (["allow", "defer", "ask", "deny"], "deny"),
        (["allow"], "allow"),
    ],
)
async def test_the_strictest_decision_wins(project: Project, decisions: list[str], together: str):
    runner = project.runner(configured("PreToolUse", *map(decision_hook, decisions)))
    assert (await runner.run(before())).permission == together


async def test_hooks_run_concurrently(project: Project):
    # Each waits for the other's word, so one after the other would never end.
    meet = "mkfifo a b 2>/dev/null; "
    first = command(meet + "echo 1 > a; read x < b")
    second = command(meet + "read x < a; echo 1 > b")
    runner = project.runner(configured("PostToolUse", first, second))
    with anyio.fail_after(60):
        hook_result = await runner.run(at("PostToolUse", "bash"))
    assert [fact.outcome for fact in hook_result.hook_runs] == ["ok", "ok"]


async def test_the_first_rewritten_input_counts_and_contexts_are_concatenated(project: Project):
    def says(number: int) -> dict[str, object]:
        output = f'{{"updatedInput": {{"n": {number}}}, "additionalContext": "{number}"}}'
        return command(f"echo '{{\"hookSpecificOutput\": {output}}}'")

    user = configured("PreToolUse", says(3))
    managed = configured("PreToolUse", says(1), says(2), scope="managed")
    hook_result = await project.runner(user, managed).run(before())
    assert (hook_result.updated_input, hook_result.context) == ({"n": 1}, ("1", "2", "3"))


async def test_a_handler_configured_several_times_runs_once(project: Project):
    handler = command("echo x >> ran")
    configs = [
        configured("PreToolUse", handler, scope="managed", matcher="Bash"),
        configured("PreToolUse", handler, matcher="*"),
        configured("PreToolUse", handler, matcher="^Ba"),
    ]
    await project.runner(*configs).run(before())
    assert lines(project) == ["x"]


@pytest.mark.parametrize("scope", ["project", "local"])
async def test_hooks_of_an_untrusted_scope_never_run(project: Project, scope: Scope):
    others = [
        {"type": "http", "url": "http://127.0.0.1:9/"},
        {"type": "prompt", "prompt": "?"},
        {"type": "mcp_tool", "server": "s", "tool": "t"},
    ]
    config = configured("PreToolUse", command("echo x >> ran"), *others, scope=scope)
    runner = project.runner(config)
    assert await runner.run(before()) == EMPTY_HOOK_RESULT
    assert lines(project) == []
    assert runner.warnings == (
        f"{scope}/settings.json: its 4 hooks do not run: "
        f"files of the scope {scope} are not trusted here",
    )
    await project.runner(config, policy=TRUSTING).run(before())
    assert lines(project) == ["x"]


async def test_a_condition_is_evaluated_with_the_permission_rules(project: Project):
    heard: list[object] = []

    def matches(rule: str, tool: str, given: Mapping[str, object]) -> bool:
        heard.append((rule, tool, given))
        return given.get("command") == "git push"

    config = configured("PreToolUse", command("exit 2", **{"if": "Bash(git push *)"}))
    runner = project.runner(config, session=HookSession(fields=project.told, matches_rule=matches))
    assert await runner.run(before(command="ls")) == EMPTY_HOOK_RESULT
    assert (await runner.run(before(command="git push"))).blocked
    assert heard[1] == ("Bash(git push *)", "bash", {"command": "git push"})


async def test_a_condition_that_cannot_be_evaluated_counts_as_met(project: Project):
    def matches(_rule: str, _tool: str, _given: Mapping[str, object]) -> bool:
        raise RuntimeError

    config = configured("PreToolUse", command("exit 2", **{"if": "Bash(("}))
    runner = project.runner(config, session=HookSession(fields=project.told, matches_rule=matches))
    assert (await runner.run(before())).blocked


async def test_a_condition_on_an_event_without_a_call_is_not_met(project: Project):
    config = configured("Stop", command("exit 2", **{"if": "Bash(ls)"}))
    assert await project.runner(config).run(at("Stop")) == EMPTY_HOOK_RESULT


async def test_a_once_hook_runs_once_even_after_a_restart(project: Project):
    config = configured("PreToolUse", command("echo x >> ran", once=True))
    runner = project.runner(config)
    ran = (await runner.run(before())).hook_runs
    assert await runner.run(before()) == EMPTY_HOOK_RESULT
    session = HookSession(fields=project.told, ran_before=[(f.hook_event, f.handler) for f in ran])
    assert await project.runner(config, session=session).run(before()) == EMPTY_HOOK_RESULT
    assert lines(project) == ["x"]


@pytest.mark.parametrize("text", ["exit 2", "exit 1"])
async def test_a_once_hook_that_denied_runs_again(project: Project, text: str):
    runner = project.runner(configured("PreToolUse", command(text, once=True)))
    assert (await runner.run(before())).blocked
    assert (await runner.run(before())).blocked


async def test_an_event_without_a_subject_ignores_the_matcher(project: Project):
    config = configured("Stop", command("exit 2"), matcher="Bash")
    assert (await project.runner(config).run(at("Stop"))).blocked


async def test_no_handler_runs_longer_than_the_maximum(project: Project):
    policy = HookPolicy(max_seconds=0.1)
    runner = project.runner(
        configured("PreToolUse", command("sleep 60", timeout=50)), policy=policy
    )
    with anyio.fail_after(60):
        assert (await runner.run(before())).hook_runs[0].outcome == "timed_out"


async def test_an_event_that_cannot_be_encoded_denies(project: Project):
    hook_event = replace(before(), fields={"tool_input": object()})
    hook_result = await project.runner(configured("PreToolUse", command("true"))).run(hook_event)
    assert hook_result.permission == "deny"
    assert "could not receive the event" in (hook_result.reason or "")


async def test_fields_cannot_override_the_event_name(project: Project):
    runner = project.runner(configured("SessionStart", command("cat")))
    hook_result = await runner.run(at("SessionStart", hook_event_name="Stop"))
    assert hook_result.messages == ()
    assert [fact.outcome for fact in hook_result.hook_runs] == ["ok"]


async def run_until_reported(runner: HookRunner, hook_event: HookEvent) -> HookResult:
    """What comes of hooks in the background, asked for as a session does: by going on."""
    with anyio.fail_after(60):
        while True:
            hook_result = await runner.run(hook_event)
            if any("async" in fact.handler for fact in hook_result.hook_runs):
                return hook_result


ASYNC = (
    '# async\necho \'{"systemMessage": "done", "hookSpecificOutput": {"additionalContext": "c"}}\''
)


async def test_a_background_hook_reports_at_a_later_event(project: Project):
    config = configured("PostToolUse", command(ASYNC, **{"async": True}))
    going_on = configured("PreToolUse", command("true"))
    async with project.runner(config, going_on) as runner:
        assert (await runner.run(at("PostToolUse", "bash"))) == EMPTY_HOOK_RESULT
        hook_result = await run_until_reported(runner, before())
    assert (hook_result.messages, hook_result.context) == (("done",), ("c",))


async def test_background_context_waits_for_an_event_that_reaches_the_model(project: Project):
    config = configured("PostToolUse", command(ASYNC, **{"async": True}))
    going_on = configured("Notification", command("true"))
    async with project.runner(config, going_on) as runner:
        await runner.run(at("PostToolUse", "bash"))
        hook_result = await run_until_reported(runner, at("Notification"))
        assert (hook_result.messages, hook_result.context) == (("done",), ())
        assert (await runner.run(before())).context == ("c",)
        assert await runner.run(before()) == EMPTY_HOOK_RESULT


@pytest.mark.parametrize("event", ["PostToolUse", "PreToolUse", "Stop"])
async def test_a_denial_of_a_background_hook_wakes_the_session(
    project: Project, event: HookEventName
):
    woken: list[str] = []
    awake = anyio.Event()

    async def wake(words: str) -> None:
        woken.append(words)
        awake.set()

    config = configured(event, command("echo failed >&2; exit 2", asyncRewake=True))
    session = HookSession(fields=project.told, wake=wake)
    async with project.runner(config, session=session) as runner:
        assert (await runner.run(at(event, "bash"))).blocked is False
        with anyio.fail_after(60):
            await awake.wait()
    assert woken == ["failed"]


async def test_without_a_wake_callback_a_background_denial_is_added_later(project: Project):
    text = "# async\necho failed >&2; exit 2"
    config = configured("PostToolUse", command(text, asyncRewake=True))
    going_on = configured("PreToolUse", command("true"))
    async with project.runner(config, going_on) as runner:
        await runner.run(at("PostToolUse", "bash"))
        hook_result = await run_until_reported(runner, before())
    assert (hook_result.context, hook_result.blocked) == (("failed",), False)
    assert [fact.outcome for fact in hook_result.hook_runs] == ["ok", "ok"]


async def test_background_hooks_are_limited_and_end_with_the_runner(project: Project):
    config = configured("Notification", command("# async\nsleep 600", **{"async": True}))
    facts: list[HookRan] = []
    with anyio.fail_after(60):
        async with project.runner(config) as runner:
            for _ in range(18):
                facts.extend((await runner.run(at("Notification"))).hook_runs)
    assert [fact.reason for fact in facts] == ["was not started: 16 are running already"]


async def test_a_runner_that_is_not_open_starts_no_background_hook(project: Project):
    config = configured("PreToolUse", command("echo x >> ran", **{"async": True}))
    runner = project.runner(config)
    assert (await runner.run(before())).blocked is False
    [fact] = (await runner.run(at("Stop"))).hook_runs
    assert fact.outcome == "failed"
    assert lines(project) == []
