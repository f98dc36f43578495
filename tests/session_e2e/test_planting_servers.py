"""What programs of MCP servers create cannot run or be obeyed on the host."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests import fork_server
from tests.abilities import require_hidden_files, require_sandbox
from tests.environ import clean_environ
from tests.mcp import planting_server
from tests.session_e2e.session_setup import Scene, read_by_model

from mainspring.capabilities.providers.scripted import calls
from mainspring.wiring.settings_files import trust

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "tests/mcp/planting_server.py"
PLANTED = {
    *(name.split("/")[0] for name in planting_server.NAMES if name != ".mcp.json.d"),
    *(".idea", ".bazelrc", ".zed"),
}
SECONDS = 60
TEA = {"type": "user", "name": "tea", "description": "Likes tea.", "text": "Likes tea."}


@pytest.fixture(autouse=True)
def sandbox() -> None:
    require_sandbox()


def prepare(scene: Scene, *when: str) -> None:
    scene.write("server.py", SERVER.read_text())
    server = {"command": "python3", "args": ["server.py", *when]}
    scene.write(".mcp.json", json.dumps({"mcpServers": {"planting": server}}))
    scene.user(permissions={"allow": ["mcp__planting"]})
    trust(scene.workspace, home=scene.home)


def planted(scene: Scene) -> list[str]:
    """An empty folder `memory` is no memory."""
    names = PLANTED & set(os.listdir(scene.workspace))
    if not any((scene.workspace / "memory").glob("*")):
        names.discard("memory")
    return sorted(names)


async def wait_until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(SECONDS):
        while not condition():  # noqa: ASYNC110 (other processes)
            await anyio.sleep(0.05)


def is_guarded(scene: Scene) -> bool:
    return any((scene.workspace / ".mainspring/hands").glob("*/guard.json"))


@pytest.mark.parametrize("when", ["start", "call", "end", "always"])
async def test_nothing_that_a_server_creates_stays_after_its_session(
    scene: Scene, when: str
) -> None:
    prepare(scene, when)
    async with scene.play(calls("mcp__planting__note")) as play:
        assert (await play.run()).ok
    await wait_until(lambda: not is_guarded(scene))
    assert planted(scene) == []
    assert when == "end" or (scene.workspace / ".mcp.json.d").exists()
    async with scene.play() as play:
        assert (await play.run()).ok
        assert "planted.example" not in read_by_model(play.model.requests)


async def test_an_idle_session_does_not_keep_what_its_server_creates(scene: Scene) -> None:
    prepare(scene, "later")
    async with scene.play() as play:
        assert (await play.run()).ok
        scene.write("now")
        await wait_until(lambda: (scene.workspace / ".mcp.json.d").exists() and not planted(scene))


@pytest.mark.parametrize("when", [("always",), ("call", "end")])
async def test_nothing_that_a_server_creates_stays_after_a_kill(
    scene: Scene, when: tuple[str, ...]
) -> None:
    """Without another command of ours: people open the folder with other programs."""
    require_hidden_files()
    prepare(scene, *when)
    command = [sys.executable, "-m", "tests.mcp.planting_worker", scene.home, scene.workspace]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "called\n"
        worker.kill()
    await wait_until(lambda: not is_guarded(scene))
    assert planted(scene) == []


@pytest.mark.parametrize("words", ["ls", "test planting", "tools", "inspect planting note"])
async def test_commands_without_a_session_leave_nothing_that_a_server_creates(
    scene: Scene, words: str
) -> None:
    require_hidden_files()
    prepare(scene, "start", "call", "end")
    environ = {**clean_environ(), "HOME": str(scene.home)}
    ran = fork_server.run("mcp", *words.split(), cwd=scene.workspace, env=environ)
    assert ran.returncode == 0, ran.stderr
    assert "set aside" in ran.stderr
    await wait_until(lambda: not is_guarded(scene))
    assert planted(scene) == []


async def test_what_a_person_approved_stays_while_a_server_runs(scene: Scene) -> None:
    """But nothing that the server puts beside it."""
    scene.write("MEMORY.md", "Lives in Bern.")
    prepare(scene, "call")
    scene.write("server.py", SERVER.read_text().replace(".envrc", ".vscode/new"))
    async with scene.play(
        calls("write", file_path=".vscode/tasks.json", content="mine"),
        calls("memory_write", note=TEA, reason="said so"),
        calls("mcp__planting__note"),
        calls("bash", command="true"),
    ) as play:
        result = await play.run()
        while result.waiting_for:
            result = await play.allow(result)
    await wait_until(lambda: not is_guarded(scene))
    assert scene.read(".vscode/tasks.json") == "mine"
    assert planted(scene) == [".vscode", "memory"]
    assert "tea" in scene.read("memory/MEMORY.md")
    assert not (scene.workspace / "memory/user_rule.md").exists()
    assert not (scene.workspace / ".vscode/new").exists()
