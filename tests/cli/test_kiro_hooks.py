"""Hook files of Kiro, `.kiro/hooks/<name>.json`, in a session of the command."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run
from tests.written_files import write_file

FILE = ".kiro/hooks/team.json"
GUARD = {"trigger": "PreToolUse", "matcher": "fs_write|str_replace"}
HOOKS = [
    GUARD | {"name": "guard", "action": {"type": "command", "command": "./guard.sh"}, "timeout": 5},
    {
        "name": "reminder",
        "trigger": "PreToolUse",
        "matcher": "execute_bash",
        "action": {"type": "agent", "prompt": "KEEP COMMANDS SHORT"},
    },
    GUARD | {"action": {"type": "command", "command": "exit 2"}, "enabled": False},
    {"trigger": "PostFileSave", "action": {"type": "command", "command": "npm run lint"}},
]


@pytest.fixture
def project(place: Path) -> Path:
    write_hooks(place, {"version": "v1", "hooks": HOOKS})
    write_file(place / "guard.sh", "#!/bin/sh\necho 'THE GUARD REFUSES' >&2\nexit 2\n")
    (place / "guard.sh").chmod(0o755)
    return place


def write_hooks(place: Path, content: object) -> None:
    write_file(place / FILE, json.dumps(content))


def run_calls(mainspring: Run, upstream: Upstream) -> tuple[str, str]:
    """The results of two calls, as the model reads them, and the standard error."""
    before = len(upstream.requests)
    upstream.says(call("write", file_path="a.txt", content="a"), call("bash", command="echo ok"))
    upstream.says("done")
    done = mainspring("run", "go", "--mode", "bypassPermissions", **upstream.variables)
    assert done.returncode == 0, done.stderr
    return json.dumps(upstream.requests[before + 1]), done.stderr


def test_kiro_hooks_run_once_the_folder_is_trusted(
    mainspring: Run, upstream: Upstream, project: Path
):
    results, warnings = run_calls(mainspring, upstream)
    assert "THE GUARD REFUSES" not in results
    assert "KEEP COMMANDS SHORT" not in results
    assert f"{FILE}: this folder is not trusted" in warnings
    (project / "a.txt").unlink()

    trusted = mainspring("policy", "trust")
    assert "./guard.sh" in trusted.stdout
    results, warnings = run_calls(mainspring, upstream)
    assert "THE GUARD REFUSES" in results
    assert "KEEP COMMANDS SHORT" in results
    assert "PostFileSave is not a known event" in warnings
    assert not (project / "a.txt").exists()

    write_hooks(project, {"version": "v1", "hooks": HOOKS[1:]})
    results, _ = run_calls(mainspring, upstream)
    assert "KEEP COMMANDS SHORT" not in results  # the file is not the one that was trusted


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"version": "v1", "hooks": [{"trigger": "Stop"}]}, "missing required field `action`"),
        ({"version": "v1", "hooks": [GUARD | {"action": {"type": "x"}}]}, "Invalid value 'x'"),
        ([], "must be an object"),
    ],
)
def test_an_invalid_kiro_hook_file_stops_the_run_and_fails_validation(
    mainspring: Run, project: Path, content: object, problem: str
):
    write_hooks(project, content)
    refused = mainspring("run", "--model", "scripted:demo", "hi")
    assert refused.returncode != 0
    assert FILE in refused.stderr
    assert problem in refused.stderr
    assert problem in str(run_validate(mainspring, status=1)["parts"])


@pytest.mark.parametrize("name", [b"\xff.json", b"two\nlines.json", b".hidden.json"])
def test_a_hook_file_whose_name_is_hidden_or_cannot_be_printed_is_not_read(
    mainspring: Run, place: Path, name: bytes
):
    write_hooks(place, {"version": "v1", "hooks": HOOKS})
    (place / FILE).rename(os.fsdecode(os.fsencode((place / FILE).parent) + b"/" + name))
    done = mainspring("run", "--model", "scripted:demo", "hi")
    assert done.returncode == 0, done.stderr
    assert "not trusted" not in done.stderr


def test_an_unreadable_hook_folder_stops_the_run_and_fails_validation(mainspring: Run, place: Path):
    (place / ".kiro").mkdir()
    (place / ".kiro/hooks").symlink_to("hooks")  # fails for root, too, unlike a mode
    refused = mainspring("run", "--model", "scripted:demo", "hi")
    assert refused.returncode != 0
    assert ".kiro/hooks: " in refused.stderr
    assert "symbolic links" in str(run_validate(mainspring, status=1)["parts"])


def test_a_file_without_enabled_hooks_needs_no_trust(
    mainspring: Run, upstream: Upstream, project: Path
):
    write_hooks(project, {"version": "v1", "hooks": [HOOKS[2]]})
    write_file(project / ".kiro/hooks/empty.json", json.dumps({"version": "v1"}))
    _, warnings = run_calls(mainspring, upstream)
    assert "not trusted" not in warnings
    assert json.loads(mainspring("policy", "explain", "--json").stdout)["is_trusted"]


def test_validate_reports_kiro_hook_files(mainspring: Run, project: Path):
    write_file(project / ".kiro/hooks/old.json", json.dumps({"version": "1.0.0", "when": {}}))
    report = run_validate(mainspring, status=0)
    [part] = [part for part in report["parts"] if part["name"] == "hooks"]
    ignored = [item["what"] for item in part["not_honoured"]]
    assert "`version`" in part["not_honoured"][0]["why"]
    assert ignored == [
        ".kiro/hooks/old.json",
        f"{FILE}: PreToolUse Write|Edit|Edit: ./guard.sh",
        f"{FILE}: PreToolUse Bash: remind: KEEP COMMANDS SHORT",
    ]
    mainspring("policy", "trust")
    [part] = [
        part for part in run_validate(mainspring, status=0)["parts"] if part["name"] == "hooks"
    ]
    assert part["honoured"] == ignored[1:]


def run_validate(mainspring: Run, *, status: int) -> dict[str, Any]:
    done = mainspring("validate", "--json")
    assert done.returncode == status, done.stdout
    return json.loads(done.stdout)
