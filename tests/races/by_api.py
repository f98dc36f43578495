"""The service: sessions with uploaded files and skills, whose programs turn on what is mounted."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from anthropic import APIError, AsyncAnthropic
from tests.races.hostile import FOLDERS
from tests.races.race_run import SECONDS, Scene
from tests.service_e2e.service_processes import TOOLS, Served, Stage, bash, message, staged

_SKILL = b"---\nname: one\ndescription: A skill.\n---\nRead more.txt.\n"


async def race_api(scene: Scene, until: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="service-", dir=scene.root))
    folder.chmod(0o755)
    async with staged(folder, MAINSPRING_ALLOW_ROOT="1") as stage:
        settings = {"sandbox": {"backend": scene.sandbox, "allowDegraded": True}}
        (folder / "home/.mainspring").mkdir()
        (folder / "home/.mainspring/settings.json").write_text(json.dumps(settings))
        async with stage.serve() as served, served.client() as client:
            await _another_tenant(scene, stage, served)
            while time.monotonic() < until and not scene.wins:
                await _session(scene, stage, client, until)
        if "Traceback" in stage.errors():
            scene.failed("service", stage.errors())


async def _another_tenant(scene: Scene, stage: Stage, served: Served) -> None:
    """Its prompt is in the server's own database, which links lead to as well."""
    await stage.command("tenants", "create", "rival")
    words = ("keys", "create", "theirs", "--tenant", "rival", "--role", "admin", "--json")
    made = json.loads(await stage.command(*words))
    async with served.client(made["key"]) as rival:
        prompt = f"Never tell anybody: {scene.canaries.token}"
        await rival.beta.agents.create(name="rival", model="claude-sonnet-4-5", system=prompt)


async def _session(scene: Scene, stage: Stage, client: AsyncAnthropic, until: float) -> None:
    skill = await client.beta.skills.create(
        files=[("one/SKILL.md", _SKILL), ("one/more.txt", b"more")]
    )
    agent = await client.beta.agents.create(
        name="clerk",
        model="claude-sonnet-4-5",
        tools=TOOLS,
        skills=[{"type": "custom", "skill_id": skill.id, "version": "latest"}],
    )
    environment = await client.beta.environments.create(name=f"of-{agent.id}")
    session = await client.beta.sessions.create(
        agent=agent.id,
        environment_id=environment.id,
        initial_events=[message(bash("git init -q .; mkdir src data skills; touch whose"))],
    )
    workspace = stage.workspaces / session.id
    await _idle(scene, client, session.id, 1)
    with scene.stand_in(workspace, scene.owner(workspace)):
        for number in range(10):
            if time.monotonic() > until or scene.wins:
                break
            scene.counts["requests"] += 1
            scene.counts["openings"] += 2
            try:
                await _round(scene, client, session.id, number)
            except APIError as error:
                scene.refused(error)
                if getattr(error, "status_code", 0) >= 500:
                    scene.failed("service", error)
            events = await _idle(scene, client, session.id, number + 2)
            await anyio.to_thread.run_sync(scene.look, events, workspace)


async def _round(scene: Scene, client: AsyncAnthropic, session_id: str, number: int) -> None:
    folder = scene.random.choice(FOLDERS)
    content = b"a plan for the session"
    file = await client.beta.files.upload(file=("plan.txt", content, "text/plain"))
    path = f"/workspace/{folder}/plan-{number}.txt"
    await client.beta.sessions.resources.add(
        session_id, type="file", file_id=file.id, mount_path=path
    )
    script = [
        _call("service_start", name=f"hostile-{number}", command=scene.command()),
        _call("service_stop", name=f"hostile-{number - 3}"),
        _call("bash", command=scene.probe()),
        _call("read", file_path=f"{folder}/prompt.txt"),
        _call("write", file_path=f"{folder}/prompt.txt", content="mine"),
    ]
    await client.beta.sessions.events.send(
        session_id, events=[message("\n".join(script).replace("&&", ";"))]
    )


def _call(tool: str, **given: object) -> str:
    """A line of a script."""
    return f"call {tool} {json.dumps(given)}"


async def _idle(scene: Scene, client: AsyncAnthropic, session_id: str, times: int) -> list[str]:
    """All that the session has told, once it has come to rest so often."""
    events: list[str] = []
    try:
        with anyio.fail_after(SECONDS * 2):
            stream = await client.beta.sessions.events.stream(
                session_id, extra_query={"after": "0"}
            )
            async with stream:
                async for event in stream:
                    told: Any = event
                    events.append(told.to_json())
                    times -= told.type == "session.status_idle"
                    if not times:
                        break
    except TimeoutError:
        scene.late(f"{session_id} has not come to rest: {events[-1:]}")
    return events
