"""Hooks that call a server or run an agent, the end of a session, and what hooks say in a
person's place.
"""

import json
from collections.abc import Mapping
from decimal import Decimal

from tests.abilities import require_hidden_files
from tests.mcp.peers import NOTES_SERVER
from tests.session_e2e.session_setup import Scene, read_by_model

from mainspring.capabilities.providers.scripted import calls, says
from mainspring.core.events import HookRan, ModelRequestEnded
from mainspring.wiring.settings_files import trust

NO = says('{"ok": false, "reason": "the change log says no"}')


def hook(handler: Mapping[str, object], matcher: str = "") -> dict[str, object]:
    return {"matcher": matcher, "hooks": [handler]}


def command(text: str) -> dict[str, object]:
    return {"type": "command", "command": text}


def answer(**specific: object) -> dict[str, object]:
    return command(f"echo '{json.dumps({'hookSpecificOutput': specific})}'")


def with_server(scene: Scene) -> None:
    source = NOTES_SERVER.read_text()
    old = """return f"{name}: {given.get('text', 'x' * 150_000)}\""""
    assert old in source
    scene.write("server.py", source.replace(old, 'return given["text"]'))
    server = {"command": "python3", "args": ["server.py"]}
    scene.write(".mcp.json", json.dumps({"mcpServers": {"notes": server}}))
    trust(scene.workspace, home=scene.home)


async def test_an_mcp_tool_can_be_a_hook_that_decides(scene: Scene) -> None:
    with_server(scene)
    said = '{"decision": "block", "reason": "not ${tool_input.command}"}'
    handler = {"type": "mcp_tool", "server": "notes", "tool": "note", "input": {"text": said}}
    scene.user(hooks={"PreToolUse": [hook(handler, "Bash")]})
    async with scene.play(calls("bash", command="ls"), mode="bypassPermissions") as play:
        assert (await play.run()).ok
        assert "not ls" in (await play.results())[0]
    assert scene.read("calls.txt") == "note\n"


async def test_a_pre_tool_use_hook_whose_server_or_tool_is_missing_denies(scene: Scene) -> None:
    with_server(scene)
    handlers = [
        {"type": "mcp_tool", "server": server, "tool": tool, "input": {"text": "{}"}}
        for server, tool in (("elsewhere", "note"), ("notes", "none"), ("notes", "die"))
    ]
    for handler in handlers:
        scene.user(hooks={"PreToolUse": [hook(handler, "Bash")]})
        async with scene.play(calls("bash", command="ls"), mode="bypassPermissions") as play:
            assert (await play.run()).ok
            assert "so this is denied" in (await play.results())[0]


async def test_an_agent_hook_reads_files_before_it_decides(scene: Scene) -> None:
    require_hidden_files()
    scene.write("CHANGES", "frozen until Monday\n")
    scene.write("key.pem", "secret\n")
    handler = {"type": "agent", "prompt": "May it? $ARGUMENTS"}
    scene.user(
        hooks={"PreToolUse": [hook(handler, "Bash")]}, permissions={"deny": ["Read(key.pem)"]}
    )
    async with scene.play(
        calls("bash", command="make release"),
        calls("read", file_path="CHANGES"),
        calls("read", file_path="key.pem"),
        calls("bash", command="touch by-the-hook"),
        NO,
        mode="bypassPermissions",
    ) as play:
        result = await play.run()
        assert "the change log says no" in (await play.results())[0]
        judging = play.model.requests[4]
        assert [spec.name for spec in judging.tools] == ["read", "grep", "glob"]
        read = read_by_model([judging])
        assert "frozen until Monday" in read
        assert "secret" not in read
        assert "Not allowed" in read
        assert "You have no such tool" in read
        ended = await play.events(ModelRequestEnded)
        assert [item.purpose for item in ended].count("judgement") == 4
        assert result.cost_usd == sum(Decimal(item.cost_usd or 0) for item in ended)
    assert not (scene.workspace / "by-the-hook").exists()


async def test_session_end_hooks_run_once(scene: Scene) -> None:
    scene.user(hooks={"SessionEnd": [hook(command(f"cat >> {scene.home}/ended"))]})
    async with scene.play() as play:
        await play.session.end()
        assert not (scene.home / "ended").exists()  # nobody has begun it here
        assert (await play.run()).ok
        await play.session.end("prompt_input_exit")
        await play.session.end()
        [told] = (scene.home / "ended").read_text().splitlines()
        assert json.loads(told)["reason"] == "prompt_input_exit"
        assert [item.hook_event for item in await play.events(HookRan)] == ["SessionEnd"]


async def test_a_hook_that_denies_with_interrupt_ends_the_run(scene: Scene) -> None:
    for interrupt, reason in ((False, "completed"), (True, "hook_stopped")):
        denied = {"behavior": "deny", "message": "not on a Friday", "interrupt": interrupt}
        said = answer(hookEventName="PermissionRequest", decision=denied)
        scene.user(hooks={"PermissionRequest": [hook(said, "Bash")]})
        async with scene.play(calls("bash", command="touch x")) as play:
            assert (await play.run()).reason == reason
            assert "not on a Friday" in (await play.results())[0]


async def test_a_hook_can_let_the_model_retry_a_denied_call(scene: Scene) -> None:
    said = answer(hookEventName="PermissionDenied", retry=True)
    scene.user(hooks={"PermissionDenied": [hook(said)]}, permissions={"deny": ["Bash(touch *)"]})
    async with scene.play(calls("bash", command="touch x")) as play:
        assert (await play.run()).ok
        assert "try it again" in (await play.results())[0]


async def test_the_system_message_of_a_hook_is_shown_each_time(scene: Scene) -> None:
    said = command("""echo '{"systemMessage": "lint is red"}'""")
    scene.user(hooks={"PostToolUse": [hook(said, "Bash")]})
    both = (calls("bash", command="ls"), calls("bash", command="ls -l"))
    async with scene.play(*both, mode="bypassPermissions") as play:
        assert (await play.run()).ok
        assert scene.warnings.count("lint is red") == 2
