"""What a session may do in each mode, through everything that judges a call in earnest."""

from datetime import timedelta

import pytest
from tests.abilities import require_hidden_files, require_sandbox
from tests.session_e2e.session_setup import (
    DONE,
    MODEL,
    Scene,
    begin,
    leave,
    read_results,
    rule,
    spoken,
)

from mainspring.capabilities.providers.scripted import calls, says
from mainspring.core import clock
from mainspring.core.events import (
    ModelRequestEnded,
    PermissionUpdate,
    SandboxOpened,
    ToolCallStarted,
)
from mainspring.core.model import Request
from mainspring.core.tool import Tool
from mainspring.function_tools.define import tool
from mainspring.harness.permissions.classifier import SYSTEM
from mainspring.wiring.settings_files import add_local_rules, trust


def looking_tool(looked: list[str]) -> Tool:
    """A tool of an MCP server, which says of itself that it only reads."""

    @tool(name="mcp__zoo__look", read_only=True, concurrent=True)
    async def look(at: str) -> str:
        """Look at an animal."""
        looked.append(at)
        return f"{at} is asleep"

    return look


ALLOW = '{"decision": "allow", "reason": "it is what was asked for"}'
BLOCK = '{"decision": "block", "reason": "too risky"}'


async def test_read_only_calls_run_without_approval(scene: Scene):
    scene.write("notes.txt", "one\ntwo\n")
    async with scene.play(
        calls("read", file_path="notes.txt")
        + calls("grep", pattern="two")
        + calls("glob", pattern="*.txt")
        + calls("bash", command="cat notes.txt | wc -l")
        + calls("think", thought="hm")
    ) as play:
        assert (await play.run()).reason == "completed"
        read, grep, glob, bash, _ = await play.results()
        assert "two" in read
        assert "notes.txt" in grep
        assert "notes.txt" in glob
        assert bash.strip() == "2"
        assert {decision for decision, _, _ in await play.decisions()} == {"allow"}
        [opened] = await play.events(SandboxOpened)
        assert (opened.level, opened.workspace) == (require_sandbox().level, str(scene.workspace))
        started = await play.events(ToolCallStarted)
        assert all(opened.backend in (item.sandbox or "") for item in started)


async def test_an_edit_waits_with_its_diff_and_then_does_exactly_that(scene: Scene):
    scene.write("app.py", "a = 1\nb = 2\n")
    async with scene.play(
        calls("read", file_path="app.py"),
        calls("edit", file_path="app.py", old_string="b = 2", new_string="b = 3"),
    ) as play:
        result = await play.run()
        assert (result.reason, len(result.waiting_for)) == ("requires_action", 1)
        asked = await play.asked()
        assert asked.preview is not None
        assert "-b = 2\n+b = 3" in asked.preview
        assert asked.reason is not None
        assert asked.reason.startswith("no rule allows it")
        assert scene.read("app.py") == "a = 1\nb = 2\n"
        assert (await play.allow(result)).ok
        assert scene.read("app.py") == "a = 1\nb = 3\n"
        assert (await play.decisions())[-1][:2] == ("allow", "person")


async def test_a_command_waits_for_approval_and_runs_once(scene: Scene):
    async with scene.play(calls("bash", command="echo more >> count.txt")) as play:
        result = await play.run()
        asked = await play.asked()
        assert (asked.preview, asked.gate) == ("echo more >> count.txt", "default")
        assert not (scene.workspace / "count.txt").exists()
        assert (await play.allow(result)).ok
        assert scene.read("count.txt") == "more\n"


async def test_a_denial_reaches_the_model_with_its_reason(scene: Scene):
    async with scene.play(calls("bash", command="touch made.txt")) as play:
        assert (await play.deny(await play.run(), "not on a Friday")).ok
        [told] = read_results(play.model.requests[-1])
        assert "not on a Friday" in told
        assert not (scene.workspace / "made.txt").exists()


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_an_approved_edit_of_a_changed_file_is_not_applied(scene: Scene, is_resumed: bool):
    scene.write("app.py", "a = 1\nb = 2\n")
    edit = calls("edit", file_path="app.py", old_string="b = 2", new_string="b = 3")
    async with scene.play(calls("read", file_path="app.py"), edit) as play:
        result = await play.run()
        if not is_resumed:
            scene.write("app.py", "a = 9\nb = 2\n")
            await play.allow(result)
            assert "changed" in (await play.results())[-1]
    if is_resumed:
        scene.write("app.py", "a = 9\nb = 2\n")
        async with scene.play(go_on=result.session_id) as play:
            await play.allow(result)
            assert "changed" in (await play.results())[-1]
    assert scene.read("app.py") == "a = 9\nb = 2\n"


