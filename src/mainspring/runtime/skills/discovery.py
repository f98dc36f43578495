"""All skills and commands of an agent: which there are, and whose counts if two have one name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from msgspec import structs

from mainspring.runtime.folder.finding import Finding
from mainspring.runtime.folder.scopes import Part, Place, Scope, Scopes
from mainspring.runtime.folder.walking import MAX_DEPTH, Choose, Walk, markdown
from mainspring.runtime.skills.reading import read_command, read_skill
from mainspring.runtime.skills.skill import Skill

_WIDEST_FIRST: tuple[Scope, ...] = ("managed", "user", "project")
_MOST_KEPT = 10_000

Stamp: TypeAlias = tuple[int, int, int]
Parsed: TypeAlias = tuple[Skill | None, Sequence[Finding]]
Read: TypeAlias = Callable[[Path, Place, str], tuple[Skill | None, list[Finding]]]
IsPinned: TypeAlias = Callable[[Path], str | bool | None]
"""Whether somebody has vouched for a skill's folder, or a command's file, as it is now: the hash of
what they have seen, if that is known. `None`: nobody has said anything of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    skills: tuple[Skill, ...]
    """By name."""
    findings: tuple[Finding, ...]


class Cache:
    """What files said when they were last read; they are read again once they have changed."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, Place], tuple[Stamp, Parsed]] = {}

    def read(self, file: Path, place: Place, shown: str, read: Read) -> Parsed:
        key, stamp = (str(file), shown, place), _stamp(file)
        kept = self._kept.get(key)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        parsed = read(file, place, shown)
        if stamp is not None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = (stamp, parsed)
        return parsed


def discover(scopes: Scopes, *, is_pinned: IsPinned, cache: Cache | None = None) -> Found:
    """Look into all places, those of the widest scope first. Call it in a worker thread."""
    kept = Cache() if cache is None else cache
    walk = Walk(scopes)
    taken: dict[str, Skill] = {}
    for part, place in _places(scopes):
        choose, read = _KINDS[part]
        max_depth = 1 if part == "skills" and place.plugin is not None else MAX_DEPTH
        for file in walk.files(place, choose, max_depth=max_depth):
            skill, findings = kept.read(file, place, scopes.shown(file), read)
            walk.findings += findings
            if skill is not None and skill.name in scopes.disabled_skills:
                walk.disabled(file, skill.name)
            elif skill is not None and skill.name in taken:
                walk.shadowed(file, skill.name, taken[skill.name].file)
            elif skill is not None:
                taken[skill.name] = _vouched(skill, place, is_pinned)
    skills = tuple(taken[name] for name in sorted(taken))
    return Found(skills=skills, findings=tuple(walk.findings))


def manifests(names: Sequence[str], depth: int) -> tuple[Sequence[str], bool]:
    """What stands below a skill is its own: not looked into, however large. One at the root of a
    place may stand above others."""
    found = [each for each in ("SKILL.md", "skill.md") if each in names][:1]
    return found, depth == 0 or not found


_PARTS: tuple[Part, ...] = ("skills", "commands")
_KINDS: dict[Part, tuple[Choose, Read]] = {
    "skills": (manifests, read_skill),
    "commands": (markdown, read_command),
}


def _places(scopes: Scopes) -> Sequence[tuple[Part, Place]]:
    """In one scope, skills come before commands."""
    both: list[tuple[Part, Place]] = [
        (part, place) for part in _PARTS for place in scopes.places(part)
    ]
    return sorted(both, key=lambda each: _WIDEST_FIRST.index(each[1].scope))


def _vouched(skill: Skill, place: Place, is_pinned: IsPinned) -> Skill:
    """What the user or whoever runs the machine has put there themselves needs nobody's word; but
    if it was vouched for when it was installed, it must still be that."""
    vouched = is_pinned(Path(skill.folder if skill.kind == "skill" else skill.file))
    is_their_own = place.plugin is None and place.scope != "project"
    is_trusted = bool(vouched) or (vouched is None and is_their_own)
    contents = vouched if isinstance(vouched, str) and skill.kind == "skill" else ""
    return structs.replace(skill, is_trusted=is_trusted, contents=contents)


def _stamp(file: Path) -> Stamp | None:
    try:
        stat = os.stat(file)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
