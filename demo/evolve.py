"""`make demo-evolve`: an agent fails most of its cases. A campaign finds out why, has an idea
refused, and proves two others on sealed cases. Then the model changes: the version is rolled back.

No key, no server: scripts replace the models of the agent and of the improver. Everything else is
real: sessions, the log, the gate and its error rate.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
from rich.console import Console

from mainspring import open_runtime
from mainspring.capabilities.providers.script_file import scripted_models
from mainspring.log.session_lease import hold_session
from mainspring.runtime.feedback import Rating, feedback_on_last_message
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.agent_selection import load_agent

ROOT = Path(__file__).parent.parent
console = Console(highlight=False, soft_wrap=True)
HEALTHY, COMPLAINTS = 20, 8
"""Sessions before the promotion, and bad ones after the model has changed."""


def main() -> int:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mainspring-demo-") as place:
        os.environ["HOME"] = place  # one installation, here and in the commands
        folder = Path(place) / "support"
        shutil.copytree(ROOT / "demo" / "support", folder)
        told(folder)
    seconds = time.monotonic() - begin
    console.print(f"\n{seconds:.0f} s, and no model was asked", style="dim")
    return 0


def told(folder: Path) -> None:
    say("1. People use the agent. Nobody complains about refunds.")
    anyio.run(sessions, folder, "good", HEALTHY)

    say("2. What would a campaign cost?")
    mainspring(folder, "evolve", "run", "--dry-run")

    say("3. A campaign: it finds out what fails and why, tries changes, and sealed cases decide.")
    mainspring(folder, "evolve", "run")

    say("4. You read the change, and use it.")
    mainspring(folder, "evolve", "promote", "--yes")
    mainspring(folder, "evolve", "history")

    say("5. The model is updated, and the new rule now confuses it. Customers complain.")
    model = folder / "model.yaml"
    broken = "- instructions: 3 days\n  steps: [{says: 'There are many exceptions.'}]\n"
    model.write_text(broken + model.read_text())
    anyio.run(sessions, folder, "bad", COMPLAINTS)
    mainspring(folder, "evolve", "watch")
    mainspring(folder, "evolve", "history")


async def sessions(folder: Path, rating: Rating, count: int) -> None:
    """Sessions of the agent, each with a person's rating."""
    store = str(folder / ".mainspring" / "mainspring.db")
    agent = load_agent(folder)
    async with open_runtime(store=store, options=RunOptions(agent=folder)) as runtime:
        for name, script in scripted_models(agent.model, folder).items():
            runtime.models.put(name, script)
        for _ in range(count):
            session = await runtime.start(agent, "How long can I return my lamp for a refund?")
            await session.run()
            async with hold_session(runtime.log, session.id) as writer:
                feedback = await feedback_on_last_message(runtime.log, session.id, rating, "")
                await writer.append(feedback)
    console.print(f"\n{count} sessions, each rated {rating}", style="dim")


def mainspring(folder: Path, *arguments: str) -> None:
    console.print(f"\n$ mainspring {' '.join(map(quoted, arguments))}", style="cyan")
    done = subprocess.run(
        [sys.executable, "-m", "mainspring", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    console.print(f"{done.stderr}{done.stdout}".rstrip(), markup=False)


def quoted(argument: str) -> str:
    return f"'{argument}'" if " " in argument else argument


def say(text: str) -> None:
    console.print(f"\n{text}", style="bold")


if __name__ == "__main__":
    sys.exit(main())
