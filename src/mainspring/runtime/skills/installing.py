"""Skills that people install: fetched, looked into, put in their place, taken away. Whether one is
to be trusted, a person says."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mainspring.core.errors import AlreadyThere, InvalidInput
from mainspring.runtime.folder import workbench as whole_folders
from mainspring.runtime.folder.scopes import Place, Scopes
from mainspring.runtime.folder.walking import Walk
from mainspring.runtime.folder.whole_file import read_bounded
from mainspring.runtime.skills.archive import (
    DISK_LIMITS,
    LIMITS,
    SkillLimits,
    checked_files,
    unpacked,
)
from mainspring.runtime.skills.discovery import manifests
from mainspring.runtime.skills.fetching import fetched, is_remote, without_login
from mainspring.runtime.skills.pins import Pin, Pins
from mainspring.runtime.skills.reading import read_skill
from mainspring.runtime.skills.scan import Report, scan
from mainspring.runtime.skills.skill import Skill

FOLDER = ".mainspring/skills"
_REPLACED = "replaced"
_ARCHIVES = (".zip", ".skill")
_ARCHIVE_LIMITS = SkillLimits(max_bytes=LIMITS.max_bytes, max_files=DISK_LIMITS.max_files)
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME = 64
_OWN = ("skills", ".mainspring/skills", ".claude/skills", ".agents/skills")
_REFUSED = ("link-out", "special-file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A skill that is not installed yet, and what there is to know before it is."""

    skill: Skill
    folder: Path
    report: Report
    source: str
    commit: str
    """Of the repository that it is from; empty otherwise."""


def workbench(base: Path, *, now: datetime) -> tempfile.TemporaryDirectory[str]:
    """Beside the skills of `base`, the user's folder or the project's.

    Raises: InvalidInput.
    """
    return whole_folders.workbench(base / FOLDER, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which skills of a source are meant; without a word, the only one or the one at its root."""

    names: frozenset[str] = frozenset()
    takes_all: bool = False


ONE = Choice()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a source has: the skills that were chosen, and the names of the others."""

    candidates: tuple[Candidate, ...]
    others: tuple[str, ...]


def fetch(source: str, bench: Path, choice: Choice = ONE) -> Offer:
    """Get skills from a folder, an archive or a git repository, and scan them. Blocks.

    Raises:
        InvalidInput: there is none, it cannot be had, or it leads elsewhere.
        TooLarge.
    """
    into = Path(os.path.realpath(bench)) / _stem(source)
    commit = ""
    if is_remote(source):
        commit = fetched(source, into).commit
    elif source.lower().endswith(_ARCHIVES) and os.path.isfile(source):
        _unpack(Path(source), into)
    else:
        fetched(source, into)
    shown = without_login(source)
    skills = _skills_in(into, shown)
    chosen = _chosen(skills, into, shown, choice)
    return Offer(
        candidates=tuple(_scanned(skill, shown, commit) for skill in chosen),
        others=tuple(sorted({skill.name for skill in skills} - {skill.name for skill in chosen})),
    )


def _scanned(skill: Skill, source: str, commit: str) -> Candidate:
    folder = Path(skill.folder)
    report = scan(folder)
    if refused := next((hit for hit in report.hits if hit.rule in _REFUSED), None):
        raise InvalidInput(f"{refused.excerpt}: {refused.why} It is not installed.")
    return Candidate(skill=skill, folder=folder, report=report, source=source, commit=commit)


def check_free(base: Path, name: str, *, replaces: bool) -> None:
    """Raises: AlreadyThere."""
    if not replaces and is_taken(base, name):
        taken = AlreadyThere(f"{name} is installed already")
        taken.add_note("--replace puts this one in its place")
        raise taken


def keep(candidate: Candidate, bench: Path, base: Path, *, replaces: bool = False) -> Path:
    """Put a skill in its place: all of it or, whatever happens, what was there before. Blocks.

    Raises:
        AlreadyThere: there is one of that name, and it is not to be replaced.
        InvalidInput: it cannot be written.
    """
    name = candidate.skill.name
    target = base / FOLDER / name
    check_free(base, name, replaces=replaces)
    whole_folders.put(candidate.folder, target, bench)
    return target


def is_taken(base: Path, name: str) -> bool:
    return os.path.lexists(base / FOLDER / name)


def vouch(candidate: Candidate, kept: Path, pins: Pins, when: datetime) -> None:
    """Trust an installed skill as it was when it was looked into.

    Raises: InvalidInput.
    """
    pin = Pin(
        hash=candidate.report.hash,
        when=when,
        severity=candidate.report.severity,
        source=candidate.source,
        commit=candidate.commit,
    )
    pins.pin(kept, pin)


def remove(folder: Path, bench: Path, pins: Pins) -> None:
    """Take a skill away, and the trust in it. Of a link, only the link. Blocks.

    Raises: InvalidInput.
    """
    pins.unpin(folder)
    whole_folders.take_away(folder, bench)


def check_name(name: str) -> None:
    """Raises: InvalidInput."""
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r}: a skill's name has 1 to {_MAX_NAME} lowercase letters, digits and single"
            " hyphens"
        )


