"""Versions of an agent's folder."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.row_checks import for_each
from tests.written_files import write_file

from mainspring.core.errors import InvalidInput
from mainspring.runtime.agent_folder import folder_versions
from mainspring.runtime.agent_folder.agent_files import content_hash, files_of, is_part

LATER = datetime(2100, 1, 1, tzinfo=UTC)


class Clock:
    """Far in the future: what was written a moment ago is old enough to be known again."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> datetime:
        self.calls += 1
        return LATER + timedelta(seconds=self.calls)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "agent"
    write_file(place / "AGENTS.md", "Be brief.\n")
    write_file(place / "agent.yaml", "name: x\n")
    write_file(place / "skills/a/SKILL.md", "---\nname: a\n---\nA\n")
    write_file(place / "skills/a/scripts/run.sh", "#!/bin/sh\necho hello\n")
    write_file(place / "src/main.py", "not of the agent\n")
    return place


def texts(folder: Path) -> dict[str, str]:
    return {path: (folder / path).read_text() for path in files_of(folder)}


def test_a_version_is_recorded_only_if_something_has_changed(folder: Path, clock: Clock):
    first = folder_versions.record_version(folder, clock)
    assert (first.number, first.hash) == (1, content_hash(folder))
    assert folder_versions.record_version(folder, clock) == first
    write_file(folder / "src/main.py", "other code\n")
    write_file(folder / "CLAUDE.local.md", "mine alone\n")
    assert folder_versions.record_version(folder, clock) == first
    write_file(folder / "AGENTS.md", "Be long.\n")
    second = folder_versions.record_version(folder, clock)
    assert second.number == 2
    assert folder_versions.list_versions(folder) == (first, second)


def test_the_hash_does_not_depend_on_the_location_of_the_folder(folder: Path, tmp_path: Path):
    other = tmp_path / "elsewhere"
    for path, text in reversed(texts(folder).items()):
        write_file(other / path, text)
    assert content_hash(other) == content_hash(folder)
    (other / "AGENTS.md").rename(other / "CLAUDE.md")
    assert content_hash(other) != content_hash(folder)


def test_a_change_with_the_same_size_and_time_is_detected_in_fresh_files(folder: Path):
    now = lambda: datetime.fromtimestamp((folder / "AGENTS.md").stat().st_mtime, UTC)  # noqa: E731
    folder_versions.record_version(folder, now)
    before = (folder / "AGENTS.md").stat()
    write_file(folder / "AGENTS.md", "Be brave.\n")
    os.utime(folder / "AGENTS.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert folder_versions.record_version(folder, now).number == 2


def test_the_difference_between_versions_is_shown_file_by_file(folder: Path, clock: Clock):
    folder_versions.record_version(folder, clock)
    write_file(folder / "AGENTS.md", "Be kind.\n")
    (folder / "skills/a/scripts/run.sh").unlink()
    write_file(folder / "agents/b.md", "B")
    folder_versions.record_version(folder, clock)
    [instructions, new, gone] = folder_versions.diff_versions(folder, 1, 2)
    assert instructions.path == "AGENTS.md"
    assert "--- AGENTS.md (version 1)\n+++ AGENTS.md (version 2)\n" in instructions.text
    assert "-Be brief.\n+Be kind.\n" in instructions.text
    assert "--- /dev/null" in new.text
    assert "+B\n\\ No newline at end of file\n" in new.text
    assert "+++ /dev/null" in gone.text
    assert folder_versions.diff_versions(folder, 2) == []
    (folder / "skills/a/logo.png").write_bytes(b"\0\1")
    [picture] = folder_versions.diff_versions(folder, 2)
    assert picture.text.endswith("0 bytes -> 2 bytes\n")


def test_a_rollback_restores_files_removes_new_ones_and_records_a_version(
    folder: Path, clock: Clock
):
    folder_versions.record_version(folder, clock)
    before = texts(folder)
    write_file(folder / "AGENTS.md", "Changed.\n")
    write_file(folder / "commands/deep/go.md", "Go.\n")
    (folder / "skills/a/scripts/run.sh").unlink()
    made = folder_versions.rollback(folder, 1, clock)
    assert texts(folder) == before
    assert not (folder / "commands").exists()
    assert os.access(folder / "skills/a/scripts/run.sh", os.X_OK)
    assert (folder / "src/main.py").exists()
    [first, unsaved, last] = folder_versions.list_versions(folder)
    assert last == made
    assert (last.number, last.hash) == (3, first.hash)
    assert "+Changed.\n" in folder_versions.diff_versions(folder, 1, unsaved.number)[0].text
    folder_versions.rollback(folder, unsaved.number, clock)
    assert (folder / "AGENTS.md").read_text() == "Changed.\n"
    assert (folder / "commands/deep/go.md").exists()


def test_a_rollback_to_the_current_state_changes_nothing(folder: Path, clock: Clock):
    first = folder_versions.record_version(folder, clock)
    assert folder_versions.rollback(folder, 1, clock) == first


def test_an_interrupted_rollback_can_be_repeated_and_loses_nothing(folder: Path, clock: Clock):
    folder_versions.record_version(folder, clock)
    before = texts(folder)
    write_file(folder / "AGENTS.md", "Changed.\n")
    times = iter([clock(), clock()])
    with pytest.raises(StopIteration):  # after the files were written, before the index was
        folder_versions.rollback(folder, 1, lambda: next(times))
    assert [list_version.number for list_version in folder_versions.list_versions(folder)] == [1, 2]
    assert folder_versions.rollback(folder, 1, clock).number == 3
    assert texts(folder) == before
    assert "+Changed.\n" in folder_versions.diff_versions(folder, 1, 2)[0].text


def test_concurrent_recordings_make_one_version(folder: Path, clock: Clock):
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(folder_versions.record_version, folder, clock) for _ in range(8)]
    assert {item.result().number for item in made} == {1}


