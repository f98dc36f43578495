"""Purges, credits and dreams that are killed at any point: nothing is lost or done twice."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

import pytest
from tests.killed_command import count_steps, run_killed

Run: TypeAlias = Callable[..., CompletedProcess[str]]

FACT = "The vault code of the quixotic zephyr is seven plus nine."
PATH = "reference_vault_code.md"
POINTS = 12
PURGE = ("memory", "forget", PATH, "--purge")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_purge_killed_at_any_point_is_completed_by_running_it_again(
    mainspring: Run, place: Path, environ: dict[str, str], tmp_path: Path
):
    model = ("--model", "scripted:demo")
    assert mainspring("memory", "add", FACT, "--name", "Vault code").returncode == 0
    for question in (FACT, f"Is this right? {FACT}", "What is the vault code?"):
        assert mainspring("run", question, *model).returncode == 0
    mainspring("memory", "add", "Lunch is at noon.", "--name", "Lunch", "--scope", "user")
    mainspring("memory", "search", "zephyr")
    home = Path(environ["HOME"])
    save(tmp_path, place, home)
    steps = count_steps("forget", *PURGE, cwd=place, env=environ)
    check(mainspring, place, home)
    killed = 0
    for point in range(1, POINTS):
        restore(tmp_path, place, home)
        step = point * steps // POINTS
        killed += run_killed("forget", step, *PURGE, cwd=place, env=environ).returncode != 0
        if find_leftovers(place, home):
            if not (place / "memory" / PATH).exists():
                assert "was not finished" in mainspring("memory", "doctor").stdout
            done = mainspring(*PURGE)
            assert done.returncode == 0, (step, done.stderr)
        assert find_leftovers(place, home) == []
        assert mainspring("log", "verify", "--all").returncode == 0
    check(mainspring, place, home)
    assert killed, "a run that counts steps takes as many as one that is killed"


def find_leftovers(place: Path, home: Path) -> list[str]:
    """Files that have a word of it."""
    words = (b"quixotic", b"zephyr")
    files = [file for top in (place, home) for file in top.rglob("*") if file.is_file()]
    return [str(file) for file in files if any(word in file.read_bytes().lower() for word in words)]


def check(mainspring: Run, place: Path, home: Path) -> None:
    assert find_leftovers(place, home) == []
    assert mainspring("log", "verify", "--all").returncode == 0
    doctor = mainspring("memory", "doctor")
    assert doctor.returncode == 0, doctor.stdout
    assert "no memory or past conversation" in mainspring("memory", "search", "zephyr").stderr
    assert mainspring("run", "-c", "Hello", "--model", "scripted:demo").returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_credit_killed_at_any_point_is_written_once_and_blocks_no_session(
    mainspring: Run, place: Path, environ: dict[str, str], tmp_path: Path
):
    mainspring("memory", "add", "We release on Thursdays.", "--name", "Release day")
    model = ("--model", "scripted:demo")
    mainspring("chat", *model, stdin="On which day do we release?\n/good\n")
    home, stats = Path(environ["HOME"]), ("memory", "stats", "--type", "memory", "--json")
    save(tmp_path, place, home)
    steps = count_steps("update_utility", *stats, cwd=place, env=environ)
    for point in range(1, POINTS):
        restore(tmp_path, place, home)
        run_killed("update_utility", point * steps // POINTS, *stats, cwd=place, env=environ)
        (view,) = map(json.loads, mainspring(*stats).stdout.splitlines())
        assert (view["value"], view["credits"]) == (0.65, 1), point
        assert mainspring("log", "export", "last").stdout.count('"utility.credited"') == 1
    assert mainspring("run", "-c", "Hello", *model).returncode == 0
    assert mainspring("log", "verify", "--all").returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_dream_killed_at_any_point_resumes_and_applies_changes_once(
    mainspring: Run, place: Path, environ: dict[str, str], tmp_path: Path
):
    for number in range(3):
        fact = f"Remember that station {number} is called Heron{number}."
        mainspring("run", fact, "--model", "scripted:demo")
    home, dream = Path(environ["HOME"]), ("dream", "run", "--apply")
    save(tmp_path, place, home)
    steps = count_steps("run", *dream, cwd=place, env=environ)
    for point in range(1, POINTS):
        restore(tmp_path, place, home)
        run_killed("run", point * steps // POINTS, *dream, cwd=place, env=environ)
        listed = mainspring("dream", "ls", "--json").stdout.splitlines()
        for view in map(json.loads, listed):
            if view["status"] in ("running", "proposed"):
                resumed = mainspring("dream", "resume", view["id"])
                assert resumed.returncode == 0, resumed.stderr
        if not listed:
            assert mainspring(*dream).returncode == 0
        assert mainspring("memory", "doctor").returncode == 0
        history = map(json.loads, mainspring("memory", "history", "--json").stdout.splitlines())
        notes = [item["path"] for item in history if item["operation"] == "created"]
        assert len(notes) == len(set(notes)) == 4, (point, notes)  # with the index
    assert mainspring("log", "verify", "--all").returncode == 0


def save(tmp_path: Path, *folders: Path) -> None:
    for folder in folders:
        shutil.copytree(folder, tmp_path / "saved" / folder.name)


def restore(tmp_path: Path, *folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "saved" / folder.name, folder)
