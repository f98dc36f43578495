"""Installing a skill: from wherever, looked into, all of it or nothing."""

import io
import os
import stat
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.repositories import git

from mainspring.core.errors import AlreadyExists, InvalidInput, TooLarge
from mainspring.runtime.packages import installer
from mainspring.runtime.packages.package_contents import PackageLimits, read_contents
from mainspring.runtime.packages.source_fetching import resolve_source
from mainspring.runtime.packages.trust_pins import TrustPins
from mainspring.runtime.skills import skill_installation
from mainspring.runtime.skills.skill_installation import FOLDER, SkillChoice, write_new_skill
from mainspring.runtime.skills.strict_validation import check_strict

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TEXT = "---\nname: {name}\ndescription: Does {name}.\n---\nDo it.\n"


@pytest.fixture
def pins(home: Path) -> TrustPins:
    return TrustPins(home / ".mainspring" / "skills.json")


def skill_at(folder: Path, name: str = "pdf", files: Mapping[str, str] | None = None) -> Path:
    for path, text in {"SKILL.md": TEXT.format(name=name), **(files or {})}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def install(source: object, home: Path, pins: TrustPins, *, name: str | None = None) -> Path:
    with installer.staging_folder(home / FOLDER, now=NOW) as staging:
        choice = SkillChoice(names=frozenset((name,) if name else ()))
        [candidate] = skill_installation.fetch(str(source), Path(staging), choice).candidates
        kept = installer.install(candidate, Path(staging), home / FOLDER, replaces=True)
        installer.trust(candidate, kept, pins, NOW)
    return kept


def installed_files(home: Path) -> list[str]:
    return sorted(path.name for path in (home / ".mainspring").iterdir())


def zip_file(file: Path, entries: Mapping[str, bytes | str], link: str | None = None) -> Path:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in entries.items():
            archive.writestr(path, content)
        if link is not None:
            entry = zipfile.ZipInfo("pdf/link")
            entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, link)
    file.write_bytes(buffer.getvalue())
    return file


def test_a_folder_is_copied_scanned_and_trusted(home: Path, pins: TrustPins, tmp_path: Path):
    source = skill_at(tmp_path / "mine", files={"scripts/run.sh": "curl https://x.test\n"})
    (source / "scripts/run.sh").chmod(0o755)
    kept = install(source, home, pins)
    assert kept == home / ".mainspring/skills/pdf"
    assert os.access(kept / "scripts/run.sh", os.X_OK)
    assert pins.is_pinned(kept)
    pin = pins.of(kept)
    assert pin is not None
    assert (pin.source, pin.severity, pin.commit) == (str(source), "caution", "")
    assert installed_files(home) == ["skills", "skills.json"]


def test_a_repository_is_installed_without_its_history(home: Path, pins: TrustPins, tmp_path: Path):
    repository = skill_at(tmp_path / "pdf.git-source")
    git(repository, "init", "-q", "-b", "main")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "first")
    kept = install(f"file://{repository}", home, pins)
    pin = pins.of(kept)
    assert pin is not None
    assert pin.commit == git(repository, "rev-parse", "HEAD")
    assert [path.name for path in kept.iterdir()] == ["SKILL.md"]


def test_one_of_several_skills_is_chosen_by_name(home: Path, pins: TrustPins, tmp_path: Path):
    skill_at(tmp_path / "many/skills/pdf")
    skill_at(tmp_path / "many/skills/docx", "docx")
    with pytest.raises(InvalidInput, match="2 skills") as several:
        install(tmp_path / "many", home, pins)
    assert several.value.__notes__ == ["--all installs all of them, --only some of them: docx, pdf"]
    assert install(tmp_path / "many", home, pins, name="docx").name == "docx"
    with pytest.raises(InvalidInput, match="no skill xlsx"):
        install(tmp_path / "many", home, pins, name="xlsx")


def test_a_skill_at_the_root_does_not_hide_the_others(home: Path, pins: TrustPins, tmp_path: Path):
    source = skill_at(tmp_path / "many", "pdf")
    for name in ("docx", "xlsx"):
        skill_at(source / f"skills/{name}", name)
    skill_at(source / "skills/docx/template", "inner")
    with installer.staging_folder(home / FOLDER, now=NOW) as staging:
        offer = skill_installation.fetch(str(source), Path(staging))
        assert [candidate.name for candidate in offer.candidates] == ["pdf"]
        assert offer.others == ("docx", "xlsx")
    for choice in (SkillChoice(takes_all=True), SkillChoice(names=frozenset(("docx", "xlsx")))):
        with installer.staging_folder(home / FOLDER, now=NOW) as staging:
            offer = skill_installation.fetch(str(source), Path(staging), choice)
            assert [candidate.name for candidate in offer.candidates] == ["docx", "xlsx"]


