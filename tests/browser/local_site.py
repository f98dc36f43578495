"""A folder with everything that the dashboard shows, and `mainspring ui` in it: sessions, a
workflow that waits at its gate, an eval run and a campaign. Its models are scripts; all else is
real.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
from tests import fork_server
from tests.environ import clean_environ

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
QUESTIONS = ("Why does the test of several units fail?", "Write the release notes of this week.")
SCRIPT = """\
- when: Why does the test of several units fail
  steps:
    - calls:
        - {tool: read, input: {file_path: project/durations.py}}
        - {tool: read, input: {file_path: project/notes.md}}
    - calls:
        - {tool: edit, input: {file_path: project/notes.md, old_string: to do, new_string: found}}
    - says: |
        `seconds()` reads only the **last** unit of a text, so `1h30m` is no number to it.

        | text | expected | now |
        |---|---|---|
        | `90m` | 5400 | 5400 |
        | `1h30m` | 5400 | `ValueError` |

        I noted it in `project/notes.md`.
- when: Write the release notes
  steps:
    - calls:
        - {tool: write, input: {file_path: project/release.md, content: "# Release"}}
    - says: The notes are in `project/release.md`.
- when: Say something about refunds
  steps: [{says: You have 14 days.}]
"""
"""What the model does when people ask; the other parts of its script are those of the examples."""


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
    parts = SCRIPT + (example / "offline.yaml").read_text()
    script.write_text(f"{parts}\n{script.read_text()}")
    for arguments, status in (
        *((("run", text, "--mode", "acceptEdits"), 0) for text in QUESTIONS),
        (("eval", "run"), 1),
        (("evolve", "run"), 0),
        (("workflow", "trust", "reviewed-change"), 0),
        (("workflow", "run", "reviewed-change", "several units", "--mode", "acceptEdits"), 3),
    ):
        done = command(folder, home, *arguments)
        assert done.returncode == status, (arguments, done.stdout, done.stderr)


def in_thread(work: Callable[[], Awaitable[T]]) -> T:
    """Playwright's event loop runs in this one."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(anyio.run, work).result(120)


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
            url, token = in_thread(partial(address, place / "output.txt"))
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
