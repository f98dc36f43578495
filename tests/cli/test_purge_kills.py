"""`memory forget --purge` that is killed at any point: the same command finishes it, and nothing of
the text is left."""

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
def test_a_purge_that_is_killed_anywhere_is_finished_by_the_same_command(
    mainspring: Run, place: Path, environ: dict[str, str], tmp_path: Path
):
    model = ("--model", "scripted:demo")
    assert mainspring("memory", "add", FACT, "--name", "Vault code").returncode == 0
    for question in (FACT, f"Is this right? {FACT}", "What is the vault code?"):
        assert mainspring("run", question, *model).returncode == 0
    mainspring("memory", "add", "Lunch is at noon.", "--name", "Lunch", "--scope", "user")
    mainspring("memory", "search", "zephyr")
    home = Path(environ["HOME"])
    saved = tmp_path / "saved"
    for folder in (place, home):
        shutil.copytree(folder, saved / folder.name)
    steps = count_steps("forget", *PURGE, cwd=place, env=environ)
    check(mainspring, place, home)
    killed = 0
    for point in range(1, POINTS):
        for folder in (place, home):
            shutil.rmtree(folder)
            shutil.copytree(saved / folder.name, folder)
        step = point * steps // POINTS
        killed += run_killed("forget", step, *PURGE, cwd=place, env=environ).returncode != 0
        if left_over(place, home):
            if not (place / "memory" / PATH).exists():
                assert "was not finished" in mainspring("memory", "doctor").stdout
            done = mainspring(*PURGE)
            assert done.returncode == 0, (step, done.stderr)
        assert left_over(place, home) == []
        assert mainspring("log", "verify", "--all").returncode == 0
    check(mainspring, place, home)
    assert killed, "a run that counts steps takes as many as one that is killed"


def left_over(place: Path, home: Path) -> list[str]:
    """Files that have a word of it."""
    words = (b"quixotic", b"zephyr")
    files = [file for top in (place, home) for file in top.rglob("*") if file.is_file()]
    return [str(file) for file in files if any(word in file.read_bytes().lower() for word in words)]


def check(mainspring: Run, place: Path, home: Path) -> None:
    assert left_over(place, home) == []
    assert mainspring("log", "verify", "--all").returncode == 0
    doctor = mainspring("memory", "doctor")
    assert doctor.returncode == 0, doctor.stdout
    assert "no memory answers that" in mainspring("memory", "search", "zephyr").stderr
    assert mainspring("run", "-c", "Hello", "--model", "scripted:demo").returncode == 0
