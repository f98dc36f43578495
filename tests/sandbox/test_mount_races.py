"""A program of the session exchanges names that are mounted, while more sandboxes open."""

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.sandbox.conftest import sh

from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.backends.bwrap import Bubblewrap
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ExecRequest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs bubblewrap")

# Folders of the session, and links out of it under the same names, in turns. Bubblewrap has the
# host under /oldroot while it mounts, so a link there is one that it could write through.
SWAPS = """
import ctypes, os, sys
libc, outside = ctypes.CDLL(None), sys.argv[1]
pairs = []
def swap(name, target, make):
    make(name)
    os.symlink(target, name + ".link")
    pairs.append((name.encode(), name.encode() + b".link"))
def repository(name):
    os.makedirs(name + "/hooks")
    open(name + "/config", "w").close()
swap(".claude", outside, os.mkdir)
swap(".git", outside, repository)
swap("nested/.git", outside, repository) if os.makedirs("nested") is None else None
swap(".mcp.json", "/oldroot" + outside + "/made", lambda name: open(name, "w").close())
swap(".vscode", "/oldroot" + outside + "/made-too", os.mkdir)
swap("skill", outside, os.mkdir)
open("racing", "w").close()
while not os.path.exists("stop"):
    for name, link in pairs:
        libc.renameat2(-100, name, -100, link, 2)
"""
LOOK = """
for each in .claude .git nested/.git .vscode skill .mcp.json; do
    cat $each/canary.txt $each/hooks/canary.txt 2>/dev/null
    echo changed > $each/written-$$; echo changed > $each/hooks/written-$$
done
cat .mainspring/secret.txt
for each in $(ls -A); do
    mv -T $each moved-$each && cat moved-$each/secret.txt; mv moved-$each $each
done
true
"""
PROTECTED = (".claude", ".git/hooks", ".git/config", "nested/.git/hooks", ".mcp.json", ".vscode")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("openings", [12, pytest.param(400, marks=pytest.mark.slow)])
async def test_names_swapped_while_a_sandbox_opens_expose_nothing_of_the_host(
    site: SandboxSpec, bubblewrap: Bubblewrap, tmp_path: Path, openings: int
):
    outside, root = tmp_path / "outside", site.workspace
    (outside / "hooks").mkdir(parents=True)
    for place in (outside, outside / "hooks"):
        (place / "canary.txt").write_text("canary-of-the-host")
    (root / ".mainspring").mkdir()
    (root / ".mainspring/secret.txt").write_text("canary-of-the-log")
    before = list_files(outside)
    guarded = replace(site, hidden=(Path(".mainspring"),), protected=tuple(map(Path, PROTECTED)))
    refused = 0
    async with KeeperSandbox(guarded, bubblewrap) as hostile, anyio.create_task_group() as group:
        argv = ("python3", "-c", SWAPS, str(outside))
        group.start_soon(hostile.run, ExecRequest(key="race", argv=argv, wall_seconds=600))
        with anyio.fail_after(60):
            while not (root / "racing").exists():  # noqa: ASYNC110 -- another process makes it
                await anyio.sleep(0.01)
        for number in range(openings):
            state = tmp_path / f"state-{number}"
            beside = replace(guarded, state=state, read_only=(root / "skill",))
            async with KeeperSandbox(beside, bubblewrap, linger_seconds=0) as sandbox:
                with suppress(SandboxFailed):
                    refused += 1
                    said = (await sh(sandbox, LOOK)).stdout
                    refused -= 1
                    assert b"canary" not in said.head + said.tail, f"after {number} openings"
            assert list_files(outside) == before, f"after {number} openings"
        (root / "stop").touch()
    assert refused < openings


def list_files(folder: Path) -> list[tuple[str, int, int]]:
    found = [folder, *sorted(folder.rglob("*"))]
    return [(str(path), path.stat().st_mode, path.stat().st_mtime_ns) for path in found]
