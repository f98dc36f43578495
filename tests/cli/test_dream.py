"""`mainspring dream`, as a person uses it."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

Run: TypeAlias = Callable[..., CompletedProcess[str]]


def test_a_dream_is_reviewed_applied_and_reverted(mainspring: Run, place: Path):
    model = ("--model", "scripted:demo")
    mainspring("run", "Always answer in French.", *model)
    assert not (place / "memory").exists()
    early = mainspring("dream", "run", "--if-due")
    assert "nothing to do" in early.stderr
    made = mainspring("dream", "run")
    assert "+Always answer in French." in made.stdout, made.stderr
    assert "proposed: 1 change" in made.stdout
    (view,) = map(json.loads, mainspring("dream", "ls", "--json").stdout.splitlines())
    assert (view["status"], view["sessions"]) == ("proposed", 1)
    assert "nothing to do" in mainspring("dream", "run").stderr
    applied = mainspring("dream", "apply", view["id"], "--yes")
    assert "applied: 1 change" in applied.stdout, applied.stderr
    assert "Always answer in French." in mainspring("memory", "search", "French").stdout
    back = mainspring("dream", "rollback", view["id"][-8:], "--reason", "no longer")
    assert "rolled_back" in back.stdout, back.stderr
    in_memories = ("memory", "search", "French", "--scope", "agent")
    assert "no memory or past conversation matches" in mainspring(*in_memories).stderr
    assert mainspring("dream", "show", "drm_nothing").returncode == 1
    assert mainspring("dream", "run", "--scope", "moon").returncode == 1
