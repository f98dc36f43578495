"""`mainspring dream`, as a person uses it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

import pytest

Run: TypeAlias = Callable[..., CompletedProcess[str]]


def test_a_dream_is_reviewed_applied_and_taken_back(mainspring: Run, place: Path):
    model = ("--model", "scripted:demo")
    mainspring("run", "Always answer in French.", *model)
    assert not (place / "memory").exists()
    early = mainspring("dream", "run", "--if-due")
    assert "nothing to dream of" in early.stderr
    made = mainspring("dream", "run")
    assert "+Always answer in French." in made.stdout, made.stderr
    assert "proposed: 1 change" in made.stdout
    (view,) = map(json.loads, mainspring("dream", "ls", "--json").stdout.splitlines())
    assert (view["status"], view["sessions"]) == ("proposed", 1)
    assert "nothing to dream of" in mainspring("dream", "run").stderr
    applied = mainspring("dream", "apply", view["id"], "--yes")
    assert "applied: 1 change" in applied.stdout, applied.stderr
    assert "Always answer in French." in mainspring("memory", "search", "French").stdout
    back = mainspring("dream", "rollback", view["id"][-8:], "--reason", "no longer")
    assert "rolled_back" in back.stdout, back.stderr
    assert "no memory answers that" in mainspring("memory", "search", "French").stderr
    assert mainspring("dream", "show", "drm_nothing").returncode == 1
    assert mainspring("dream", "run", "--scope", "moon").returncode == 1


@pytest.mark.slow
def test_a_dream_that_is_killed_is_resumed_and_changes_nothing_twice(
    mainspring: Run, place: Path, environ: dict[str, str]
):
    for number in range(3):
        fact = f"Remember that station {number} is called Heron{number}."
        mainspring("run", fact, "--model", "scripted:demo")
    command = [sys.executable, "-m", "mainspring", "dream", "run", "--apply"]
    for delay in (0.3, 0.6, 0.9, 1.2, 1.6, 2.0):
        with subprocess.Popen(command, cwd=place, env=environ, stdout=subprocess.PIPE) as process:
            try:
                process.wait(delay)
            except subprocess.TimeoutExpired:
                process.kill()
    listed = [json.loads(line) for line in mainspring("dream", "ls", "--json").stdout.splitlines()]
    for view in listed:
        if view["status"] in ("running", "proposed"):
            resumed = mainspring("dream", "resume", view["id"])
            assert resumed.returncode == 0, resumed.stderr
    if not listed:
        mainspring("dream", "run", "--apply")
    assert mainspring("memory", "doctor").returncode == 0
    history = mainspring("memory", "history", "--json").stdout.splitlines()
    created = [json.loads(line)["path"] for line in history if '"created"' in line]
    notes = [path for path in created if path != "MEMORY.md"]
    assert len(notes) == len(set(notes)) == 3
