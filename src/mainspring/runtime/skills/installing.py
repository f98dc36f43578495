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
from mainspring.runtime.skills.archive import LIMITS, checked_files, unpacked
from mainspring.runtime.skills.fetching import fetched, is_remote, without_login
from mainspring.runtime.skills.pins import Pin, Pins
from mainspring.runtime.skills.reading import read_skill
from mainspring.runtime.skills.scan import Report, scan
from mainspring.runtime.skills.skill import Skill

FOLDER = ".mainspring/skills"
_REPLACED = "replaced"
_ARCHIVES = (".zip", ".skill")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME = 64
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


def fetch(source: str, bench: Path, *, name: str | None = None) -> Candidate:
    """Get a skill from a folder, an archive or a git repository, and look into it. Blocks.

    Raises:
        InvalidInput: there is none, it cannot be had, or it leads elsewhere.
        TooLarge.
    """
    into = bench / _stem(source)
    commit = ""
    if is_remote(source):
        commit = fetched(source, into).commit
    elif source.lower().endswith(_ARCHIVES) and os.path.isfile(source):
        _unpack(Path(source), into)
    else:
        fetched(source, into)
    shown = without_login(source)
    skill = _chosen(into, shown, name)
    folder = Path(skill.folder)
    report = scan(folder)
    if refused := next((hit for hit in report.hits if hit.rule in _REFUSED), None):
        raise InvalidInput(f"{refused.excerpt}: {refused.why} It is not installed.")
    return Candidate(skill=skill, folder=folder, report=report, source=shown, commit=commit)


def check_free(base: Path, name: str, *, replaces: bool) -> None:
    """Raises: AlreadyThere."""
    if not replaces and os.path.lexists(base / FOLDER / name):
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
    content = read_bounded(file, max_bytes=LIMITS.max_bytes) or b""
    files = checked_files(list(unpacked(file.name, content, LIMITS)), LIMITS)
    for path, upload in files.items():
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(upload.content)
        target.chmod(0o755 if upload.is_executable else 0o644)


def _chosen(root: Path, source: str, name: str | None) -> Skill:
    walk = Walk(Scopes(folder=root))
    place = Place(root, "project")
    found: list[Skill] = []
    why = ""
    for file in walk.files(place, _manifests):
        skill, findings = read_skill(file, place, file.relative_to(root).as_posix())
        if skill is None:
            why = f": {findings[-1]}" if findings else ""
        elif name is None or name in (skill.name, file.parent.name):
            found.append(skill)
    if len(found) == 1:
        check_name(found[0].name)
        return found[0]
    if not found:
        wanted = "skill" if name is None else f"skill {name}"
        raise InvalidInput(f"{source}: there is no {wanted} in it{why}")
    several = InvalidInput(f"{source}: there are {len(found)} skills in it")
    several.add_note(f"--skill chooses one: {_listed(found)}")
    raise several


def _listed(skills: Sequence[Skill]) -> str:
    names = sorted(skill.name for skill in skills)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def _manifests(names: Sequence[str], depth: int) -> tuple[Sequence[str], bool]:
    del depth
    found = [each for each in ("SKILL.md", "skill.md") if each in names][:1]
    return found, not found
