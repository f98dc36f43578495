"""The programs of examples/python: with a script, with a provider, and killed in the middle."""

import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.abc import Process
from tests.cli.conftest import environ
from tests.examples.scripted_provider import scripted_provider
from tests.keys import KEY

from mainspring.core.events import ToolCallStashed
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.testing import RecordedSession

__all__ = ["environ"]

FOLDER = Path(__file__).parents[2] / "examples/python"
PRINTED = {
    "approval_callback": "The plumber is paid; the owner decides about the roofer.",
    "dependencies": "Yes, three.",
    "guardrail": "False stop_hook_prevented | it promises something",
    "handoff": "Number 17 is corrected.",
    "image_in": "Four blue bars, each higher than the one before.",
    "recorded_test": "Two lamps cost 39 euros.",
    "resume_after_crash": "Both are invited. 2",
    "stash": "It has 2190 words.",
    "streaming": "turns: 1",
    "structured_output": "The lift is stuck | high | Ann, Bob",
    "tool_agent": "Two lamps cost 39 euros.",
    "two_agents": "In the office, on the second shelf.",
}
"""The last line that each prints."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a program runs: a copy, with the script beside it."""
    shutil.copytree(FOLDER, tmp_path / "python")
    return tmp_path / "python"


def test_every_program_is_short_and_listed_in_the_readme():
    programs = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    assert programs.keys() >= PRINTED.keys()
    assert {name for name, text in programs.items() if text.count("\n") > 25} == set()
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in programs if f"({name}.py)" not in readme] == []


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_runs_with_a_script(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("MAINSPRING_MODEL", "scripted:offline.yaml")
    runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines()[-1] == PRINTED[name]


async def test_the_unchanged_program_runs_with_a_provider(folder: Path, environ: dict[str, str]):
    async with scripted_provider(folder / "offline.yaml", lambda _: None) as url:
        assert await last_line(folder, "two_agents", url, environ) == PRINTED["two_agents"]


def test_the_recording_matches_its_agent_and_fails_for_a_changed_one(
    recorded_session: RecordedSession,
):
    program = runpy.run_path(str(FOLDER / "recorded_test.py"))
    recorded_session(FOLDER / "sale.jsonl", agent=program["seller"]).check()
    changed = replace(program["seller"], instructions="Answer in verse.")
    with pytest.raises(AssertionError, match="the model request has changed"):
        recorded_session(FOLDER / "sale.jsonl", agent=changed).check()


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
async def test_a_program_killed_at_any_request_ends_the_same_way(
    name: str, folder: Path, environ: dict[str, str]
):
    at = 1
    while True:
        place = folder / str(at)
        shutil.copytree(FOLDER, place)
        running: list[Process] = []
        is_killed = False

        def kill(number: int, at: int = at, running: list[Process] = running) -> None:
            nonlocal is_killed
            if number == at:
                is_killed = True
                os.kill(running[0].pid, signal.SIGKILL)

        async with scripted_provider(place / "offline.yaml", kill) as url:
            await last_line(place, name, url, environ, running.append)
            if not is_killed:
                break
            assert await last_line(place, name, url, environ) == PRINTED[name], at
        at += 1
    assert at > 1  # it was killed at least once


@pytest.mark.slow
async def test_a_killed_tool_continues_from_its_stash(folder: Path, environ: dict[str, str]):
    stashed = 0

    async def kill_after_some_pages(process: Process) -> None:
        nonlocal stashed
        store = folder / ".mainspring/mainspring.db"
        with anyio.fail_after(60):
            while stashed < 5:
                await anyio.sleep(0.02)
                stashed = len(await stashes(store)) if store.exists() else 0
        os.kill(process.pid, signal.SIGKILL)

    async with scripted_provider(folder / "offline.yaml", lambda _: None) as url:
        async with anyio.create_task_group() as group:
            await last_line(
                folder, "stash", url, environ, lambda p: group.start_soon(kill_after_some_pages, p)
            )
        assert await last_line(folder, "stash", url, environ) == PRINTED["stash"]
    values = [item.value for item in await stashes(folder / ".mainspring/mainspring.db")]
    pages = msgspec.convert(values, list[tuple[int, int]])
    assert [page for page, _ in pages] == list(range(1, 21))


async def stashes(store: Path) -> list[ToolCallStashed]:
    async with open_sqlite(store, key=KEY) as opened:
        log = SessionLog(opened)
        rows = await log.sessions(limit=10)
        events = [event for row in rows for event in await log.read(row.id)]
    return [event.payload for event in events if isinstance(event.payload, ToolCallStashed)]


async def last_line(
    folder: Path,
    name: str,
    url: str,
    environ: dict[str, str],
    on_start: Callable[[Process], object] = lambda _: None,
) -> str:
    env = {**environ, "MAINSPRING_MODEL": "vllm:test", "VLLM_BASE_URL": url}
    command = [sys.executable, str(folder / f"{name}.py")]
    async with await anyio.open_process(
        command, cwd=folder, env=env, stderr=subprocess.STDOUT
    ) as process:
        on_start(process)
        printed = b""
        with anyio.fail_after(60):
            assert process.stdout is not None
            async for chunk in process.stdout:
                printed += chunk
            await process.wait()
    lines = printed.decode().splitlines()
    return lines[-1] if lines else ""
