"""The command: `run` with a service and subagents, `sessions diff` and `rewind`, in processes."""

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from tests import fork_server
from tests.cli.upstream import Part, call, people_and_model, serving
from tests.races.hostile import FILES, FOLDERS
from tests.races.race_run import Scene


async def race_cli(scene: Scene, until: float) -> None:
    workspace = scene.workspace("project")
    home = scene.root / "cli-home"
    settings = {"sandbox": {"backend": scene.sandbox, "allowDegraded": True}}
    (home / ".mainspring").mkdir(parents=True, exist_ok=True)
    (home / ".mainspring/settings.json").write_text(json.dumps(settings))
    with serving() as model:
        model.otherwise = lambda request: _answer(scene, request)
        variables = {
            **model.variables,
            "HOME": str(home),
            "MAINSPRING_STORE": str(scene.root / "cli-own/log.db"),
        }
        model.says(call("bash", command="touch whose"))
        await _command(scene, workspace, variables, "run", "begin", "--mode", "bypassPermissions")
        with scene.stand_in(workspace, scene.owner(workspace)):
            while time.monotonic() < until and not scene.wins:
                await _round(scene, workspace, variables)
                said = [json.dumps(request) for request in model.requests]
                model.requests.clear()
                await anyio.to_thread.run_sync(scene.look, said, workspace, scene.root / "cli-own")


async def _round(scene: Scene, workspace: Path, variables: dict[str, str]) -> None:
    scene.counts["commands"] += 1
    scene.counts["openings"] += 2
    await _command(scene, workspace, variables, "run", "play", "--mode", "bypassPermissions")
    listed = await _command(scene, workspace, variables, "sessions", "ls", "--json")
    if listed:
        session = json.loads(listed.splitlines()[0])["id"]
        await _command(scene, workspace, variables, "sessions", "diff", session)
        words = ("sessions", "rewind", session, "--files-only", "--yes")
        await _command(scene, workspace, variables, *words)


async def _command(scene: Scene, at: Path, variables: dict[str, str], *words: str) -> str:
    """What it prints. It may refuse, and say why; it may not fall over."""
    kept = {
        name: value
        for name, value in os.environ.items()  # noqa: TID251 (for the process under test)
        if name in ("PATH", "PYTHONPATH", "LANG")
    }
    run = partial(fork_server.run, *words, cwd=at, env={**kept, **variables})
    try:
        done = await anyio.to_thread.run_sync(run)
    except TimeoutError:
        scene.late(words[0])
        return ""
    if "Traceback" in done.stderr or done.returncode < 0:
        scene.failed(" ".join(words), done.stderr)
    if done.returncode:
        scene.refused(RuntimeError(f"{words[0]}: {done.stderr.strip()[-200:]}"))
    scene.look([done.stdout, done.stderr])
    return done.stdout if done.returncode == 0 else ""


def _answer(scene: Scene, request: dict[str, Any]) -> tuple[Part, ...]:
    if people_and_model(request)[-1]["role"] == "tool" or not request.get("tools"):
        return ("done",)
    if "probe" in str(request["messages"]):
        return (call("bash", command=scene.probe()),)
    file, folder = scene.random.choice(FILES), scene.random.choice(FOLDERS)
    return (
        call("service_start", name="hostile", command=scene.command()),
        call("agent", description="probes", prompt="probe"),
        call("agent", description="probes", prompt="probe"),
        call("bash", command=scene.probe()),
        call("read", file_path=file),
        call("write", file_path=f"{folder}/prompt.txt", content="mine"),
        call("edit", file_path=file, old_string="old", new_string="new"),
        call("grep", pattern="canary", path="."),
    )
