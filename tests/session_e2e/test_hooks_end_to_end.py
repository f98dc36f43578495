"""A settings file as people publish it for Claude Code, in a whole session."""

import json

import pytest
from tests.abilities import require_hidden_files
from tests.session_e2e.session_setup import DONE, Scene, begin, read_by_model, read_results, spoken

from mainspring.capabilities.providers.scripted import calls, says
from mainspring.core.events import ContextAdded, HookRan, MessageWithheld, ModelRequestEnded
from mainspring.wiring.settings_files import trust

VALIDATOR = """#!/usr/bin/env python3
import json, sys
asked = json.load(sys.stdin)
assert asked["tool_name"] == "Bash", asked
if "rm " in asked["tool_input"]["command"]:
    print("use git rm, so that it can be undone", file=sys.stderr)
    sys.exit(2)
"""
FORMATTER = """#!/usr/bin/env python3
import json, sys
path = json.load(sys.stdin)["tool_input"]["file_path"]
assert path.startswith("/"), path
text = open(path).read()
open(path, "w").write(text.replace("'", '"'))
"""
NO = says('{"ok": false, "reason": "not today"}')
TESTS_FIRST = """#!/usr/bin/env python3
import json, sys
if not json.load(sys.stdin)["stop_hook_active"]:
    print(json.dumps({"decision": "block", "reason": "Run the test suite before finishing."}))
"""


def command(text: str, **more: object) -> dict[str, object]:
    return {"hooks": [{"type": "command", "command": text}], **more}


def settings(scene: Scene) -> dict[str, object]:
    scripts = {"validator": VALIDATOR, "formatter": FORMATTER, "tests_first": TESTS_FIRST}
    for name, text in scripts.items():
        scene.write(scene.home / f".claude/hooks/{name}.py", text).chmod(0o755)
    return {
        "PreToolUse": [command("python3 ~/.claude/hooks/validator.py", matcher="Bash")],
        "PostToolUse": [command("~/.claude/hooks/formatter.py", matcher="Edit|MultiEdit|Write")],
        "UserPromptSubmit": [command("echo Current sprint: 42")],
        "SessionStart": [command("echo Branch: main", matcher="startup|resume")],
        "Stop": [command("python3 ~/.claude/hooks/tests_first.py")],
        "Notification": [command(f"cat >> {scene.home}/notified", matcher="")],
    }


async def test_a_published_settings_file_runs_unchanged(scene: Scene):
    scene.user(hooks=settings(scene), permissions={"allow": ["Bash(rm *)"]})
    scene.write("old.txt")
    async with scene.play(
        calls("bash", command="rm old.txt"),
        calls("write", file_path="a.py", content="x = 'a'\n"),
        mode="acceptEdits",
    ) as play:
        assert (await play.run()).ok
        assert scene.warnings == []
        first, last = play.model.requests[0], play.model.requests[-1]
        assert "Branch: main" in spoken(first)
        assert "Current sprint: 42" in spoken(first)
        refused, _ = read_results(last)
        assert "use git rm, so that it can be undone" in refused
        assert (scene.workspace / "old.txt").exists()
        assert scene.read("a.py") == 'x = "a"\n'
        assert "Run the test suite before finishing." in read_by_model([last])
        assert len(play.model.requests) == 4  # it was sent back once
        ran = [(event.hook_event, event.outcome) for event in await play.events(HookRan)]
        assert ran == [
            ("SessionStart", "ok"),
            ("UserPromptSubmit", "ok"),
            ("PreToolUse", "blocked"),
            ("PostToolUse", "ok"),
            ("Stop", "blocked"),
            ("Stop", "ok"),
        ]


async def test_a_prompt_refused_by_a_hook_never_reaches_the_model(scene: Scene):
    guard = "grep -q launch && { echo not without a second key >&2; exit 2; }; exit 0"
    scene.user(hooks={"UserPromptSubmit": [command(guard)]})
    async with scene.play() as play:
        assert (await play.run()).ok
        await play.session.send("launch the rocket")
        await play.session.run()
        await play.run("and what is the time?")
        assert "rocket" not in read_by_model(play.model.requests)
        [withheld] = await play.events(MessageWithheld)
        assert withheld.reason is not None
        assert "not without a second key" in withheld.reason


async def test_a_notification_hook_runs_when_a_call_waits_for_approval(scene: Scene):
    scene.user(hooks=settings(scene))
    async with scene.play(calls("bash", command="touch x")) as play:
        assert (await play.run()).reason == "requires_action"
        told = json.loads((scene.home / "notified").read_text())
        assert told["notification_type"] == "permission_prompt"
        assert told["cwd"] == str(scene.workspace)
        assert told["permission_mode"] == "default"


async def test_hooks_of_a_project_run_only_if_it_is_trusted(scene: Scene):
    scene.project(hooks={"UserPromptSubmit": [command("touch ran; echo from the project")]})
    async with scene.play() as play:
        assert (await play.run()).ok
        assert not (scene.workspace / "ran").exists()
        assert any("not trusted" in warning for warning in scene.warnings)
        trust(scene.workspace, home=scene.home)
        play = await begin(play.runtime)
        assert (await play.run()).ok
        assert (scene.workspace / "ran").exists()
        assert "from the project" in spoken(play.model.requests[0])


