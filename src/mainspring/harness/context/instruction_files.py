"""Where instruction files are, the most general first, and how they are read."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.files.openat import open_absolute

Scope: TypeAlias = Literal["managed", "user", "project"]
InstructionKind: TypeAlias = Literal["plain", "persona", "rule", "steering", "cursor"]
Imports: TypeAlias = Literal[
    "mentions",  # `@path`
    "references",  # `#[[file:path]]`
]

_RULES = (".mainspring/rules", ".claude/rules", ".agents/rules")
_STEERING = ".kiro/steering"
_CURSOR = ".cursor/rules"
_GSD = tuple(
    f"{folder}/{name}.md"
    for folder in (".planning", ".gsd")
    for name in ("PROJECT", "DECISIONS", "KNOWLEDGE", "ROADMAP", "STATE")
)
"""The project files of get-shit-done; the state comes last, since it changes most often."""
_PERSONA = ("SOUL.md", "IDENTITY.md", "USER.md")
_SIGNS_OF_A_PERSONA = frozenset({"SOUL.md", "IDENTITY.md"})
_BESIDE_A_PERSONA = ("TOOLS.md",)
"""Read only in an agent folder, since other projects use this name for other things."""
_PLAYBOOK, _SIGN_OF_A_PLAYBOOK = "PLAYBOOK.md", "evolve.yaml"
"""Rules that campaigns have proved; other projects use the name for other things."""
_NO_INSTRUCTIONS = {
    "HEARTBEAT.md": "recurring work belongs in a schedule",
    "BOOTSTRAP.md": "there is no special first run",
    "MEMORY.md": "what an agent remembers is shown as memory",
}
_MAX_DEPTH = 6  # folders below the workspace that may have instructions
_MAX_FILES = 200  # of instructions; each is read at the start


_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK)


class InstructionFiles(Struct):
    """Reads only regular files: a pipe or a device could block forever. Calls may block, so call
    `load` in a worker thread."""

    is_hidden: Callable[[PurePosixPath], bool] = lambda _: False
    """Whether a file, by its real path, must not be read."""

    def real(self, path: PurePosixPath) -> PurePosixPath:
        """The path with all symbolic links resolved; it need not exist."""
        try:
            return PurePosixPath(Path(path).resolve())
        except (OSError, RuntimeError, ValueError):  # circular links, invalid names
            return path

    def read(self, path: PurePosixPath, max_bytes: int) -> bytes | None:
        """The beginning of a regular file, reached without links, since programs of a session may
        change the tree meanwhile; `None` if there is none.

        Raises:
            OSError: it exists and cannot be read.
        """
        if self.is_hidden(path):
            return None
        try:
            descriptor = open_absolute(str(path), os.O_RDONLY | os.O_NONBLOCK)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return file.read(max_bytes)
            finally:
                os.close(descriptor)
        except ValueError:  # an invalid name
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise

    def names(self, folder: PurePosixPath) -> tuple[str, ...]:
        """The entries of a folder, sorted; empty if it is not a folder."""
        place = Path(folder)
        return tuple(sorted(entry.name for entry in place.iterdir())) if place.is_dir() else ()


class InstructionIssue(Struct, frozen=True, kw_only=True):
    """A problem with an instruction file; the other files are still read."""

    file: str
    """The displayed path, relative to the project or to `~`."""
    what: str
    line: int | None = None
    fix: str | None = None
    is_note: bool = False
    """For information; nothing needs fixing."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionRoots:
    project: PurePosixPath
    """Files of the project may only refer to files in this folder."""
    cwd: PurePosixPath
    agent: PurePosixPath | None = None
    """The agent folder in the project; its persona and its `rules/` are read, too."""
    home: PurePosixPath | None = None
    managed: tuple[PurePosixPath, ...] = ()
    """Folders of the administrator."""
    shared: tuple[PurePosixPath, ...] = ()
    """Folders outside the project that the user allows its files to import from."""

    def resolved(self, files: InstructionFiles) -> InstructionRoots:
        """The same folders with all links resolved."""
        return replace(
            self,
            project=files.real(self.project),
            cwd=files.real(self.cwd),
            agent=None if self.agent is None else files.real(self.agent),
            home=None if self.home is None else files.real(self.home),
            shared=tuple(files.real(folder) for folder in self.shared),
        )

    def allow(self, real: PurePosixPath, scope: Scope) -> bool:
        """Whether a file of a scope may refer to this path."""
        allowed = (self.project, *self.shared)
        return scope != "project" or any(real.is_relative_to(folder) for folder in allowed)

    def display_path(self, path: PurePosixPath) -> str:
        """A path as displayed to people and models, the same on every machine."""
        if path.is_relative_to(self.project):
            return path.relative_to(self.project).as_posix()
        if self.home is not None and path.is_relative_to(self.home):
            return f"~/{path.relative_to(self.home).as_posix()}"
        return path.as_posix()

    def to_cwd(self) -> tuple[PurePosixPath, ...]:
        """The folders whose files apply from the start; only the root if the cwd is elsewhere."""
        is_inside = self.cwd.is_relative_to(self.project)
        return _chain(self.project, self.cwd) if is_inside else (self.project,)

    def below_cwd(self, real: PurePosixPath) -> tuple[PurePosixPath, ...]:
        """Further folders whose files apply to one file."""
        is_inside = real.parent.is_relative_to(self.cwd) and self.cwd.is_relative_to(self.project)
        return _chain(self.cwd, real.parent)[1:] if is_inside else ()


