"""The places in which the parts of an agent are searched, widest scope first, and the files there.
Other modules read these files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct, field

from mainspring.core.errors import InvalidInput
from mainspring.runtime.definition_files.finding import Finding

Scope: TypeAlias = Literal["managed", "user", "project"]
"""If two parts have the same name, the wider scope wins: a project cannot replace what the user or
the operator of the machine has installed."""
PartKind: TypeAlias = Literal["skills", "agents", "commands", "rules"]

MANAGED = Path("/etc/mainspring")
_OWN_ROOT = ".mainspring"
_FOREIGN_ROOTS = (".claude", ".agents")


class PartLocation(Struct, frozen=True):
    """A folder with parts of one kind; or, if a plugin names it, a single part: a folder with a
    `SKILL.md`, or the file of an agent or a command."""

    path: Path
    scope: Scope
    plugin: str | None = None
    """The plugin that contains it, if any: its parts are called `plugin:name`."""
    plugin_root: Path | None = None
    part_kind: PartKind | None = None
    """The kind of part; `None`: this is the root of a plugin with all parts in their default
    places."""

    def for_part(self, part_kind: PartKind) -> PartLocation:
        """The location of a plugin's parts of one kind."""
        if self.part_kind is not None:
            return self
        return PartLocation(self.path / part_kind, self.scope, self.plugin, self.path)


class Scopes(Struct, frozen=True, kw_only=True):
    folder: Path
    """The folder of the agent and of its project."""
    home: Path | None = None
    """The user's folder; `None` for sessions of the service, which have no user."""
    managed: Path | None = None
    plugins: tuple[PartLocation, ...] = ()
    """The parts of installed plugins, with the scope that each was installed in: see `plugins`."""
    disabled_skills: frozenset[str] = frozenset()
    """Names of the skills and commands that the user has disabled."""

    def places(self, part_kind: PartKind) -> Iterator[PartLocation]:
        """The places in order of precedence: if two parts have the same name, the first one is
        used."""
        if self.managed is not None:
            yield PartLocation(self.managed / part_kind, "managed")
        if self.home is not None:
            for name in (_OWN_ROOT, *_FOREIGN_ROOTS):
                yield PartLocation(self.home / name / part_kind, "user")
        yield PartLocation(self.folder / part_kind, "project")
        if part_kind == "agents":
            yield PartLocation(self.folder / "subagents", "project")
        for name in (_OWN_ROOT, *_FOREIGN_ROOTS):
            yield PartLocation(self.folder / name / part_kind, "project")
        yield from (
            plugin.for_part(part_kind)
            for plugin in self.plugins
            if plugin.part_kind in (None, part_kind)
        )

    def display_path(self, path: Path) -> str:
        """A path for display, the same on every machine."""
        if path.is_relative_to(self.folder):
            return path.relative_to(self.folder).as_posix()
        if self.home is not None and path.is_relative_to(self.home):
            return f"~/{path.relative_to(self.home).as_posix()}"
        return path.as_posix()


MAX_DEPTH = 6  # folders
MAX_FOLDERS = 2000  # searched for definitions
_SKIPPED_FOLDERS = frozenset(
    (".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__")
)

FileSelector: TypeAlias = Callable[[Sequence[str], int], tuple[Sequence[str], bool]]
"""Takes the names of the files in a folder and its depth; returns the files to use, and whether to
search its subfolders."""


