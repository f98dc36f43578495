"""The official conformance suite against the server. `make conformance` runs all of it."""

import re
from pathlib import Path

import anyio
import pytest
from tests.mcp.conformance_server import conformance_server
from tests.mcp.test_conformance import SUITE, node

pytestmark = pytest.mark.skipif(not SUITE.exists() or node() is None, reason="run `make peers`")


async def run_suite(*options: str, folder: Path) -> str:
    async with conformance_server() as url:
        command = [str(node()), str(SUITE), "server", "--url", url, "-o", str(folder), *options]
        with anyio.fail_after(110):
            done = await anyio.run_process(command, check=False)
    return done.stdout.decode() + done.stderr.decode()


@pytest.mark.parametrize(
    ("version", "scenario"),
    [
        ("2026-07-28", "server-stateless"),
        ("2025-11-25", "server-session-lifecycle"),
        ("2026-07-28", "sep-2640-skills-enumeration"),
    ],
)
async def test_the_server_passes_the_scenario(version: str, scenario: str, tmp_path: Path):
    force = ["--force"] if scenario.startswith("sep-2640") else []  # an extension has no version
    options = ["--scenario", scenario, "--spec-version", version, *force]
    told = await run_suite(*options, folder=tmp_path)
    assert re.search(r"[1-9]\d* passed|Passed: [1-9]", told), told
    assert re.search(r"\b0 failed|Passed: (\d+)/\1\b", told), told


@pytest.mark.slow
@pytest.mark.parametrize(("version", "count"), [("2025-11-25", 30), ("2026-07-28", 37)])
async def test_the_server_passes_every_required_scenario(version: str, count: int, tmp_path: Path):
    told = await run_suite("--requirements", version, folder=tmp_path)
    summary = told.partition("=== SUMMARY ===")[2]
    lines = re.findall(r"^([✓✗]) (\S+): (\d+) passed, (\d+) failed", summary, re.MULTILINE)
    unscored = set(re.findall(r"^  [✓✗] (\S+) \(", summary, re.MULTILINE))
    required = [line for line in lines if line[1] not in unscored]
    assert len(required) == count, told
    assert [line for line in required if line[0] != "✓" or line[3] != "0"] == []
    assert all(int(line[2]) > 0 for line in required)