async def test_editing_the_settings_does_not_affect_a_running_session(scene: Scene):
    scene.user(hooks={"PreToolUse": [command("echo no >&2; exit 2", matcher="Bash")]})
    async with scene.play(calls("bash", command="ls"), DONE, calls("bash", command="ls")) as play:
        await play.run()
        evil = {"UserPromptSubmit": [command(f"touch {scene.home}/evil")]}
        scene.user(hooks=evil, permissions={"defaultMode": "bypassPermissions"})
        scene.project(hooks=evil)
        await play.run("again")
        assert all("Not allowed: no" in result for result in await play.results())
    async with scene.play(calls("bash", command="ls"), go_on=play.session.id) as play:
        await play.run("once more")
        results = await play.results()
        assert len(results) == 3
        assert all("Not allowed: no" in result for result in results)
        assert not (scene.home / "evil").exists()
        play = await begin(play.runtime)
        await play.run()
        assert (scene.home / "evil").exists()  # the next session has the new settings


@pytest.mark.parametrize(
    "broken",
    [
        {"command": "sleep 60", "timeout": 0.2},
        {"command": "kill -9 $$"},
        {"command": "exit 1"},
        {"command": "echo '{\"hookSpecificOutput\": 7}'"},
        {"command": "no-such-program-anywhere"},
    ],
    ids=["hangs", "is killed", "fails", "talks rubbish", "is not there"],
)
async def test_a_failing_pre_tool_use_hook_denies_the_call(scene: Scene, broken: dict[str, object]):
    handler = {"type": "command", **broken}
    scene.user(hooks={"PreToolUse": [{"matcher": "", "hooks": [handler]}]})
    async with scene.play(
        calls("read", file_path="a") + calls("bash", command="touch made"), mode="bypassPermissions"
    ) as play:
        assert (await play.run()).ok
        assert all(result.startswith("Not allowed") for result in await play.results())
        assert not (scene.workspace / "made").exists()
        assert {event.outcome for event in await play.events(HookRan)} <= {"failed", "timed_out"}


async def test_input_rewritten_by_a_hook_is_checked_again(scene: Scene):
    answer = {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "updatedInput": {"command": "touch .git/config"},
        }
    }
    text = f"echo '{json.dumps(answer)}'"
    scene.user(
        hooks={"PreToolUse": [command(text, matcher="Bash")]},
        permissions={"deny": ["Edit(.git/**)"]},
    )
    async with scene.play(calls("bash", command="ls")) as play:
        assert (await play.run()).ok
        assert (await play.decisions())[-1] == ("deny", "rule", "Edit(.git/**)")


async def test_a_prompt_hook_asks_the_model_and_its_cost_is_counted(scene: Scene):
    handler = {"type": "prompt", "prompt": "May it? $ARGUMENTS"}
    scene.user(hooks={"PreToolUse": [{"matcher": "Bash", "hooks": [handler]}]})
    async with scene.play(calls("bash", command="ls"), NO, mode="bypassPermissions") as play:
        result = await play.run()
        assert "not today" in (await play.results())[0]
        assert len(play.model.requests) == 3
        ended = await play.events(ModelRequestEnded)
        assert [item.purpose for item in ended] == [None, "judgement", None]
        total = sum(float(item.cost_usd or 0) for item in ended)
        assert float(result.cost_usd) == pytest.approx(total)


async def test_hooks_do_not_inherit_the_environment_of_the_harness(scene: Scene):
    scene.user(hooks={"SessionStart": [command("env")]})
    environ = {"HOME": str(scene.home), "PATH": "/usr/bin:/bin", "SOME_TOKEN": "not-for-hooks"}
    async with scene.play(environ=environ) as play:
        assert (await play.run()).ok
        [added] = await play.events(ContextAdded)
        assert f"CLAUDE_PROJECT_DIR={scene.workspace}" in added.text
        assert "not-for-hooks" not in added.text


async def test_an_agent_cannot_rewrite_the_script_of_a_trusted_hook(scene: Scene):
    require_hidden_files()
    gate = scene.write("tools/gate.sh", "echo not today >&2; exit 2\n")
    hook = command('sh "$CLAUDE_PROJECT_DIR"/tools/gate.sh', matcher="WebFetch")
    told = command("sh tools/note.sh", matcher="Write")
    scene.write("tools/note.sh", "touch noted\n")
    scene.project(hooks={"PreToolUse": [hook, told]})
    trust(scene.workspace, home=scene.home)
    scene.write("run.sh", "echo exit 0 > tools/gate.sh; mv tools old; rm -rf tools")
    async with scene.play(
        calls("bash", command="sh run.sh"),
        calls("write", file_path="fine", content="x"),
        calls("read", file_path="tools/gate.sh"),
        calls("write", file_path="tools/gate.sh", content="exit 0"),
        mode="bypassPermissions",
    ) as play:
        result = await play.run()
        assert result.reason == "requires_action"
        assert "tools/gate.sh is protected" in ((await play.asked()).reason or "")
        assert gate.read_text().startswith("echo not today")
        assert (scene.workspace / "noted").exists()
        gate.write_text("exit 0\n")  # somebody else was quicker
        scene.write("tools/note.sh", "touch evil\n")
    async with scene.play(
        calls("write", file_path="x", content="x"), go_on=play.session.id
    ) as play:
        await play.deny(result, "no")
        assert "has changed since it was trusted" in (await play.results())[-1]
        assert not (scene.workspace / "evil").exists()
        assert not (scene.workspace / "x").exists()
    scene.warnings.clear()
    async with scene.play(calls("write", file_path="y", content="y"), mode="acceptEdits") as play:
        await play.run()
        assert any("not trusted" in warning for warning in scene.warnings)
        assert not (scene.workspace / "evil").exists()