def test_a_skill_with_1050_files_fits_and_one_over_the_limit_does_not(
    home: Path, pins: TrustPins, tmp_path: Path
):
    files = {f"data/{number}.txt": "x" for number in range(1_050)}
    kept = install(skill_at(tmp_path / "large", files=files), home, pins)
    assert len(list((kept / "data").iterdir())) == 1_050
    assert pins.is_pinned(kept)
    few = PackageLimits(max_files=10)
    with pytest.raises(TooLarge, match=r"^pdf: a skill may have at most 10 files"):
        read_contents(kept, few)


def test_owner_slash_repository_means_github_unless_such_a_folder_exists(tmp_path: Path):
    assert resolve_source("obra/superpowers", tmp_path) == "https://github.com/obra/superpowers.git"
    assert (
        resolve_source("obra/superpowers#v1", tmp_path)
        == "https://github.com/obra/superpowers.git#v1"
    )
    (tmp_path / "obra/superpowers").mkdir(parents=True)
    assert resolve_source("obra/superpowers", tmp_path) == str(tmp_path / "obra/superpowers")
    assert resolve_source("https://x.test/a/b", tmp_path) == "https://x.test/a/b"
    assert resolve_source("a/b/c", tmp_path) == str(tmp_path / "a/b/c")


@pytest.mark.parametrize("name", ["pdf.zip", "pdf.skill"])
@pytest.mark.parametrize("folder", ["", "pdf/"])
def test_archives_are_unpacked(name: str, folder: str, home: Path, pins: TrustPins, tmp_path: Path):
    content = {f"{folder}SKILL.md": TEXT.format(name="pdf"), f"{folder}run.sh": "#!/bin/sh\n"}
    kept = install(zip_file(tmp_path / name, content), home, pins)
    assert os.access(kept / "run.sh", os.X_OK)
    assert pins.is_pinned(kept)


@pytest.mark.parametrize("path", ["../up", "/etc/x", "pdf/../../up", "pdf\\..\\up"])
def test_an_archive_entry_outside_its_folder_is_refused(
    path: str, home: Path, pins: TrustPins, tmp_path: Path
):
    file = zip_file(tmp_path / "a.zip", {"pdf/SKILL.md": TEXT.format(name="pdf"), path: "x"})
    with pytest.raises(InvalidInput):
        install(file, home, pins)
    assert installed_files(home) == ["skills"]
    assert not (tmp_path / "up").exists()


