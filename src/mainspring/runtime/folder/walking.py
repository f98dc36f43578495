"""The files below a place that may be parts of an agent. Reading them is not ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from mainspring.runtime.folder.finding import Finding
from mainspring.runtime.folder.scopes import Place, Scopes

MAX_DEPTH = 6
MAX_FOLDERS = 2000
_LEFT_OUT = frozenset((".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__"))

Choose: TypeAlias = Callable[[Sequence[str], int], tuple[Sequence[str], bool]]
"""Of the names of the files in a folder, and how deep it is: which of them are wanted, and whether
to look deeper."""


@dataclass(slots=True)
class Walk:
    """One look at all places. What two of them lead to is found in the first."""

    scopes: Scopes
    findings: list[Finding] = field(default_factory=list[Finding])
    _seen: set[tuple[str, Choose]] = field(default_factory=set[tuple[str, Choose]])
    _folders: int = 0

    def files(self, place: Place, choose: Choose, *, max_depth: int = MAX_DEPTH) -> Iterator[Path]:
        """In order. No link leads out of the project, or out of a plugin."""
        below = _Below(self, self._root(place), choose, max_depth)
        self._folders = 0
        real = os.path.realpath(place.path)
        if not os.path.exists(real):
            return
        if not below.is_inside(real):
            self.warn(place.path, "leads out of its root: not read")
        elif os.path.isdir(real):
            yield from below.folder(str(place.path), real, 0)
        else:
            yield place.path

    def shadowed(self, path: Path, name: str, by: str) -> None:
        what = f"is not used: {self.scopes.shown(Path(by))} is called {name}, too, and comes first"
        self.findings.append(Finding(level="note", file=self.scopes.shown(path), what=what))

    def disabled(self, path: Path, name: str) -> None:
        what = f"is not used: you have disabled {name}; `mainspring skill enable {name}`"
        self.findings.append(Finding(level="note", file=self.scopes.shown(path), what=what))

    def warn(self, path: Path, what: str) -> None:
        self.findings.append(Finding(level="warning", file=self.scopes.shown(path), what=what))

    def is_new(self, real: str, choose: Choose) -> bool:
        before = len(self._seen)
        self._seen.add((real, choose))
        return len(self._seen) > before

    def is_enough(self, path: Path) -> bool:
        self._folders += 1
        if self._folders == MAX_FOLDERS + 1:
            self.warn(path, f"it and what follows is not read: more than {MAX_FOLDERS} folders")
        return self._folders > MAX_FOLDERS

    def _root(self, place: Place) -> str | None:
        """What the user or whoever runs the machine has linked is theirs to link."""
        if place.plugin is not None:
            return os.path.realpath(place.plugin_root or place.path)
        return os.path.realpath(self.scopes.folder) if place.scope == "project" else None


@dataclass(slots=True)
class _Below:
    walk: Walk
    root: str | None
    choose: Choose
    max_depth: int

    def is_inside(self, real: str) -> bool:
        return self.root is None or Path(real).is_relative_to(self.root)

    def folder(self, path: str, real: str, depth: int) -> Iterator[Path]:
        if not self.walk.is_new(real, self.choose) or self.walk.is_enough(Path(path)):
            return
        try:
            # A name with a line break in it, or bytes that are no text, would end up in a prompt.
            proper = [entry for entry in os.scandir(path) if entry.name.isprintable()]
            entries = sorted(proper, key=lambda entry: entry.name)
        except OSError as error:
            self.walk.warn(Path(path), f"cannot be read: {error.strerror}")
            return
        files = {entry.name: entry for entry in entries if _is(entry.is_file)}
        wanted, goes_deeper = self.choose(tuple(files), depth)
        for name in wanted:
            if self._real(files[name], real) is not None:
                yield Path(files[name].path)
        if not goes_deeper or depth == self.max_depth:
            return
        for entry in entries:
            is_left_out = entry.name in files or entry.name in _LEFT_OUT
            if not is_left_out and _is(entry.is_dir) and (inside := self._real(entry, real)):
                yield from self.folder(entry.path, inside, depth + 1)

    def _real(self, entry: os.DirEntry[str], parent: str) -> str | None:
        if not entry.is_symlink():
            return os.path.join(parent, entry.name)
        real = os.path.realpath(entry.path)
        if self.is_inside(real):
            return real
        self.walk.warn(Path(entry.path), "leads out of its root: not read")
        return None


def markdown(names: Sequence[str], _depth: int) -> tuple[Sequence[str], bool]:
    """All of it, at any depth."""
    return [each for each in names if each.endswith(".md") and not each.startswith(".")], True


def _is(asked: Callable[[], bool]) -> bool:
    try:
        return asked()
    except OSError:  # a link that leads to itself
        return False
