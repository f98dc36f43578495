"""kill -9 of the worker and of a stdio server under load. The server counts its calls: each one ran
once, or is reported as in doubt; no process is left.
"""

import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from tests.mcp.killed_worker import CALLS
from tests.session_e2e.session_setup import MODEL, Scene, at_work

from mainspring.capabilities.providers.scripted import Scripted
from mainspring.core.events import AgentMcpToolResult, AgentMcpToolUse
from mainspring.wiring.settings_files import trust

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "tests/mcp/counting_server.py"


def pids_of(marker: str) -> list[int]:
    """Programs whose command line has a word that only this test uses."""
    pids: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended meanwhile
        if marker.encode() in words:
            pids.append(int(folder.name))
    return pids


def count_calls(scene: Scene) -> Counter[int]:
    file = scene.workspace / "calls.txt"
    return Counter(map(int, file.read_text().split())) if file.exists() else Counter[int]()


async def start_worker(scene: Scene, session_id: str) -> Process:
    command = [sys.executable, "-m", "tests.mcp.killed_worker"]
    command += [str(scene.home), str(scene.workspace), session_id]
    return await anyio.open_process(command, cwd=ROOT, stdout=None, stderr=None)


async def prepare(scene: Scene, marker: str) -> str:
    scene.write("server.py", SERVER.read_text())
    server = {"command": "python3", "args": ["server.py", marker]}
    scene.write(".mcp.json", json.dumps({"mcpServers": {"counter": server}}))
    scene.user(permissions={"allow": ["mcp__counter"]})
    trust(scene.workspace, home=scene.home)
    async with scene.runtime() as runtime:
        runtime.models.put(MODEL, Scripted())
        return (await runtime.start(at_work(), "count")).id


async def kill_until_done(scene: Scene, session_id: str, marker: str, kills: Counter[str]) -> None:
    """The worker and the server in turn, after a few calls each."""
    chance = random.Random(7)
    process = await start_worker(scene, session_id)
    while True:
        goal = sum(count_calls(scene).values()) + chance.randrange(2, 12)
        while process.returncode is None and (  # noqa: ASYNC110 (another process)
            sum(count_calls(scene).values()) < goal
        ):
            await anyio.sleep(0.002)
        if process.returncode is not None:
            break
        if kills["worker"] > kills["server"]:
            for pid in pids_of(marker):
                os.kill(pid, signal.SIGKILL)
            kills["server"] += 1
        else:
            kills["worker"] += 1
            process.kill()
            await process.wait()
            process = await start_worker(scene, session_id)
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_call_runs_once_or_is_in_doubt_when_worker_and_server_are_killed(
    scene: Scene,
) -> None:
    marker = f"counter-{os.getpid()}-{scene.workspace.parent.name}"
    session_id = await prepare(scene, marker)
    kills: Counter[str] = Counter()
    with anyio.fail_after(240):
        await kill_until_done(scene, session_id, marker, kills)
        while pids_of(marker):  # noqa: ASYNC110 (other processes)
            await anyio.sleep(0.01)
    async with scene.runtime() as runtime:
        runtime.models.put(MODEL, Scripted())
        events = await (await runtime.resume(at_work(), session_id)).events()
    uses = {e.id: int(str(e.payload.input["n"])) for e in events
            if isinstance(e.payload, AgentMcpToolUse)}  # fmt: skip
    results = {uses[e.payload.mcp_tool_use_id]: e.payload for e in events
               if isinstance(e.payload, AgentMcpToolResult)}  # fmt: skip
    times = count_calls(scene)
    assert sorted(results) == list(range(CALLS))
    assert max(times.values()) == 1
    for number, outcome in results.items():
        assert outcome.is_error is (outcome.error in ("in_doubt", "unavailable")), outcome
        if not outcome.is_error:
            assert times[number] == 1
        elif outcome.error == "unavailable":
            assert times[number] == 0
    in_doubt = sum(outcome.error == "in_doubt" for outcome in results.values())
    assert min(kills["worker"], kills["server"]) >= 2, kills
    assert in_doubt
