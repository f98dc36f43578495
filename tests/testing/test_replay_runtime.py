"""Replay of a session as people have it: hooks from a settings file, built-in tools, a sandbox."""

import json
import sys
from pathlib import Path

import anyio
import pytest
from tests.harness.killable_sandbox_worker import AGENT, settings_of

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.runtime.run_options import RunOptions
from mainspring.testing.replay import replay
from mainspring.wiring.runtime_assembly import open_runtime

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

CHANGED = {
    "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow",
        "updatedInput": {"command": "echo changed"},
    }
}
NO = {"decision": "block", "reason": "no secrets"}


def hook(shell: str, matcher: str = "") -> dict[str, object]:
    return {"matcher": matcher, "hooks": [{"type": "command", "command": shell}]}


HOOKS = {
    "SessionStart": [hook("echo The branch is main.")],
    "UserPromptSubmit": [
        hook(f"if grep -q secret; then echo '{json.dumps(NO)}'; else echo It rains.; fi")
    ],
    "PreToolUse": [hook(f"if grep -q please; then echo '{json.dumps(CHANGED)}'; fi", "Bash")],
    "PostToolUse": [hook("echo 'it is not formatted' >&2; exit 2", "Write")],
}


async def test_a_session_with_hooks_and_a_sandbox_replays_identically(tmp_path: Path):
    home, workspace = tmp_path / "home", tmp_path / "work"
    (home / ".claude").mkdir(parents=True)
    workspace.mkdir()
    (home / ".claude" / "settings.json").write_text(json.dumps({"hooks": HOOKS}))
    model = Scripted(
        calls("bash", command="echo please") + calls("bash", command="ls"),
        calls("edit", file_path="a.txt", old_string="a", new_string="b"),
        calls("write", file_path="a.txt", content="a\n"),
        calls("edit", file_path="a.txt", old_string="a", new_string="b"),
        calls("task_create", subject="look") + calls("fly"),
        says("done"),
        says("well"),
    )
    options = RunOptions(workspace=workspace, mode="acceptEdits")
    with anyio.fail_after(60):
        async with open_runtime(settings_of(tmp_path), options=options) as runtime:
            runtime.models.put(AGENT.model, model)
            session = await runtime.start(AGENT, "go")
            for words in ("my secret", "thanks"):
                assert await session.run() is not None
                await session.send(words)
                session = await runtime.resume(AGENT, session.id)
            assert (await session.run()) is not None
            kinds = [event.type for event in await session.events()]
            found = await replay(runtime.log, session.id)
    expected = {"context.added", "message.withheld", "hook.ran", "sandbox.opened", "task.written"}
    assert expected <= set(kinds)
    assert "changed" in str(model.requests[1].messages)
    assert "not formatted" in str(model.requests[3].messages)
    assert (found.divergence, found.calls) == (None, len(model.requests))
