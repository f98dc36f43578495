"""Memories of two machines that are merged over git."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

import pytest

Run: TypeAlias = Callable[..., CompletedProcess[str]]
Git: TypeAlias = Callable[..., CompletedProcess[str]]


@pytest.fixture
def git(environ: dict[str, str]) -> Git:
    people = ("AUTHOR", "COMMITTER")
    identity = {f"GIT_{who}_{what}": "x@y" for who in people for what in ("NAME", "EMAIL")}

    def run(place: Path, *words: str) -> CompletedProcess[str]:
        env = {**environ, **identity, "GIT_CONFIG_GLOBAL": "/dev/null"}
        command = ["git", "-c", "init.defaultBranch=main", *words]
        return subprocess.run(
            command, cwd=place, env=env, capture_output=True, text=True, timeout=60
        )

    return run


@pytest.fixture
def other(place: Path, mainspring: Run, git: Git) -> Path:
    """A clone of the project, which has three memories."""
    for name in ("Release", "Lunch", "Door"):
        mainspring("memory", "add", f"{name} is at noon.", "--name", name)
    (place / ".gitignore").write_text(".mainspring/\n")
    for words in (("init",), ("add", "."), ("commit", "-m", "memories")):
        assert git(place, *words).returncode == 0
    assert git(place.parent, "clone", place.name, "other").returncode == 0
    return place.parent / "other"


def change(mainspring: Run, git: Git, place: Path, name: str, text: str, new: str) -> None:
    edited = mainspring("memory", "edit", f"reference_{name}.md", cwd=place, stdin=text)
    assert edited.returncode == 0, edited.stderr
    mainspring("memory", "add", f"{new} is blue.", "--name", new, cwd=place)
    assert git(place, "commit", "-am", new).returncode in (0, 1)
    assert git(place, "add", ".").returncode == 0
    assert git(place, "commit", "-m", new).returncode == 0


def test_memories_of_two_machines_are_merged_with_their_versions(
    mainspring: Run, git: Git, place: Path, other: Path
):
    change(mainspring, git, place, "release", "Release is on Monday.\n", "Sky")
    change(mainspring, git, other, "lunch", "Lunch is at one.\n", "Sea")
    merged = git(place, "pull", "--no-rebase", "--no-edit", "../other", "main")
    assert merged.returncode == 0, merged.stdout + merged.stderr
    assert mainspring("memory", "doctor").stdout == ""
    for query, text in (("sea", "Sea is blue."), ("sky", "Sky is blue."), ("lunch", "at one.")):
        assert text in mainspring("memory", "search", query).stdout
    history = mainspring("memory", "history", "--diff").stdout
    by_git = [line for line in history.splitlines() if "edited on disk" in line]
    assert ["modified MEMORY.md" in line for line in by_git] == [True], "the merged index only"
    for line in ("+Release is on Monday.", "+Lunch is at one.", "+Sea is blue.", "+Sky is blue."):
        assert history.count(line) == 1
    version = mainspring("memory", "history", "reference_lunch.md").stdout.split()[0]
    assert mainspring("memory", "revert", version).returncode == 0
    assert "Lunch is at noon." in mainspring("memory", "show", "reference_lunch.md").stdout


def test_a_merge_conflict_is_shown_and_resolved_only_by_a_person(
    mainspring: Run, git: Git, place: Path, other: Path
):
    change(mainspring, git, place, "door", "The door is red.\n", "Sky")
    change(mainspring, git, other, "door", "The door is green.\n", "Sea")
    file = place / "memory/reference_door.md"
    assert git(place, "pull", "--no-rebase", "--no-edit", "../other", "main").returncode == 1
    both = file.read_text()
    assert ("is red." in both, "is green." in both, "<<<<<<<" in both) == (True, True, True)
    doctor = mainspring("memory", "doctor")
    assert (doctor.returncode, "unresolved git conflict" in doctor.stdout) == (1, True)
    note = '{"name": "Door", "description": "d", "text": "It is blue."}'
    script = (
        f"- {{steps: [{{calls: [{{tool: memory_write, input: {{reason: x, note: {note}}}}}]}},"
        " {says: done}]}\n"
    )
    (place / "model.yaml").write_text(script)
    options = ("-m", "scripted:model.yaml", "--mode", "bypassPermissions")
    ran = mainspring("run", "Remember it.", "--json", *options)
    result = json.loads(ran.stdout.splitlines()[-1])
    session, (call,) = result["session_id"], result["waiting_for"]
    assert mainspring("sessions", "answer", session, call, "allow").returncode == 0
    assert mainspring("run", "--resume", session, *options).returncode == 0
    assert "has an unresolved git conflict: a person" in mainspring("log", "export", "last").stdout
    assert file.read_text() == both
    kept = mainspring("memory", "edit", "reference_door.md", stdin="The door is red.\n")
    assert kept.returncode == 0, kept.stderr
    (place / "model.yaml").unlink()
    assert git(place, "add", ".").returncode == 0
    assert git(place, "commit", "--no-edit").returncode == 0
    assert mainspring("memory", "doctor").stdout == ""
    assert "The door is green." in mainspring("memory", "history", "--diff").stdout