def _stem(source: str) -> str:
    """What a skill is called that stands at the root of its source and does not say."""
    last = re.split(r"[/\\:]", source.partition("#")[0].rstrip("/\\"))[-1].lower()
    stem = re.sub(r"\.(?:git|zip|skill)$", "", last)
    return stem if _NAME.fullmatch(stem) and stem != _REPLACED else "skill"


def _unpack(file: Path, into: Path) -> None:
    content = read_bounded(file, max_bytes=_ARCHIVE_LIMITS.max_bytes) or b""
    files = checked_files(list(unpacked(file.name, content, _ARCHIVE_LIMITS)), _ARCHIVE_LIMITS)
    for path, upload in files.items():
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(upload.content)
        target.chmod(0o755 if upload.is_executable else 0o644)


def _skills_in(root: Path, source: str) -> list[Skill]:
    place = Place(root, "project")
    skills: dict[str, Skill] = {}
    why = ""
    found = (
        Path(os.path.realpath(file)) for file in Walk(Scopes(folder=root)).files(place, manifests)
    )
    for file in sorted(dict.fromkeys(found), key=lambda file: _rank(file, root)):
        skill, findings = read_skill(file, place, file.relative_to(root).as_posix())
        if skill is not None:
            skills.setdefault(skill.name, skill)
        elif findings:
            why = f": {findings[-1]}"
    if not skills:
        raise InvalidInput(f"{source}: there is no skill in it{why}")
    return list(skills.values())


def _rank(file: Path, root: Path) -> int:
    """First where an agent that stood there would look; translations and samples come later."""
    if file.parent == root:
        return 0
    return next((at for at, own in enumerate(_OWN, 1) if file.is_relative_to(root / own)), 9)


def _chosen(skills: Sequence[Skill], root: Path, source: str, choice: Choice) -> list[Skill]:
    names = {name: skill for skill in skills for name in (Path(skill.folder).name, skill.name)}
    if unknown := sorted(choice.names - set(names)):
        missing = InvalidInput(f"{source}: there is no skill {unknown[0]} in it")
        missing.add_note(f"there are {_listed(skills)}")
        raise missing
    if choice.takes_all:
        chosen = [skill for skill in skills if Path(skill.folder) != root or len(skills) == 1]
    elif choice.names:
        chosen = [skill for skill in skills if skill in [names[name] for name in choice.names]]
    elif len(skills) == 1 or Path(skills[0].folder) == root:
        chosen = [skills[0]]
    else:
        several = InvalidInput(f"{source}: there are {len(skills)} skills in it")
        several.add_note(f"--all installs them all, --only some: {_listed(skills)}")
        raise several
    for skill in chosen:
        check_name(skill.name)
    return chosen


def _listed(skills: Sequence[Skill]) -> str:
    names = sorted(skill.name for skill in skills)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
