"""A Claude Code project whose `.mcp.json` names servers that people use runs them unchanged."""

import json
import subprocess
import sys

import pytest
from tests.mcp.peers import PEERS, PYTHON, needs_node_servers, needs_sdk, node_server
from tests.session_e2e.session_setup import Scene, read_results

from mainspring.capabilities.providers.scripted import calls
from mainspring.wiring.settings_files import trust


def program(command: list[str], **env: str) -> dict[str, object]:
    return {"command": command[0], "args": command[1:], "env": env}


def python_server(name: str, *args: str) -> list[str]:
    return [str(PYTHON), "-m", f"mcp_server_{name}", *args]


@pytest.mark.slow
@needs_sdk
@needs_node_servers
async def test_a_claude_code_project_runs_its_mcp_servers_unchanged(scene: Scene) -> None:
    here = "${CLAUDE_PROJECT_DIR}"
    servers = {
        "filesystem": program(node_server("filesystem", here)),
        "memory": program(node_server("memory"), MEMORY_FILE_PATH=f"{here}/memory.jsonl"),
        "everything": program(node_server("everything")),
        "git": program(python_server("git", "--repository", here)),
        "time": program(python_server("time", "--local-timezone", "UTC")),
    }
    scene.write(".mcp.json", json.dumps({"mcpServers": servers}))
    scene.write("notes.txt", "tea at four")
    subprocess.run(["git", "init", "-q", str(scene.workspace)], check=True, timeout=60)
    scene.user(
        permissions={"allow": [f"mcp__{name}" for name in servers]},
        sandbox={"readOnly": [str(PEERS), sys.base_prefix]},
    )
    trust(scene.workspace, home=scene.home)
    entity = {"name": "tea", "entityType": "drink", "observations": ["hot"]}
    async with scene.play(
        calls("mcp__filesystem__read_text_file", path=str(scene.workspace / "notes.txt")),
        calls("mcp__memory__create_entities", entities=[entity]),
        calls("mcp__everything__echo", message="hello"),
        calls("mcp__git__git_status", repo_path=str(scene.workspace)),
        calls("mcp__time__get_current_time", timezone="UTC"),
    ) as play:
        assert (await play.run()).ok
        assert [warning for warning in scene.warnings if "MCP server" in warning] == []
        read, remembered, echo, status, time = read_results(play.model.requests[-1])
    assert "tea at four" in read
    assert "tea" in remembered
    assert "hello" in echo
    assert "notes.txt" in status
    assert "UTC" in time
    assert '"tea"' in scene.read("memory.jsonl")
