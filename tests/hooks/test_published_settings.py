"""Settings as people publish them for Claude Code: they run here unchanged."""

import shutil

import pytest
from tests.hooks.hook_project import ALIASES, Project, at, before

from mainspring.capabilities.hooks import HookPolicy
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent

TRUSTING = HookPolicy(
    trusted=frozenset(("managed", "user", "project")), aliases={**ALIASES, "MultiEdit": "edit"}
)


async def test_a_published_command_validator_denies_a_forbidden_command(project: Project):
    runner = project.runner(project.install("validator"), policy=TRUSTING)
    hook_result = await runner.run(before("bash", command="rm -rf build"))
    assert (hook_result.permission, hook_result.reason) == ("deny", "• rm -rf is not allowed here")
    assert [fact.outcome for fact in hook_result.hook_runs] == ["blocked"]
    assert hook_result.hook_runs[0].tool_use_id == "toolu_1"


async def test_a_published_command_validator_allows_other_commands(project: Project):
    runner = project.runner(project.install("validator"), policy=TRUSTING)
    hook_result = await runner.run(before("bash", command="ls"))
    assert (hook_result.permission, hook_result.blocked) == (None, False)
    assert [fact.outcome for fact in hook_result.hook_runs] == ["ok"]


@pytest.mark.parametrize(("path", "blocked"), [(".env", True), ("main.py", False)])
async def test_a_published_file_guard_blocks_protected_files(
    project: Project, path: str, blocked: bool
):
    runner = project.runner(project.install("validator"), policy=TRUSTING)
    assert (await runner.run(before("write", file_path=path, content="x"))).blocked is blocked


@pytest.mark.skipif(shutil.which("jq") is None, reason="the published command uses jq")
async def test_a_published_formatter_runs_on_edited_files(project: Project):
    project.program("npx", 'test "$1 $2" = "prettier --write" && echo formatted >> "$3"')
    runner = project.runner(project.install("formatter"), policy=TRUSTING)
    edited = project.root / "app.ts"
    for tool, path in [("edit", edited), ("write", project.root / "app.py"), ("bash", edited)]:
        fields = {"tool_name": tool, "tool_input": {"file_path": str(path)}, "tool_response": {}}
        await runner.run(HookEvent(event="PostToolUse", subject=tool, fields=fields))
    assert edited.read_text() == "formatted\n"
    assert not (project.root / "app.py").exists()


async def test_published_notifications_and_sounds_run(project: Project):
    played = project.root / "played"
    project.program("notify-send", f'echo "$1: $2" >> {played}')
    project.program("afplay", f'echo "$1" >> {played}')
    config = project.install("sounds")
    runner = project.runner(config, policy=TRUSTING)
    await runner.run(at("Notification", "permission_prompt", message="?"))
    assert (await runner.run(at("Stop", stop_hook_active=False))).blocked is False
    assert played.read_text().splitlines() == [
        "Claude Code: Awaiting your input",
        "/System/Library/Sounds/Glass.aiff",
    ]
    assert "WorktreeCreate never happens here" in runner.warnings[0]


async def test_a_missing_player_is_reported_and_blocks_nothing(project: Project):
    runner = project.runner(project.install("sounds"), policy=TRUSTING)
    hook_result = await runner.run(at("Stop", stop_hook_active=False))
    assert (hook_result.blocked, [f.outcome for f in hook_result.hook_runs]) == (False, ["failed"])
    assert "exited with 127" in hook_result.messages[0]


async def test_a_published_session_start_script_adds_context(project: Project):
    runner = project.runner(project.install("workday"), policy=TRUSTING)
    hook_result = await runner.run(at("SessionStart", "startup", source="startup"))
    assert hook_result.context == ("Branch: main\nOpen issues: 3",)
    assert await runner.run(at("SessionStart", "compact")) == EMPTY_HOOK_RESULT


async def test_a_published_prompt_hook_adds_context_or_blocks(project: Project):
    runner = project.runner(project.install("workday"), policy=TRUSTING)
    hook_result = await runner.run(at("UserPromptSubmit", prompt="fix the build"))
    assert (hook_result.blocked, hook_result.context) == (False, ("Current sprint: 42",))
    hook_result = await runner.run(at("UserPromptSubmit", prompt="my password: 1234"))
    assert hook_result.blocked
    assert hook_result.reason == "Security policy violation: prompt contains potential secrets."


async def test_a_published_stop_hook_sends_the_agent_back_once(project: Project):
    runner = project.runner(project.install("workday"), policy=TRUSTING)
    result = await runner.run(at("Stop", stop_hook_active=False))
    assert (result.blocked, result.reason) == (True, "Run the test suite before finishing.")
    result = await runner.run(at("Stop", stop_hook_active=True))
    assert result.blocked is False


async def test_settings_of_an_untrusted_project_never_run(project: Project):
    runner = project.runner(project.install("workday"))
    for hook_event in (
        at("SessionStart", "startup"),
        at("UserPromptSubmit", prompt="x"),
        at("Stop"),
    ):
        assert await runner.run(hook_event) == EMPTY_HOOK_RESULT
    assert (
        "its 3 hooks do not run: files of the scope project are not trusted" in runner.warnings[0]
    )
