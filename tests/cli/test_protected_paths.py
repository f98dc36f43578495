"""Protected paths hold in every mode, also in `bypassPermissions` and with nobody to be asked."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.conftest import opened
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run
from tests.repositories import git

from mainspring.core.envelope import Event
from mainspring.core.events import PermissionUpdated, ToolCallAuthorized

FREE = ("--mode", "bypassPermissions")


def results(upstream: Upstream) -> list[str]:
    messages: list[dict[str, Any]] = upstream.requests[-1]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


async def events_of(store: Path) -> list[Event]:
    async with opened(store) as log:
        [session] = await log.sessions()
        return await log.read(session.id)


@pytest.fixture
def repository(place: Path) -> Path:
    git(place, "init", "-q")
    (place / "docs").symlink_to(".git")
    return place


def test_headless_bypass_mode_denies_writes_that_could_execute_later(
    mainspring: Run, upstream: Upstream, repository: Path, store: Path
):
    config = (repository / ".git" / "config").read_bytes()
    upstream.says(
        call("write", file_path=".git/hooks/pre-commit", content="#!/bin/sh\ntouch ran\n"),
        call("write", file_path=".claude/settings.json", content="{}"),
        call("write", file_path="docs/hooks/post-commit", content="#!/bin/sh\ntouch ran\n"),
        call("bash", command="mkdir -p .cursor && echo '{}' > .cursor/mcp.json"),
        call("write", file_path="fine.txt", content="fine"),
    )
    ended = mainspring("run", "change it", *FREE, **upstream.variables)
    assert ended.returncode == 0, ended.stderr
    *denied, fine = results(upstream)
    assert "Created fine.txt" in fine
    for item in denied:
        assert "protected" in item
        assert "--allow-protected" in item
        assert "tell the user" in item
    assert not (repository / ".git" / "hooks" / "pre-commit").exists()
    assert not (repository / ".git" / "hooks" / "post-commit").exists()
    assert not (repository / ".claude").exists()
    assert not (repository / ".cursor").exists()
    assert (repository / ".git" / "config").read_bytes() == config
    said = [item.payload for item in anyio.run(events_of, store)]
    decided = [item for item in said if isinstance(item, ToolCallAuthorized)]
    assert [item.decision for item in decided] == ["deny"] * 4 + ["allow"]


def test_an_allowed_protected_path_is_recorded_and_still_allowed_after_a_resume(
    mainspring: Run, upstream: Upstream, place: Path, store: Path
):
    settings = call("write", file_path=".vscode/settings.json", content="{}")
    upstream.says(settings, call("write", file_path=".vscode/tasks.json", content="{}"))
    allow = ("--allow-protected", ".vscode/settings.json")
    ended = mainspring("run", "set up", *FREE, *allow, **upstream.variables)
    assert ended.returncode == 0, ended.stderr
    first, second = results(upstream)
    assert "Created .vscode/settings.json" in first
    assert "protected" in second
    session = json.loads(mainspring("sessions", "ls", "--json").stdout)["id"]
    (place / ".vscode" / "settings.json").unlink()
    upstream.says(settings)
    again = mainspring("run", "again", "--resume", session, *FREE, **upstream.variables)
    assert again.returncode == 0, again.stderr
    assert "Created .vscode/settings.json" in results(upstream)[-1]
    said = [item.payload for item in anyio.run(events_of, store)]
    updates = [item for item in said if isinstance(item, PermissionUpdated)]
    paths = [(item.by, update.paths) for item in updates for update in item.updates if update.paths]
    assert paths == [("operator", (f"{place.resolve()}/.vscode/settings.json",))]


def test_symlinks_do_not_widen_an_allowed_protected_path(
    mainspring: Run, upstream: Upstream, repository: Path
):
    (repository / ".vscode").mkdir()
    upstream.says(
        call("bash", command='python3 -c \'import os; os.symlink(".git", "notes")\''),
        call("write", file_path="notes/config.worktree", content="[core]\n\tfsmonitor = x\n"),
    )
    allow = ("--allow-protected", ".vscode/settings.json")
    ended = mainspring("run", "set up", *FREE, *allow, **upstream.variables)
    assert ended.returncode == 0, ended.stderr
    assert "protected" in results(upstream)[-1]
    refused = mainspring("run", "x", "--allow-protected", "docs/config", **upstream.variables)
    assert (refused.returncode, "goes through one" in refused.stderr) == (1, True)
    for path in ("README.md", ".vscode"):
        refused = mainspring("run", "x", "--allow-protected", path, **upstream.variables)
        assert refused.returncode == 1
        assert f"--allow-protected {path}" in refused.stderr