@dataclass(frozen=True, slots=True)
class InstructionCandidate:
    """A file that is read if it exists."""

    path: PurePosixPath
    scope: Scope = "project"
    kind: InstructionKind = "plain"
    imports: Imports | None = "mentions"
    folder: str = ""
    """The folder that globs are relative to, relative to the project."""


class CandidateFinder(Struct, frozen=True):
    files: InstructionFiles
    roots: InstructionRoots
    """With all links resolved."""
    report: Callable[[InstructionIssue], None]

    def from_start(self) -> Iterator[InstructionCandidate]:
        for folder in self.roots.managed:
            yield InstructionCandidate(folder / "AGENTS.md", "managed", imports=None)
            yield InstructionCandidate(folder / "CLAUDE.md", "managed")
            yield from self._rules(folder, ("rules", ".claude/rules"), "managed")
        if (home := self.roots.home) is not None:
            yield InstructionCandidate(home / ".mainspring/AGENTS.md", "user", imports=None)
            yield InstructionCandidate(home / ".claude/CLAUDE.md", "user")
            yield from self._steering(home, "user")
            yield from self._rules(home, _RULES, "user")
        if self.roots.agent is not None:
            yield from self._persona(self.roots.agent)
        yield from self.of_folders(self.roots.to_cwd())

    def of_folders(self, folders: Iterable[PurePosixPath]) -> Iterator[InstructionCandidate]:
        for folder in folders:
            yield InstructionCandidate(folder / "AGENTS.md", imports=None)
            yield InstructionCandidate(folder / "CLAUDE.md")
            yield InstructionCandidate(folder / ".claude/CLAUDE.md")
            yield from self._steering(folder, "project")
            own = ("rules",) if folder == self.roots.agent else ()
            yield from self._rules(folder, (*own, *_RULES), "project")
            yield from self._cursor(folder)
            yield InstructionCandidate(folder / "CLAUDE.local.md")
            yield from (InstructionCandidate(folder / name, imports=None) for name in _GSD)
            if folder == self.roots.agent and _SIGN_OF_A_PLAYBOOK in self._names(folder):
                yield InstructionCandidate(folder / _PLAYBOOK, imports=None)

    def _persona(self, folder: PurePosixPath) -> Iterator[InstructionCandidate]:
        """The persona of an agent comes first, and only from its own folder."""
        names = frozenset(self._names(folder))
        is_agent_folder = not names.isdisjoint(_SIGNS_OF_A_PERSONA)
        for name in (*_PERSONA, *(_BESIDE_A_PERSONA if is_agent_folder else ())):
            yield InstructionCandidate(folder / name, kind="persona", imports=None)
        for name, why in _NO_INSTRUCTIONS.items():
            if is_agent_folder and name in names:
                self._warn(folder / name, f"is not read as instructions: {why}", is_note=True)

    def _rules(
        self, folder: PurePosixPath, places: Sequence[str], scope: Scope
    ) -> Iterator[InstructionCandidate]:
        for place in places:
            for path in self._files_in(folder / place, scope, _MAX_DEPTH):
                yield InstructionCandidate(path, scope, "rule", folder=self._base(folder, scope))

    def _steering(self, folder: PurePosixPath, scope: Scope) -> Iterator[InstructionCandidate]:
        for path in self._files_in(folder / _STEERING, scope, 1):
            yield InstructionCandidate(
                path, scope, "steering", "references", self._base(folder, scope)
            )

    def _cursor(self, folder: PurePosixPath) -> Iterator[InstructionCandidate]:
        for path in self._files_in(folder / _CURSOR, "project", _MAX_DEPTH, ".mdc"):
            base = self._base(folder, "project")
            yield InstructionCandidate(path, "project", "cursor", imports=None, folder=base)

    def _base(self, folder: PurePosixPath, scope: Scope) -> str:
        if scope != "project" or folder == self.roots.project:
            return ""  # globs of the user apply to the project, too
        return folder.relative_to(self.roots.project).as_posix()

    def _files_in(
        self, top: PurePosixPath, scope: Scope, max_depth: int, suffix: str = ".md"
    ) -> Iterator[PurePosixPath]:
        """The files of a folder, then those of its subfolders; no folder twice."""
        folders = deque([(top, max_depth)])
        visited = set[PurePosixPath]()
        file_count = 0
        while folders:
            folder, depth = folders.popleft()
            real = self.files.real(folder)
            if real in visited:
                continue
            if not self.roots.allow(real, scope):
                self._warn(folder, "leads out of the project: not read")
                continue
            visited.add(real)
            names = self._names(folder)
            for name in (name for name in names if name.endswith(suffix)):
                file_count += 1
                if file_count > _MAX_FILES or len(visited) > _MAX_FILES:
                    self._warn(top, f"has too many files: only {_MAX_FILES} are read")
                    return
                yield folder / name
            inner = [
                item for item in names if not item.startswith(".") and not item.endswith(suffix)
            ]
            folders.extend((folder / name, depth - 1) for name in inner if depth > 1)

    def _names(self, folder: PurePosixPath) -> Sequence[str]:
        try:
            return self.files.names(folder)
        except OSError as error:
            self._warn(folder, f"cannot be read: {error.strerror}")
            return ()

    def _warn(self, path: PurePosixPath, what: str, *, is_note: bool = False) -> None:
        file = self.roots.display_path(path)
        self.report(InstructionIssue(file=file, what=what, is_note=is_note))


def _chain(top: PurePosixPath, bottom: PurePosixPath) -> tuple[PurePosixPath, ...]:
    steps = bottom.relative_to(top).parts
    return tuple(top.joinpath(*steps[:count]) for count in range(len(steps) + 1))
