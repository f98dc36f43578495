"""MCP servers in the files of subagents."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.mcp.peers import NOTES_SERVER
from tests.session_e2e.session_setup import DONE, MODEL, Play, Scene, at_work, read_by_model

from mainspring.capabilities.providers.scripted import Scripted, ScriptStep, calls, says
from mainspring.core.events import AgentMcpToolUse
from mainspring.runtime.agent_folder.subagent_files import discover_subagents
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.wiring.settings_files import trust

INLINE = """---
name: scribe
description: writes notes
tools: read
mcpServers:
  - notes:
      command: python3
      args: [server.py]
---
You write notes.
"""
REFERENCE = INLINE[: INLINE.index("  - notes:")] + "  - notes\n---\nYou write notes.\n"
TASK = calls("agent", subagent_type="scribe", description="note", prompt="note this")
NOTE = calls("mcp__notes__note", text="from the subagent")


def scribe(scene: Scene, content: str, where: str = "project") -> None:
    folder = scene.workspace if where == "project" else scene.home
    scene.write(folder / ".claude/agents/scribe.md", content)
    scene.write("server.py", NOTES_SERVER.read_text())
    scene.user(permissions={"allow": ["mcp__notes"]})


@asynccontextmanager
async def open_play(scene: Scene, *steps: ScriptStep) -> AsyncGenerator[Play]:
    found = discover_subagents(Scopes(folder=scene.workspace, home=scene.home)).subagents
    async with scene.runtime() as runtime:
        model = Scripted(*steps, otherwise=DONE)
        runtime.models.put(MODEL, model)
        agent = replace(at_work(), subagents=found)
        yield Play(runtime, await runtime.start(agent, "do it"), model)


def offered_tools(play: Play) -> list[set[str]]:
    return [{spec.name for spec in request.tools} for request in play.model.requests]


@pytest.mark.parametrize("where", ["project", "home"])
async def test_only_the_subagent_has_the_servers_of_its_file(scene: Scene, where: str) -> None:
    scribe(scene, INLINE, where)
    trust(scene.workspace, home=scene.home)
    async with open_play(scene, TASK, NOTE, says("noted")) as play:
        assert (await play.run()).ok
        main, sub, *_ = offered_tools(play)
        assert not [name for name in main if name.startswith("mcp__")]
        assert {"mcp__notes__note", "read"} <= sub
        assert "bash" not in sub
        assert [use.mcp_server_name for use in await play.events(AgentMcpToolUse)] == ["notes"]
    assert scene.read("calls.txt") == "note\n"


async def test_a_projects_subagent_starts_no_server_before_the_folder_is_trusted(
    scene: Scene,
) -> None:
    scribe(scene, INLINE)
    async with open_play(scene, TASK, NOTE, says("noted")) as play:
        assert (await play.run()).ok
        assert not [name for names in offered_tools(play) for name in names if "mcp__" in name]
        assert any("MCP servers of this subagent do not run" in item for item in scene.warnings)
    trust(scene.workspace, home=scene.home)
    scribe(scene, INLINE.replace("server.py", "other.py"))  # no longer what was trusted
    async with open_play(scene, TASK, NOTE, says("noted")) as play:
        assert (await play.run()).ok
        assert not [name for names in offered_tools(play) for name in names if "mcp__" in name]


async def test_a_subagent_that_references_a_server_has_its_tools(scene: Scene) -> None:
    scribe(scene, REFERENCE)
    server = {"command": "python3", "args": ["server.py"]}
    scene.write(".mcp.json", json.dumps({"mcpServers": {"notes": server}}))
    trust(scene.workspace, home=scene.home)
    async with open_play(scene, TASK, NOTE, says("noted")) as play:
        assert (await play.run()).ok
        main, sub, *_ = offered_tools(play)
        assert "mcp__notes__note" in main & sub
        assert "note: from the subagent" in read_by_model(play.model.requests)