class PartWalk(Struct):
    """One walk over all places. A file that is reachable from two places is found in the first."""

    scopes: Scopes
    findings: list[Finding] = field(default_factory=list[Finding])
    _seen: set[tuple[str, FileSelector]] = field(default_factory=set[tuple[str, FileSelector]])
    _folders: int = 0

    def files(
        self,
        place: PartLocation,
        file_selector: FileSelector,
        *,
        max_depth: int = MAX_DEPTH,
    ) -> Iterator[Path]:
        """The files in order. Links that lead out of the project or the plugin are not followed.

        Raises: InvalidInput: a program is replacing the folder.
        """
        folder_walk = _FolderWalk(self, self._root(place), file_selector, max_depth)
        self._folders = 0
        real = _real_path(place.path)
        if not os.path.exists(real):
            return
        if not folder_walk.is_inside(real):
            self.warn(place.path, "links to a place outside its root: not read")
        elif os.path.isdir(real):
            yield from folder_walk.folder(str(place.path), real, 0)
        else:
            yield place.path

    def shadowed(self, path: Path, name: str, by: str) -> None:
        what = (
            f"is not used: {self.scopes.display_path(Path(by))} is also called {name} "
            "and takes precedence"
        )
        self.findings.append(Finding(level="note", file=self.scopes.display_path(path), what=what))

    def disabled(self, path: Path, name: str) -> None:
        what = f"is not used: you have disabled {name}; `mainspring skill enable {name}`"
        self.findings.append(Finding(level="note", file=self.scopes.display_path(path), what=what))

    def warn(self, path: Path, what: str) -> None:
        self.findings.append(
            Finding(level="warning", file=self.scopes.display_path(path), what=what)
        )

    def is_new(self, real: str, file_selector: FileSelector) -> bool:
        before = len(self._seen)
        self._seen.add((real, file_selector))
        return len(self._seen) > before

    def is_enough(self, path: Path) -> bool:
        self._folders += 1
        if self._folders == MAX_FOLDERS + 1:
            self.warn(
                path, f"it and the following ones are not read: more than {MAX_FOLDERS} folders"
            )
        return self._folders > MAX_FOLDERS

    def _root(self, place: PartLocation) -> str | None:
        """The folder that links may not leave. The user and the operator may link to anything."""
        if place.plugin is not None:
            return os.path.realpath(place.plugin_root or place.path)
        return os.path.realpath(self.scopes.folder) if place.scope == "project" else None


class _FolderWalk(Struct):
    part_walk: PartWalk
    root: str | None
    file_selector: FileSelector
    max_depth: int

    def is_inside(self, real: str) -> bool:
        return self.root is None or Path(real).is_relative_to(self.root)

    def folder(self, path: str, real: str, depth: int) -> Iterator[Path]:
        if not self.part_walk.is_new(real, self.file_selector) or self.part_walk.is_enough(
            Path(path)
        ):
            return
        try:
            # Names with line breaks or undecodable bytes would end up in a prompt.
            printable = [entry for entry in os.scandir(path) if entry.name.isprintable()]
            entries = sorted(printable, key=lambda entry: entry.name)
        except OSError as error:
            self.part_walk.warn(Path(path), f"cannot be read: {error.strerror}")
            return
        files = {entry.name: entry for entry in entries if _try_is(entry.is_file)}
        names, goes_deeper = self.file_selector(tuple(files), depth)
        for name in names:
            if self._real(files[name], real) is not None:
                yield Path(files[name].path)
        if not goes_deeper or depth == self.max_depth:
            return
        for entry in entries:
            is_left_out = entry.name in files or entry.name in _SKIPPED_FOLDERS
            if not is_left_out and _try_is(entry.is_dir) and (inside := self._real(entry, real)):
                yield from self.folder(entry.path, inside, depth + 1)

    def _real(self, entry: os.DirEntry[str], parent: str) -> str | None:
        if not entry.is_symlink():
            return os.path.join(parent, entry.name)
        real = _real_path(entry.path)
        if self.is_inside(real):
            return real
        self.part_walk.warn(Path(entry.path), "links to a place outside its root: not read")
        return None


def select_markdown(names: Sequence[str], _depth: int) -> tuple[Sequence[str], bool]:
    """Every Markdown file, at any depth."""
    return [name for name in names if name.endswith(".md") and not name.startswith(".")], True


def _real_path(path: str | Path) -> str:
    """Raises: InvalidInput: a program is replacing the path by a link, or the reverse."""
    try:
        return os.path.realpath(path)
    except OSError as error:
        raise InvalidInput(f"{path}: it changed while it was read") from error


def _try_is(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except OSError:  # a link that leads to itself
        return False
