"""Skills that people install or create: fetched and scanned, or written from a template.
`packages.installer` installs them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mainspring.core.errors import AlreadyExists, InvalidInput
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.runtime.definition_files.scopes import PartLocation, PartWalk, Scopes
from mainspring.runtime.packages.installer import PackageCandidate
from mainspring.runtime.packages.package_contents import (
    DISK_LIMITS,
    LIMITS,
    ContentItem,
    PackageLimits,
    check_files,
    contents_hash,
    unpack_archive,
)
from mainspring.runtime.packages.scan import scan
from mainspring.runtime.packages.source_fetching import fetch_source, is_remote, without_login
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_discovery import select_manifests
from mainspring.runtime.skills.skill_file import read_skill

FOLDER = ".mainspring/skills"
_REPLACED = "replaced"
_ARCHIVES = (".zip", ".skill")
_ARCHIVE_LIMITS = PackageLimits(max_bytes=LIMITS.max_bytes, max_files=DISK_LIMITS.max_files)
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME = 64  # characters: the specification of SKILL.md
_OWN_PLACES = ("skills", ".mainspring/skills", ".claude/skills", ".agents/skills")
_REFUSED = ("link-out", "special-file")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillChoice:
    """Which skills of a source to take; by default the only one, or the one at its root."""

    names: frozenset[str] = frozenset()
    takes_all: bool = False


DEFAULT_CHOICE = SkillChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillOffer:
    """The chosen skills of a source, and the names of its other skills."""

    candidates: tuple[PackageCandidate, ...]
    others: tuple[str, ...]


def fetch(source: str, staging: Path, choice: SkillChoice = DEFAULT_CHOICE) -> SkillOffer:
    """Get skills from a folder, an archive or a git repository, and scan them. Blocks.

    Raises:
        InvalidInput: there is no skill, it cannot be fetched, or a link leads out of it.
        TooLarge.
    """
    into = Path(os.path.realpath(staging)) / _default_name(source)
    commit = ""
    if is_remote(source):
        commit = fetch_source(source, into).commit
    elif source.lower().endswith(_ARCHIVES) and os.path.isfile(source):
        _unpack(Path(source), into)
    else:
        fetch_source(source, into)
    display_source = without_login(source)
    skills = _skills_in(into, display_source)
    selection = _choose(skills, into, display_source, choice)
    return SkillOffer(
        candidates=tuple(_scan_candidate(skill, display_source, commit) for skill in selection),
        others=tuple(
            sorted({skill.name for skill in skills} - {skill.name for skill in selection})
        ),
    )


def _scan_candidate(skill: Skill, source: str, commit: str) -> PackageCandidate:
    folder = Path(skill.folder)
    report = scan(folder)
    if refused := next((hit for hit in report.hits if hit.rule in _REFUSED), None):
        raise InvalidInput(f"{refused.excerpt}: {refused.why} It is not installed.")
    return PackageCandidate(
        name=skill.name,
        description=skill.description,
        folder=folder,
        scan_report=report,
        hashes={".": report.hash},
        source=source,
        commit=commit,
    )


def check_name(name: str) -> None:
    """Raises: InvalidInput."""
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r}: a skill's name has 1 to {_MAX_NAME} lowercase letters, digits and single"
            " hyphens"
        )


def _default_name(source: str) -> str:
    """The name of a skill at the root of its source whose file does not give one."""
    last = re.split(r"[/\\:]", source.partition("#")[0].rstrip("/\\"))[-1].lower()
    stem = re.sub(r"\.(?:git|zip|skill)$", "", last)
    return stem if _NAME.fullmatch(stem) and stem != _REPLACED else "skill"


def _unpack(file: Path, into: Path) -> None:
    content = read_bounded(file, max_bytes=_ARCHIVE_LIMITS.max_bytes) or b""
    files = check_files(list(unpack_archive(file.name, content, _ARCHIVE_LIMITS)), _ARCHIVE_LIMITS)
    for path, upload in files.items():
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(upload.content)
        target.chmod(0o755 if upload.is_executable else 0o644)


def _skills_in(root: Path, source: str) -> list[Skill]:
    place = PartLocation(root, "project")
    skills: dict[str, Skill] = {}
    why = ""
    files = (
        Path(os.path.realpath(file))
        for file in PartWalk(Scopes(folder=root)).files(place, select_manifests)
    )
    for file in sorted(dict.fromkeys(files), key=lambda file: _rank(file, root)):
        skill, findings = read_skill(file, place, file.relative_to(root).as_posix())
        if skill is not None:
            skills.setdefault(skill.name, skill)
        elif findings:
            why = f": {findings[-1]}"
    if not skills:
        raise InvalidInput(f"{source}: has no skill{why}")
    return list(skills.values())


def _rank(file: Path, root: Path) -> int:
    """Places where an agent would look come first; translations and samples come later."""
    if file.parent == root:
        return 0
    return next(
        (rank for rank, place in enumerate(_OWN_PLACES, 1) if file.is_relative_to(root / place)),
        9,
    )


def _choose(skills: Sequence[Skill], root: Path, source: str, choice: SkillChoice) -> list[Skill]:
    names = {name: skill for skill in skills for name in (Path(skill.folder).name, skill.name)}
    if unknown := sorted(choice.names - set(names)):
        error = InvalidInput(f"{source}: has no skill {unknown[0]}")
        error.add_note(f"it has {_join_names(skills)}")
        raise error
    if choice.takes_all:
        selection = [skill for skill in skills if Path(skill.folder) != root or len(skills) == 1]
    elif choice.names:
        selection = [skill for skill in skills if skill in [names[name] for name in choice.names]]
    elif len(skills) == 1 or Path(skills[0].folder) == root:
        selection = [skills[0]]
    else:
        error = InvalidInput(f"{source}: has {len(skills)} skills")
        error.add_note(f"--all installs all of them, --only some of them: {_join_names(skills)}")
        raise error
    for skill in selection:
        check_name(skill.name)
    return selection


def _join_names(skills: Sequence[Skill]) -> str:
    names = sorted(skill.name for skill in skills)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


_MAX_DESCRIPTION = 1024  # characters: the specification of SKILL.md
_NEW_SKILL_TEXT = """\
---
name: {name}
description: {description}
---
# {title}

