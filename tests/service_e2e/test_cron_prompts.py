"""A prompt that an agent has scheduled with `cron_create` fires in `mainspring serve`."""

from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from tests.service_e2e.service_processes import SECONDS, Stage

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.config import read_settings
from mainspring.core import clock
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.runtime_assembly import open_runtime

AGENT = Agent(name="reporter", model="ollama:test", built_ins=("cron_create",))
PROMPT = "Which tests broke in the night?"


async def schedule(folder: Path) -> None:
    """In a session of the command's store, by the tool."""
    store, project = folder / ".mainspring/mainspring.db", folder / "project"
    project.mkdir()
    home = {"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"}
    settings = read_settings(folder=project, store=str(store), environ=home)
    options = RunOptions(workspace=project, mode="bypassPermissions")
    model = Scripted(calls("cron_create", cron="* * * * *", prompt=PROMPT), says("Done."))
    async with open_runtime(settings, options=options) as runtime:
        runtime.models.put(AGENT.model, model)
        session = await runtime.start(AGENT, "Report every minute.")
        await session.run()
    assert "Scheduled. depl_" in str(model.requests[-1].messages)


@pytest.mark.slow
async def test_a_scheduled_prompt_starts_a_session_of_its_agent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.folder / "home").mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(stage.folder / "home"))
    real_now = clock.now

    def earlier() -> datetime:
        """So that a run is due as soon as the service starts."""
        return real_now() - timedelta(minutes=3)

    with monkeypatch.context() as patched:
        patched.setattr(clock, "now", earlier)
        await schedule(stage.folder)
    async with stage.serve():
        with anyio.fail_after(SECONDS):
            await to_thread.run_sync(
                lambda: stage.model.asked.acquire(timeout=SECONDS), abandon_on_cancel=True
            )
    first = stage.model.requests[0]
    assert PROMPT in str(first["messages"])
    sessions = await stage.command("sessions", "ls", "--json")
    assert '"reporter"' in sessions
