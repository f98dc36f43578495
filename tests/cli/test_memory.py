"""`mainspring memory`, as a person uses it."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

Run: TypeAlias = Callable[..., CompletedProcess[str]]
FILE = "project_release_day.md"


def test_a_memory_is_added_found_changed_restored_and_forgotten(mainspring: Run, place: Path):
    assert "nothing is remembered here" in mainspring("memory", "ls").stderr
    options = ("--name", "Release day", "--type", "project")
    added = mainspring("memory", "add", "We release on Thursdays.", *options)
    assert f"remembered {FILE}" in added.stdout, added.stderr
    (hit,) = mainspring("memory", "search", "release days", "--json").stdout.splitlines()
    assert (json.loads(hit)["path"], json.loads(hit)["text"]) == (FILE, "We release on Thursdays.")
    changed = mainspring("memory", "edit", FILE, "--json", stdin="On Fridays.\n")
    version = json.loads(changed.stdout)["id"]
    assert (place / "memory" / FILE).read_text() == "On Fridays.\n"
    history = mainspring("memory", "history", FILE, "--diff").stdout
    assert "+On Fridays." in history
    assert "no session was given" in mainspring("memory", "revert", version[-10:]).stderr
    assert "We release on Thursdays." in mainspring("memory", "show", FILE).stdout
    assert mainspring("memory", "doctor").returncode == 0
    assert mainspring("memory", "forget", FILE, "--purge").returncode == 0
    left = [file for file in (place / "memory").rglob("*") if file.is_file()]
    assert not any(b"Thursdays" in file.read_bytes() for file in left)
    missing = mainspring("memory", "show", FILE)
    assert (missing.returncode, missing.stderr) == (1, f"error: there is no memory {FILE}\n")


def test_a_secret_is_not_remembered(mainspring: Run, place: Path):
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    refused = mainspring("memory", "add", f"The token is {token}", "--name", "Token")
    assert refused.returncode == 1
    assert "secret" in refused.stderr
    assert not list((place / "memory").glob("*.md"))