Say here what to do, step by step, as you would tell a colleague who is new.

## Steps
1. Look at the current state before changing anything.
2. Do the work.
3. Check the result, and say how it was checked.

Keep this file short. Longer texts go into references/, programs into scripts/: they cost nothing
until they are needed.
"""


@dataclass(frozen=True, slots=True)
class NewSkill:
    file: Path
    hash: str
    """The hash of the written contents."""


def write_new_skill(base: Path, name: str, description: str | None) -> NewSkill:
    """Write a skill into the user's folder or the project's. Blocks.

    Raises:
        InvalidInput: the name or the description is not valid.
        AlreadyExists.
    """
    check_name(name)
    title = name.replace("-", " ").capitalize()
    text = " ".join((description or _default_description(title)).split())
    if not text or len(text) > _MAX_DESCRIPTION:
        raise InvalidInput(f"a description must have 1 to {_MAX_DESCRIPTION} characters")
    folder = base / FOLDER / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise AlreadyExists(f"{folder} already exists") from error
    except OSError as error:
        raise InvalidInput(f"{folder}: {error.strerror or error}") from error
    file = folder / "SKILL.md"
    # A JSON string is a YAML string, whatever it contains.
    quoted = json.dumps(text, ensure_ascii=False)
    content = _NEW_SKILL_TEXT.format(name=name, description=quoted, title=title).encode()
    write_atomic(file, content)
    # Not the hash of the file: another program may have changed it already.
    return NewSkill(file, contents_hash([ContentItem(path=file.name, content=content)]))


def _default_description(title: str) -> str:
    return f"{title}. Use when somebody asks for it; list here the words they will use."
