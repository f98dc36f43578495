"""A folder with everything that the dashboard shows, and `mainspring ui` in it: sessions, a workflow
that waits at its gate, an eval run and a campaign. Its models are scripts; all else is real.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from tests import fork_server
from tests.environ import clean_environ

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.config import read_settings
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.runtime_assembly import open_runtime

ROOT = Path(__file__).parents[2]
SESSIONS = (
    (
        "Why does the test of several units fail?",
        calls("read", file_path="project/durations.py"),
        calls("bash", command="python3 -m unittest discover -s project 2>&1 | tail -n 5"),
        calls("edit", file_path="project/notes.md", old_string="to do", new_string="found"),
        says(
            "`seconds()` reads only the **last** unit of a text, so `1h30m` is no number to it.\n\n"
            "| text | expected | now |\n|---|---|---|\n| `90m` | 5400 | 5400 |\n"
            "| `1h30m` | 5400 | `ValueError` |\n\nI noted it in `project/notes.md`."
        ),
    ),
    (
        "Write the release notes of this week.",
        calls("write", file_path="project/release.md", content="# Release\n\n- Durations\n"),
        says("The notes are in `project/release.md`."),
    ),
)
"""What people have asked, and what the model did."""


@dataclass(frozen=True)
class LocalSite:
    folder: Path
    url: str
    token: str
    home: Path

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return command(self.folder, self.home, *arguments)


def command(folder: Path, home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {**clean_environ(), "HOME": str(home)}
    return fork_server.run(*arguments, cwd=folder, env=env)


def write_folder(folder: Path, home: Path) -> None:
    shutil.copytree(ROOT / "demo/support", folder)
    example = ROOT / "examples/reviewed-change"
    for name in ("workflows", "project"):
        shutil.copytree(example / name, folder / name)
    (folder / "project/notes.md").write_text("Several units: to do\n")
    script = folder / "model.yaml"
    script.write_text((example / "offline.yaml").read_text() + "\n" + script.read_text())
    anyio.run(partial(ask, folder, home))
    for arguments, status in (
        (("eval", "run"), 1),
        (("evolve", "run"), 0),
        (("workflow", "trust", "reviewed-change"), 0),
        (("workflow", "run", "reviewed-change", "several units", "--mode", "acceptEdits"), 3),
    ):
        done = command(folder, home, *arguments)
        assert done.returncode == status, (arguments, done.stdout, done.stderr)


async def ask(folder: Path, home: Path) -> None:
    """Sessions of people in the folder."""
    settings = read_settings(folder=folder, environ={**clean_environ(), "HOME": str(home)})
    options = RunOptions(workspace=folder, mode="acceptEdits")
    agent = Agent(
        name="support", model="scripted:test", built_ins=("read", "write", "edit", "bash")
    )
    async with open_runtime(settings, options=options) as runtime:
        for text, *replies in SESSIONS:
            steps: list[Any] = list(replies)  # of the scripted model
            runtime.models.put("scripted:test", Scripted(*steps))
            session = await runtime.start(agent)
            await session.send(text)
            with anyio.fail_after(60):
                await session.run()


@contextmanager
def local_site(place: Path) -> Generator[LocalSite]:
    home, folder = place / "home", place / "shop"
    home.mkdir()
    write_folder(folder, home)
    env = {**clean_environ(), "HOME": str(home)}
    with tempfile.TemporaryFile() as given, (place / "output.txt").open("w+b") as output:
        order = fork_server.Order(arguments=["ui", "--no-open"], cwd=str(folder), env=env)
        child = fork_server.Child(order, given.fileno(), output.fileno(), output.fileno())
        try:
            url, token = anyio.run(address, place / "output.txt")
            yield LocalSite(folder, url, token, home)
        finally:
            child.kill()
            child.wait()


async def address(output: Path) -> tuple[str, str]:
    with anyio.fail_after(60):
        while True:
            if found := re.search(r"(http://\S+?)/#token=(\S+)", output.read_text()):
                return found[1], found[2]
            await anyio.sleep(0.05)