async def test_an_approval_is_void_if_its_preview_has_changed(scene: Scene):
    scene.write("app.py", "a = 1\n")
    write = calls("write", file_path="new.py", content="b = 2\n")
    async with scene.play(write) as play:
        result = await play.run()
    scene.write("new.py", "c = 3\n")
    async with scene.play(go_on=result.session_id) as play:
        again = await play.allow(result)
        assert again.reason == "requires_action", await play.results()
        asked = await play.asked()
        assert asked.reason == "what it would do has changed since it was approved"
        assert "-c = 3" in (asked.preview or "")
    assert scene.read("new.py") == "c = 3\n"


async def test_an_approval_is_valid_in_another_process(scene: Scene):
    scene.write("app.py", "a = 1\n")
    edit = calls("edit", file_path="app.py", old_string="a = 1", new_string="a = 2")
    async with scene.play(calls("read", file_path="app.py"), edit) as play:
        result = await play.run()
    async with scene.play(go_on=result.session_id) as play:
        assert (await play.allow(result)).ok
    assert scene.read("app.py") == "a = 2\n"


async def test_accept_edits_allows_edits_and_asks_about_commands(scene: Scene):
    async with scene.play(
        calls("write", file_path="a/b.txt", content="x"),
        calls("bash", command="mkdir -p c && cp a/b.txt c/"),
        calls("bash", command="python3 -c 'print(1)'"),
        mode="acceptEdits",
    ) as play:
        assert (await play.run()).reason == "requires_action"
        assert scene.read("c/b.txt") == "x"
        decisions = await play.decisions()
        assert decisions[:2] == [("allow", "mode", "acceptEdits")] * 2
        assert decisions[2][0] == "ask"


@pytest.mark.parametrize("mode", ["acceptEdits", "auto"])
@pytest.mark.parametrize("path", [".git/info/exclude", ".claude/settings.json", "sub/.npmrc"])
async def test_a_protected_path_needs_approval_in_every_mode(scene: Scene, mode: str, path: str):
    async with scene.play(
        calls("write", file_path=path, content="x"),
        mode=mode,  # pyright: ignore[reportArgumentType] (both are modes)
    ) as play:
        assert (await play.run()).reason == "requires_action"
        assert (await play.decisions())[-1] == ("ask", "guardrail", "protected path")


async def test_a_protected_folder_is_protected_from_a_shell_already_inside_it(scene: Scene):
    scene.write(".git/HEAD", "ref: refs/heads/main\n")
    scene.write("generated/api.py", "old\n")
    scene.user(permissions={"deny": ["Edit(generated/**)"]})
    async with scene.play(
        calls("bash", command="cd .git"),
        calls("bash", command="cp HEAD packed-refs"),
        mode="acceptEdits",
    ) as play:
        result = await play.run()
        assert result.reason == "requires_action"
        assert not (scene.workspace / ".git/packed-refs").exists()
        await play.deny(result, "no")
        play = await begin(
            play.runtime, calls("bash", command="cd generated"), calls("bash", command="rm api.py")
        )
        await play.run()
        assert (await play.decisions())[-1] == ("deny", "rule", "Edit(generated/**)")
        assert scene.read("generated/api.py") == "old\n"


async def test_plan_mode_changes_nothing_and_shows_what_it_would_do(scene: Scene):
    scene.write("app.py", "a = 1\n")
    async with scene.play(
        calls("read", file_path="app.py"),
        calls("edit", file_path="app.py", old_string="a = 1", new_string="a = 2"),
        calls("bash", command="touch x"),
        mode="plan",
    ) as play:
        assert (await play.run()).ok
        _, edit, bash = await play.results()
        assert "It would do this" in edit
        assert "-a = 1\n+a = 2" in edit
        assert "Not allowed: the mode plan" in bash
        assert scene.read("app.py") == "a = 1\n"
        assert not (scene.workspace / "x").exists()


async def test_dont_ask_mode_denies_calls_that_would_need_approval(scene: Scene):
    scene.user(permissions={"allow": ["Bash(touch good)"]})
    async with scene.play(
        calls("bash", command="touch good"), calls("bash", command="touch bad"), mode="dontAsk"
    ) as play:
        assert (await play.run()).ok
        assert [decision[0] for decision in await play.decisions()] == ["allow", "deny"]
        assert (scene.workspace / "good").exists()
        assert not (scene.workspace / "bad").exists()


async def test_bypass_mode_allows_everything_but_denied_calls_in_a_real_sandbox(scene: Scene):
    scene.user(permissions={"deny": ["Bash(rm *)"]})
    async with scene.play(
        calls("bash", command="echo x > y; python3 -c 'print(6*7)'"),
        calls("bash", command="rm y"),
        mode="bypassPermissions",
    ) as play:
        assert (await play.run()).ok
        first, second = await play.results()
        assert "42" in first
        assert "Not allowed" in second
        assert scene.read("y") == "x\n"


