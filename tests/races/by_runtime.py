"""Sessions of this process: programs, services, subagents, worktrees, file tools, rewinding."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import anyio
from tests.races.hostile import FILES, FOLDERS
from tests.races.race_run import SECONDS, Scene

from mainspring import Agent, open_runtime
from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted, ScriptLine
from mainspring.config import Settings, read_settings
from mainspring.core.errors import MainspringError
from mainspring.core.model import Assistant, Request
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.rewind import read_rewind_history
from mainspring.runtime.session.session import Runtime, Session
from mainspring.runtime.subagent import BUILT_IN_SUBAGENTS
from mainspring.testing import calls, says
from mainspring.wiring.session_files import open_snapshots

_MODEL = "scripted:x"
_OPENED = 5
"""Sandboxes in each round that were not there before."""


async def race_runtime(scene: Scene, until: float) -> None:
    workspace = scene.workspace("work")
    home = scene.root / "home"
    home.mkdir(exist_ok=True)
    own = read_settings(
        store=str(scene.root / "own/log.db"), environ={"HOME": str(home)}, folder=workspace
    )
    settings = replace(own, home=str(home))
    while time.monotonic() < until and not scene.wins:
        await _session(scene, settings, workspace, until)


async def _session(scene: Scene, settings: Settings, workspace: Path, until: float) -> None:
    sandbox: Mapping[str, object] = {"backend": scene.sandbox, "allowDegraded": True}
    options = RunOptions(workspace=workspace, mode="bypassPermissions", sandbox=sandbox)
    lead = Agent(name="lead", model=_MODEL, built_ins=("*",), subagents=BUILT_IN_SUBAGENTS)
    model = Scripted(otherwise=lambda request: _answer(scene, request))
    try:
        async with open_runtime(settings, options=options) as runtime:
            runtime.models.put(_MODEL, model)
            session = await runtime.start(lead, "begin")
            await _run(scene, session)
            with ExitStack() as stack:
                stack.enter_context(scene.stand_in(workspace, scene.owner(workspace)))
                for _ in range(20):
                    await session.send("play a round")
                    await _run(scene, session)
                    await _rewind(scene, settings, runtime, session)
                    await _look(scene, session, model, workspace)
                    if time.monotonic() > until or scene.wins:
                        break
    except MainspringError as error:
        scene.refused(error)
    except TimeoutError:
        raise
    except BaseExceptionGroup as group:
        if group.subgroup(lambda error: not isinstance(error, MainspringError)):
            scene.failed("runtime", group)
    except Exception as error:  # noqa: BLE001 (whatever comes out is a failure)
        scene.failed("runtime", error)


async def _run(scene: Scene, session: Session) -> None:
    scene.counts["rounds"] += 1
    scene.counts["openings"] += _OPENED
    try:
        with anyio.fail_after(SECONDS):
            await session.run()
    except MainspringError as error:
        scene.refused(error)
    except TimeoutError:
        events = await session.events()
        ended = {str(getattr(event.payload, "tool_use_id", "")) for event in events}
        calls = [
            event.body.decode("utf-8", "replace")[:300]
            for event in events
            if event.type.endswith("tool_use") and event.id not in ended
        ]
        scene.late(f"a round, with {calls}")


async def _rewind(scene: Scene, settings: Settings, runtime: Runtime, session: Session) -> None:
    """Both ways that `sessions rewind` goes: the files of an earlier state, and what differs."""
    past = await read_rewind_history(runtime.log, await runtime.log.session(session.id))
    if not past.checkpoints:
        return
    try:
        snapshots = await open_snapshots(settings, runtime.log, past)
        kept = scene.random.choice(past.checkpoints).snapshot
        await snapshots.diff(kept)
        await snapshots.restore(kept)
        scene.counts["rewound"] += 1
    except MainspringError as error:
        scene.refused(error)


async def _look(scene: Scene, session: Session, model: Scripted, workspace: Path) -> None:
    events = await session.events()
    said = [event.body.decode("utf-8", "replace") for event in events]
    said += map(repr, model.requests)
    model.requests.clear()
    await anyio.to_thread.run_sync(scene.look, said, workspace, scene.root / "own")


def _answer(scene: Scene, request: Request) -> ScriptAnswer:
    task = str(request.messages[0])
    turns = sum(isinstance(message, Assistant) for message in request.messages)
    if "probe" in task or "apart" in task:
        changes = "echo more >> src/main.py; mkdir -p fresh; echo x > fresh/$$; "
        return says("done") if turns else calls("bash", command=changes + scene.probe())
    last = str(request.messages[-1])
    if "ToolResult" in last:
        return says("done")
    if "begin" in last and not turns:
        return calls("bash", command="touch whose; true") + calls(
            "service_start", name="hostile", command=scene.command()
        )
    return _round(scene) if "play a round" in last else says("done")


def _round(scene: Scene) -> ScriptLine:
    """All at once."""
    choice = scene.random.choice
    file = choice((*FILES, "src/prompt.txt", "data/server.db", "skills/prompt.txt"))
    folder = choice(FOLDERS)
    probes = calls("agent", description="probes", prompt="probe")
    return (
        probes
        + probes
        + probes
        + probes
        + calls("agent", description="apart", prompt="apart", isolation="worktree")
        + calls("read", file_path=file)
        + calls("read", file_path=f"{folder}/prompt.txt")
        + calls("write", file_path=f"{folder}/written-{scene.next_seed()}.txt", content="mine")
        + calls("write", file_path=f"{folder}/prompt.txt", content="mine")
        + calls("edit", file_path=file, old_string="old", new_string="new")
        + calls("glob", pattern=f"{folder}/**/*")
        + calls("grep", pattern="canary", path=folder)
        + calls("bash", command=scene.probe())
    )
