"""Skills that somebody has vouched for: only as long as they are what they were."""

import json
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mainspring.core.errors import InvalidInput
from mainspring.runtime.packages.package_contents import contents_hash, read_contents
from mainspring.runtime.packages.scan import scan
from mainspring.runtime.packages.trust_pins import TrustPin, TrustPins

WHEN = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "skills" / "pdf"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: pdf\n---\n")
    (folder / "scripts" / "run.sh").write_text("echo hi\n")
    os.symlink("SKILL.md", folder / "README.md")
    return folder


@pytest.fixture
def pins(tmp_path: Path) -> TrustPins:
    return TrustPins(tmp_path / "home" / ".mainspring" / "skills.json")


def pin_folder(pins: TrustPins, folder: Path) -> TrustPins:
    report = scan(folder)
    pins.pin(folder, TrustPin(hash=report.hash, when=WHEN, severity=report.severity, source="here"))
    return pins


def test_a_skill_is_trusted_while_it_is_pinned(pins: TrustPins, skill: Path):
    assert (pins.is_pinned(skill), pins.trusted_hash(skill)) == (False, None)
    pin_folder(pins, skill)
    assert (pins.is_pinned(skill), bool(pins.trusted_hash(skill))) == (True, True)
    assert pins.unpin(skill)
    assert not pins.unpin(skill)
    assert pins.status(skill) == "unknown"


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda skill: (skill / "SKILL.md").write_text("---\nname: pdF\n---\n"),
    "a script": lambda skill: (skill / "scripts/run.sh").write_text("echo ho\n"),
    "a new file": lambda skill: (skill / "scripts/more.sh").touch(),
    "a hidden file": lambda skill: (skill / ".hidden").touch(),
    "a file gone": lambda skill: (skill / "scripts/run.sh").unlink(),
    "a name": lambda skill: (skill / "scripts/run.sh").rename(skill / "scripts/go.sh"),
    "a folder": lambda skill: (skill / "scripts").rename(skill / "tools"),
    "what may be run": lambda skill: (skill / "scripts/run.sh").chmod(0o755),
    "where a link leads": lambda skill: (
        (skill / "README.md").unlink(),
        os.symlink("scripts/run.sh", skill / "README.md"),
    ),
    "a link for a file": lambda skill: (
        (skill / "scripts/run.sh").unlink(),
        os.symlink("/etc/passwd", skill / "scripts/run.sh"),
    ),
    "a pipe": lambda skill: os.mkfifo(skill / "pipe"),
    "too much": lambda skill: [(skill / f"{number}").touch() for number in range(1000)],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_change_ends_the_trust(change: Callable[[Path], object], pins: TrustPins, skill: Path):
    pin_folder(pins, skill)
    change(skill)
    assert not pins.is_pinned(skill)
    assert (pins.status(skill), pins.trusted_hash(skill)) == ("changed", False)


def test_the_same_skill_elsewhere_is_not_trusted(pins: TrustPins, skill: Path, tmp_path: Path):
    pin_folder(pins, skill)
    other = tmp_path / "other"
    skill.rename(other)
    assert not pins.is_pinned(other)
    os.symlink(other, skill)
    assert pins.status(skill) == "unknown"


def test_trust_applies_to_the_real_path_of_a_skill(pins: TrustPins, skill: Path, tmp_path: Path):
    link = tmp_path / "link"
    os.symlink(skill, link)
    assert pin_folder(pins, link).is_pinned(skill)


def test_a_single_file_can_be_pinned(pins: TrustPins, tmp_path: Path):
    command = tmp_path / "deploy.md"
    command.write_text("Go.\n")
    assert pin_folder(pins, command).is_pinned(command)
    command.write_text("Go on.\n")
    assert not pins.is_pinned(command)


def test_the_pin_file_is_private_and_records_hash_time_severity_and_source(
    pins: TrustPins, skill: Path, tmp_path: Path
):
    pin_folder(pins, skill)
    file = tmp_path / "home" / ".mainspring" / "skills.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    [(path, kept)] = json.loads(file.read_text()).items()
    assert path == os.path.realpath(skill)
    assert kept == {
        "hash": contents_hash(read_contents(skill)),
        "when": "2026-01-02T00:00:00Z",
        "severity": "note",
        "source": "here",
    }


def test_pins_written_by_another_process_are_seen(pins: TrustPins, skill: Path, tmp_path: Path):
    assert not pins.is_pinned(skill)
    pin_folder(TrustPins(tmp_path / "home" / ".mainspring" / "skills.json"), skill)
    assert pins.is_pinned(skill)


def test_a_broken_pin_file_is_reported_and_nothing_is_trusted(
    pins: TrustPins, skill: Path, tmp_path: Path
):
    pin_folder(pins, skill)
    (tmp_path / "home" / ".mainspring" / "skills.json").write_text('{"a": 1}')
    with pytest.raises(InvalidInput, match=r"skills\.json: .*remove it to start over"):
        pins.is_pinned(skill)
