"""Discovers the skills and commands of an agent: which exist, which one wins if two have the same
name, and which the user has disabled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct, structs

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.scopes import (
    MAX_DEPTH,
    FileSelector,
    PartKind,
    PartLocation,
    PartWalk,
    Scope,
    Scopes,
    select_markdown,
)
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_file import read_command, read_skill

_WIDEST_FIRST: tuple[Scope, ...] = ("managed", "user", "project")

SkillReader: TypeAlias = Callable[[Path, PartLocation, str], tuple[Skill | None, list[Finding]]]
IsPinned: TypeAlias = Callable[[Path], str | bool | None]
"""Returns the trusted hash of a skill's folder or a command's file if it is trusted in its current
state, false if it has changed, and `None` if it was never trusted."""


class DiscoveredSkills(Struct, frozen=True, kw_only=True):
    skills: tuple[Skill, ...]
    """Sorted by name."""
    findings: tuple[Finding, ...]


def discover(scopes: Scopes, *, is_pinned: IsPinned) -> DiscoveredSkills:
    """Search all places, the widest scope first. Call it in a worker thread."""
    walk = PartWalk(scopes)
    by_name: dict[str, Skill] = {}
    for part, place in _places(scopes):
        choose, read_file = _KINDS[part]
        max_depth = 1 if part == "skills" and place.plugin is not None else MAX_DEPTH
        for file in walk.files(place, choose, max_depth=max_depth):
            skill, findings = read_file(file, place, scopes.display_path(file))
            walk.findings += findings
            if skill is not None and skill.name in scopes.disabled_skills:
                walk.disabled(file, skill.name)
            elif skill is not None and skill.name in by_name:
                walk.shadowed(file, skill.name, by_name[skill.name].file)
            elif skill is not None:
                by_name[skill.name] = _with_trust(skill, place, is_pinned)
    skills = tuple(by_name[name] for name in sorted(by_name))
    return DiscoveredSkills(skills=skills, findings=tuple(walk.findings))


def select_manifests(names: Sequence[str], depth: int) -> tuple[Sequence[str], bool]:
    """The folders below a skill belong to it and are not searched, except below a skill at the
    root."""
    manifests = [item for item in ("SKILL.md", "skill.md") if item in names][:1]
    return manifests, depth == 0 or not manifests


_PARTS: tuple[PartKind, ...] = ("skills", "commands")
_KINDS: dict[PartKind, tuple[FileSelector, SkillReader]] = {
    "skills": (select_manifests, read_skill),
    "commands": (select_markdown, read_command),
}


def _places(scopes: Scopes) -> Sequence[tuple[PartKind, PartLocation]]:
    """The places to search, widest scope first; within a scope, skills come before commands."""
    places: list[tuple[PartKind, PartLocation]] = [
        (part, place) for part in _PARTS for place in scopes.places(part)
    ]
    return sorted(places, key=lambda item: _WIDEST_FIRST.index(item[1].scope))


def _with_trust(skill: Skill, place: PartLocation, is_pinned: IsPinned) -> Skill:
    """Skills of the user and the operator need no trust. But if one was trusted when it was
    installed, it must be unchanged since."""
    pin = is_pinned(Path(skill.folder if skill.kind == "skill" else skill.file))
    is_own = place.plugin is None and place.scope != "project"
    is_trusted = bool(pin) or (pin is None and is_own)
    contents = pin if isinstance(pin, str) and skill.kind == "skill" else ""
    return structs.replace(skill, is_trusted=is_trusted, contents=contents)


DISABLED_SKILLS_FILE = ".mainspring/disabled-skills.json"
"""The path below the user's home folder."""


def disabled_skills(home: Path) -> frozenset[str]:
    """Raises: InvalidInput: the file cannot be read."""
    file = home / DISABLED_SKILLS_FILE
    content = read_bounded(file)
    if content is None:
        return frozenset()
    try:
        return frozenset(msgspec.json.decode(content, type=list[str]))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"{file}: {error}; remove it to enable all skills") from error


def set_disabled(home: Path, name: str, *, is_disabled: bool) -> bool:
    """False if nothing changed.

    Raises: InvalidInput.
    """
    names = disabled_skills(home)
    changed = names | {name} if is_disabled else names - {name}
    if changed == names:
        return False
    write_atomic(home / DISABLED_SKILLS_FILE, msgspec.json.encode(sorted(changed)) + b"\n")
    return True
