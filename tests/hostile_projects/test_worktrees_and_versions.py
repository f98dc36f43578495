"""Worktrees and versions that mean ill: rules hold in copies of the work, and nothing of ours, nor
of anybody else's, is written."""

import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.repositories import repository
from tests.written_files import write_file

from mainspring.core.errors import InvalidInput
from mainspring.harness.permissions.policy import Policy, PolicyRule, is_hidden, relocate_policy
from mainspring.runtime.agent_folder.folder_versions import diff_versions, record_version, rollback
from mainspring.runtime.agent_folder.manifest import read_manifest
from mainspring.wiring.worktrees import open_worktrees

COPY = "/home/ada/proj/.mainspring/worktrees/s/one"


def now() -> datetime:
    return datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("Read(/secrets/**)", "/home/ada/proj"),
        ("Read(./secrets/**)", "/home/ada/proj"),
        ("Read(//home/ada/proj/secrets/**)", "/home/ada/.mainspring"),
        ("Read(~/proj/secrets/**)", "/home/ada/.mainspring"),
    ],
)
def test_a_path_denied_for_reading_is_denied_in_a_worktree(text: str, folder: str):
    rule = PolicyRule(text=text, behavior="deny", scope="project", folder=folder)
    policy = Policy(workspace="/home/ada/proj", home="/home/ada", rules=(rule,))
    elsewhere = relocate_policy(policy, COPY)
    assert elsewhere.workspace == COPY
    for place in (COPY, *(("/home/ada/proj",) if "ada" in text or "~" in text else ())):
        assert is_hidden(elsewhere, f"{place}/secrets/key", f"{place}/secrets/key")
    assert not is_hidden(elsewhere, f"{COPY}/a.py", f"{COPY}/a.py")


async def test_a_worktree_adds_nothing_to_the_mainspring_folder(tmp_path: Path):
    workspace = repository(tmp_path / "work")
    worktrees = open_worktrees(workspace, tmp_path / "place")
    opened = await worktrees.open("helper")
    write_file(opened.path / ".Mainspring" / "settings.json", "{}")
    (opened.path / "a.txt").write_text("changed\n")
    closed = await worktrees.close(opened, merge=True, message="did it")
    assert closed.outcome == "kept"
    assert "not part of the workspace" in (closed.reason or "")
    assert (workspace / "a.txt").read_text() != "changed\n"
    assert not (workspace / ".Mainspring").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "agent"
    write_file(made / "AGENTS.md", "Be good.")
    record_version(made, now)
    return made


def _objects(store: Path, elsewhere: Path) -> None:
    elsewhere.mkdir()
    (store / "objects").rename(store / "kept")
    (store / "objects").symlink_to(elsewhere)


def _lock(store: Path, elsewhere: Path) -> None:
    (store / "lock").unlink()
    (store / "lock").symlink_to(elsewhere)


def _pipe(store: Path, _elsewhere: Path) -> None:
    (store / "lock").unlink()
    os.mkfifo(store / "lock")


@pytest.mark.parametrize("lead", [_objects, _lock, _pipe])
def test_recording_a_version_follows_no_planted_link(
    folder: Path, tmp_path: Path, lead: Callable[[Path, Path], None]
):
    elsewhere = tmp_path / "elsewhere"
    lead(folder / ".mainspring/versions", elsewhere)
    (folder / "AGENTS.md").write_text("Be better.")
    with pytest.raises(InvalidInput, match=r"a link is in the way|not a file"):
        record_version(folder, now)
    assert not elsewhere.exists() or not any(elsewhere.iterdir())


@pytest.mark.parametrize("listing", [b"[]", b"\xff", b'{"AGENTS.md": 3}', b'{"../x": "y"}'])
def test_a_forged_version_is_refused(folder: Path, listing: bytes):
    name = hashlib.sha256(listing).hexdigest()
    store = folder / ".mainspring/versions"
    file = store / "objects" / name[:2] / name[2:]
    write_file(file, listing)
    version = {"number": 1, "hash": name, "time": "2026-05-01T00:00:00Z"}
    (store / "index.json").write_text(json.dumps({"versions": [version]}))
    for act in (lambda: rollback(folder, 1, now), lambda: diff_versions(folder, 1)):
        with pytest.raises(InvalidInput):
            act()
    assert (folder / "AGENTS.md").read_text() == "Be good."


def test_a_manifest_that_is_too_long_is_not_read(tmp_path: Path):
    file = tmp_path / "agent.yaml"
    file.write_text("tools: [" + "a," * 100_000 + "]")
    wrong = read_manifest(file).error
    assert wrong is not None
    assert "longer than" in wrong.what