def test_an_unknown_version_is_refused(folder: Path, clock: Clock):
    with pytest.raises(InvalidInput, match="there is no version 1; there are none yet"):
        folder_versions.rollback(folder, 1, clock)
    folder_versions.record_version(folder, clock)
    with pytest.raises(InvalidInput, match="there is no version 7; there are 1 to 1"):
        folder_versions.diff_versions(folder, 7)


def test_links_are_neither_recorded_nor_written_through(folder: Path, tmp_path: Path, clock: Clock):
    outside = tmp_path / "outside"
    write_file(outside / "SKILL.md", "secret")
    (folder / "skills/linked").symlink_to(outside)
    (folder / "CLAUDE.md").symlink_to(outside / "SKILL.md")
    assert not any("linked" in path or "CLAUDE" in path for path in files_of(folder))
    folder_versions.record_version(folder, clock)
    write_file(folder / "AGENTS.md", "New.\n")
    (folder / "AGENTS.md").unlink()
    (folder / "AGENTS.md").symlink_to(outside / "SKILL.md")
    with pytest.raises(InvalidInput, match=r"AGENTS\.md: a link is in the way"):
        folder_versions.rollback(folder, 1, clock)
    assert (outside / "SKILL.md").read_text() == "secret"


def test_versions_are_not_stored_behind_a_symlink(folder: Path, tmp_path: Path, clock: Clock):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / ".mainspring").symlink_to(elsewhere)
    version = folder_versions.record_version(folder, clock)
    assert (version.number, version.hash) == (0, content_hash(folder))
    assert list(elsewhere.iterdir()) == []


def test_a_damaged_version_is_refused_before_anything_is_written(folder: Path, clock: Clock):
    folder_versions.record_version(folder, clock)
    kept = folder / ".mainspring/versions/objects"
    [damaged] = [f for f in kept.rglob("*") if f.is_file() and b"brief" in f.read_bytes()]
    damaged.write_text("Be evil.\n")
    write_file(folder / "AGENTS.md", "Now.\n")
    with pytest.raises(InvalidInput, match="has changed"):
        folder_versions.rollback(folder, 1, clock)
    assert (folder / "AGENTS.md").read_text() == "Now.\n"


def test_an_agent_whose_versions_cannot_be_stored_still_has_a_hash(folder: Path, clock: Clock):
    (folder / ".mainspring").write_text("in the way")
    version = folder_versions.record_version(folder, clock)
    assert (version.number, version.hash) == (0, content_hash(folder))
    assert version.label == version.hash[:12]


def test_a_folder_without_an_agent_has_no_versions(tmp_path: Path, clock: Clock):
    assert folder_versions.record_version(tmp_path, clock).number == 0
    assert list(tmp_path.iterdir()) == []


def test_unfinished_files_are_not_part_of_a_version(folder: Path, clock: Clock):
    first = folder_versions.record_version(folder, clock)
    write_file(folder / "skills/a/.mainspring-new-xyz", "half")
    (folder / ".mainspring/versions/seen.json").write_text("not JSON")
    assert folder_versions.record_version(folder, clock) == first


@for_each(
    ("path", "expected"),
    [
        ("agent.yaml", True),
        (".claude/skills/a/b/c.py", True),
        (".kiro/steering/product.md", True),
        ("agents/a.md", True),
        ("agents/a.py", False),
        (".git/hooks/pre-commit", False),
        ("skills/../.git/config", False),
        ("/etc/passwd", False),
        ("skills//a", False),
        ("skills/a/node_modules/b.js", False),
        (".claude/settings.local.json", False),
        (".mainspring/versions/index.json", False),
    ],
)
def test_only_agent_files_belong_to_a_version(path: str, expected: bool):
    assert is_part(path) is expected
