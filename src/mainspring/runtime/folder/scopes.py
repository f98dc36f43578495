"""Where the parts of an agent may stand, widest scope first. Reading them is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Scope: TypeAlias = Literal["managed", "user", "project"]
"""Of two parts with one name the wider scope's is taken: a project cannot put its own in the place
of what the user or whoever runs the machine has."""
Part: TypeAlias = Literal["skills", "agents", "commands", "rules"]

MANAGED = Path("/etc/mainspring")
_OWN = ".mainspring"
_FOREIGN = (".claude", ".agents")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that parts of one kind are looked for in; or, if a plugin says so, a part itself: a
    folder with a `SKILL.md`, a file of an agent or a command."""

    path: Path
    scope: Scope
    plugin: str | None = None
    """Whose it is, if a plugin brings it: its parts are called `plugin:name`."""
    plugin_root: Path | None = None
    part: Part | None = None
    """What is looked for there, if it is not a plugin's root with everything in its usual place."""

    def for_part(self, part: Part) -> Place:
        """Where a plugin has its parts of one kind."""
        if self.part is not None:
            return self
        return Place(self.path / part, self.scope, self.plugin, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes:
    folder: Path
    """The agent's own, and its project's."""
    home: Path | None = None
    """The user's; `None`: nobody's, as for sessions of the service."""
    managed: Path | None = None
    plugins: tuple[Place, ...] = ()
    """What installed plugins bring, with the scope they were installed in: see `plugins`."""
    disabled_skills: frozenset[str] = frozenset()
    """Names of skills and commands that the user has switched off."""

    def places(self, part: Part) -> Iterator[Place]:
        """In order of precedence: the first one that has a name has it."""
        if self.managed is not None:
            yield Place(self.managed / part, "managed")
        if self.home is not None:
            for name in (_OWN, *_FOREIGN):
                yield Place(self.home / name / part, "user")
        yield Place(self.folder / part, "project")
        if part == "agents":
            yield Place(self.folder / "subagents", "project")
        for name in (_OWN, *_FOREIGN):
            yield Place(self.folder / name / part, "project")
        yield from (each.for_part(part) for each in self.plugins if each.part in (None, part))

    def shown(self, path: Path) -> str:
        """A path as people are told of it: the same on every machine."""
        if path.is_relative_to(self.folder):
            return path.relative_to(self.folder).as_posix()
        if self.home is not None and path.is_relative_to(self.home):
            return f"~/{path.relative_to(self.home).as_posix()}"
        return path.as_posix()