def is_classifier_request(request: Request) -> bool:
    return any(SYSTEM in part for part in request.system)


async def test_auto_mode_asks_a_model_and_after_three_denials_a_person(scene: Scene):
    running = [calls("bash", command=f'python3 -c \'open("f{n}", "w")\'') for n in range(5)]
    async with scene.play(
        *(running[0], says(ALLOW)),
        *(running[1], says(BLOCK)),
        *(running[2], says("yes, by all means")),
        *(running[3], says(BLOCK)),
        running[4],
        mode="auto",
    ) as play:
        result = await play.run()
        assert result.reason == "requires_action"
        assert "denied too many calls" in ((await play.asked()).reason or "")
        assert [path.name for path in scene.workspace.glob("f*")] == ["f0"]
        questions = [request for request in play.model.requests if is_classifier_request(request)]
        assert len(questions) == 4
        assert not any(read_results(question) for question in questions)
        assert all(not question.tools for question in questions)
        assert spoken(questions[0]).count("<action>") == 1
        assert spoken(questions[3]).count("<action>") == 4  # with what it did before
        ended = await play.events(ModelRequestEnded)
        judgements = [item for item in ended if item.purpose == "judgement"]
        assert len(judgements) == 4
        assert all(float(judgement.cost_usd or 0) > 0 for judgement in judgements)
        total = sum(float(item.cost_usd or 0) for item in ended)
        assert float(result.cost_usd) == pytest.approx(total)
        assert (await play.allow(result)).ok
        assert (scene.workspace / "f4").exists()


async def test_a_grant_ends_after_its_maximum_uses(scene: Scene):
    async with scene.play(
        calls("bash", command="touch a") + calls("bash", command="touch b")
    ) as play:
        await play.session.permit(leave("Bash(touch *)", max_uses=1, grant_id="once"))
        assert (await play.run()).reason == "requires_action"
        assert (await play.decisions())[0] == ("allow", "grant", "once")
        assert (scene.workspace / "a").exists()
        assert not (scene.workspace / "b").exists()


async def test_a_grant_for_one_read_is_used_up_by_a_speculative_read(scene: Scene):
    looked: list[str] = []
    async with scene.play(
        calls("mcp__zoo__look", at="a")
        + calls("mcp__zoo__look", at="b")
        + calls("mcp__zoo__look", at="c"),
        tools=[looking_tool(looked)],
    ) as play:
        await play.session.permit(leave("mcp__zoo__look", max_uses=1, grant_id="once"))
        result = await play.run()
        assert looked == ["a"]
        assert result.reason == "requires_action"
        assert [decision[0] for decision in await play.decisions()] == ["allow", "ask", "ask"]


async def test_an_expired_or_revoked_grant_allows_nothing(scene: Scene):
    async with scene.runtime() as runtime:
        play = await begin(runtime, calls("bash", command="touch a"))
        past = (clock.now() - timedelta(seconds=1)).isoformat()
        await play.session.permit(leave("Bash(touch *)", expires_at=past))
        assert (await play.run()).reason == "requires_action"
        play = await begin(
            runtime, calls("bash", command="touch b"), DONE, calls("bash", command="touch c")
        )
        future = (clock.now() + timedelta(hours=1)).isoformat()
        await play.session.permit(leave("Bash(touch *)", expires_at=future))
        assert (await play.run()).ok
        gone = PermissionUpdate(type="removeRules", rules=(rule("Bash(touch *)"),))
        await play.session.permit(gone)
        assert (await play.run("again")).reason == "requires_action"
        assert [path.name for path in scene.workspace.glob("?")] == ["b"]


async def test_always_allow_adds_a_rule_to_the_local_settings_of_a_trusted_folder(scene: Scene):
    require_hidden_files()  # the settings are in .mainspring
    trust(scene.workspace, home=scene.home)
    add_local_rules(scene.workspace, ["Bash(touch *)"], home=scene.home)
    async with scene.play(calls("bash", command="touch a && ls")) as play:
        assert (await play.run()).ok
        assert (await play.decisions())[0] == ("allow", "rule", "Bash(touch *)")


async def test_a_rule_that_denies_a_whole_tool_hides_it_from_the_model(scene: Scene):
    scene.user(permissions={"deny": ["Bash", "mcp__zoo", "Read(.env)"]})
    scene.write(".env", "x")
    looked: list[str] = []
    async with scene.play(
        calls("bash", command="ls")
        + calls("read", file_path=".env")
        + calls("mcp__zoo__look", at="a"),
        tools=[looking_tool(looked)],
    ) as play:
        assert (await play.run()).ok
        offered = {spec.name for spec in play.model.requests[0].tools}
        assert "read" in offered
        assert offered.isdisjoint({"bash", "service_start", "mcp__zoo__look"})
        assert all(result != "x" for result in await play.results())
        assert looked == []
    assert play.session.agent.model == MODEL