def test_links_and_bombs_in_an_archive_are_refused(home: Path, pins: TrustPins, tmp_path: Path):
    text = TEXT.format(name="pdf")
    with pytest.raises(InvalidInput, match="links are not accepted"):
        install(zip_file(tmp_path / "a.zip", {"pdf/SKILL.md": text}, link="/etc"), home, pins)
    bomb = {"pdf/SKILL.md": text, "pdf/big": bytes(31 * 1024 * 1024)}
    with pytest.raises(TooLarge):
        install(zip_file(tmp_path / "b.zip", bomb), home, pins)
    (tmp_path / "c.zip").write_bytes(b"PK nothing")
    with pytest.raises(InvalidInput, match="not a readable ZIP archive"):
        install(tmp_path / "c.zip", home, pins)
    assert installed_files(home) == ["skills"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret"])
def test_a_skill_with_a_link_out_of_it_is_not_installed(
    target: str, home: Path, pins: TrustPins, tmp_path: Path
):
    source = skill_at(tmp_path / "mine")
    os.symlink(target, source / "notes.txt")
    with pytest.raises(InvalidInput, match="It is not installed"):
        install(source, home, pins)
    assert installed_files(home) == ["skills"]


@pytest.mark.parametrize(
    "source", ["ext::sh -c id", "http://x.test/a", "git://x.test/a", "file:///nowhere/at/all"]
)
def test_forbidden_or_unreachable_git_sources_are_refused(source: str, home: Path, pins: TrustPins):
    with pytest.raises(InvalidInput):
        install(source, home, pins)
    assert installed_files(home) == ["skills"]


def test_git_errors_are_reported_without_advice(home: Path, pins: TrustPins):
    with pytest.raises(InvalidInput, match="does not appear to be a git repository") as refused:
        install("file:///nowhere/at/all", home, pins)
    assert "Please" not in str(refused.value)
    assert "the repository exists" not in str(refused.value)


def test_a_source_without_a_valid_skill_is_refused(home: Path, pins: TrustPins, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="has no skill"):
        install(tmp_path / "empty", home, pins)
    with pytest.raises(InvalidInput, match="lowercase letters"):
        install(skill_at(tmp_path / "odd", "../../etc"), home, pins)
    with pytest.raises(InvalidInput, match="no such folder"):
        install(tmp_path / "nowhere", home, pins)


def test_an_installed_skill_is_replaced_only_on_request(
    home: Path, pins: TrustPins, tmp_path: Path
):
    kept = install(skill_at(tmp_path / "old", files={"old.txt": "x"}), home, pins)
    with installer.staging_folder(home / FOLDER, now=NOW) as staging:
        newer = skill_at(tmp_path / "new", files={"new.txt": "x"})
        [candidate] = skill_installation.fetch(str(newer), Path(staging)).candidates
        with pytest.raises(AlreadyExists, match="already installed"):
            installer.install(candidate, Path(staging), home / FOLDER)
        assert pins.is_pinned(kept)
        installer.install(candidate, Path(staging), home / FOLDER, replaces=True)
    assert sorted(path.name for path in kept.iterdir()) == ["SKILL.md", "new.txt"]
    assert pins.status(kept) == "changed"  # nobody has vouched for this one
    assert installed_files(home) == ["skills", "skills.json"]


def test_a_killed_install_is_repaired_by_the_next_one(home: Path, pins: TrustPins, tmp_path: Path):
    kept = install(skill_at(tmp_path / "mine"), home, pins)
    staging = home / ".mainspring" / ".new-skills-killed"
    (staging / "replaced").mkdir(parents=True)
    kept.rename(staging / "replaced" / "pdf")  # killed after the first of two renames
    before = (NOW - timedelta(hours=2)).timestamp()
    os.utime(staging, (before, before))
    (home / ".mainspring" / ".new-skills-busy").mkdir()
    busy = NOW.timestamp()
    os.utime(home / ".mainspring" / ".new-skills-busy", (busy, busy))
    with installer.staging_folder(home / FOLDER, now=NOW):
        assert pins.is_pinned(kept)
        assert not staging.exists()
    assert installed_files(home) == [".new-skills-busy", "skills", "skills.json"]


def test_a_removed_skill_and_its_trust_are_gone(home: Path, pins: TrustPins, tmp_path: Path):
    kept = install(skill_at(tmp_path / "mine"), home, pins)
    with installer.staging_folder(home / FOLDER, now=NOW) as staging:
        installer.remove(kept, Path(staging), pins)
    assert not kept.exists()
    assert pins.of(kept) is None


def test_removing_a_linked_skill_removes_only_the_link(home: Path, pins: TrustPins, tmp_path: Path):
    source = skill_at(tmp_path / "mine")
    link = home / ".mainspring" / "skills" / "pdf"
    link.parent.mkdir(parents=True)
    os.symlink(source, link)
    with installer.staging_folder(home / FOLDER, now=NOW) as staging:
        installer.remove(link, Path(staging), pins)
    assert not link.is_symlink()
    assert (source / "SKILL.md").exists()


def test_a_new_skill_passes_the_strict_check(home: Path):
    said = 'Says: "hello" - #1 {of} all'
    file = write_new_skill(home, "say-hello", said).file
    assert check_strict(file.parent) == []
    assert check_strict(write_new_skill(home, "other", None).file.parent) == []
    [candidate] = skill_installation.fetch(str(file.parent), home / "bench").candidates
    assert candidate.description == said
    with pytest.raises(AlreadyExists):
        write_new_skill(home, "say-hello", None)
    with pytest.raises(InvalidInput, match="hyphens"):
        write_new_skill(home, "Say Hello", None)
    with pytest.raises(InvalidInput, match="1024"):
        write_new_skill(home, "long", "x" * 1025)
