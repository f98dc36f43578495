"""Watches protected paths while programs run in a sandbox, and sets aside files that a program
creates there before anything outside can execute them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import deque
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from mainspring.core.errors import SandboxFailed
from mainspring.core.ids import new_id
from mainspring.files.file_names import fold_name
from mainspring.files.openat import OpenDescriptor, open_absolute
from mainspring.files.written_files import WRITTEN_FILES
from mainspring.harness.permissions.guard_record import GuardFiles, GuardRecord
from mainspring.harness.permissions.protected_files import (
    IN_GIT,
    MEMORY_FOLDER,
    PROJECT_FILES,
    PROJECT_FOLDERS,
    PROJECT_PATHS,
    REBASE_LISTS,
    has_memories,
    protected_names,
)

_FORBIDDEN_GIT_FILE = "commondir"
"""Makes git use another config. git creates it only for linked worktrees, which are elsewhere."""
PROTECTED_PATHS = (
    *(f".git/{name}" for name in IN_GIT if name != _FORBIDDEN_GIT_FILE),
    *sorted(PROJECT_FOLDERS | PROJECT_FILES),
    *PROJECT_PATHS,
)
"""Paths that programs may read but not change: they run later, or control what runs."""
_LOOKS_LIKE_GIT = frozenset(("HEAD", "objects", "refs"))
_LOOKS_LIKE_WORKTREE = frozenset(("HEAD", "commondir", "gitdir"))
"""The files of a linked worktree in its repository."""
_SKIPPED_FOLDERS = frozenset(("objects", "node_modules"))
_MAX_DEPTH = 6  # folders below the workspace that are searched
_MAX_FOLDERS = 10_000  # searched for repositories and control files
_MAX_REPOSITORIES = 50  # whose hooks and configuration are watched
_MAX_TODO_BYTES = 1_000_000  # of a rebase's list of steps; a longer one counts as changed whole
_HARMLESS_REBASE_STEPS = frozenset(
    b"pick p reword r edit e squash s fixup f drop d break b label l reset t merge m update-ref u"
    b" noop".split()
)
"""All steps of a rebase except `exec`."""


class GitRepositories(Struct, frozen=True):
    """The repositories of a workspace, including nested ones and submodules; if there are many, the
    nearest to its root. All paths are relative to the workspace."""

    control_files: tuple[str, ...] = ()
    """Files that control git; they need not exist."""
    trees: tuple[str, ...] = ()
    """Their working trees."""
    folders: tuple[str, ...] = ()
    """Their git folders."""


def find_repositories(workspace: Path, hidden: Collection[str]) -> GitRepositories:
    control_files: list[str] = []
    trees: list[str] = []
    repositories: list[str] = []
    pending = deque([""])
    folder_count = 0
    while pending and folder_count < _MAX_FOLDERS and len(repositories) < _MAX_REPOSITORIES:
        folder_count += 1
        at = pending.popleft()
        folders, files = _list_folder(workspace, at)
        names = folders | files
        if names >= _LOOKS_LIKE_GIT:
            repositories.append(at)
            control_files += [os.path.join(at, name) for name in IN_GIT]
        elif names >= _LOOKS_LIKE_WORKTREE:
            control_files += [os.path.join(at, name) for name in (*IN_GIT, "gitdir")]
        if ".git" in files:  # git takes the location of the repository from it
            control_files.append(os.path.join(at, ".git"))
        if ".git" in names:
            trees.append(at)
            protected = protected_names(names, is_root=not at)
            control_files += [os.path.join(at, name) for name in protected]
        below = [os.path.join(at, name) for name in sorted(folders - _SKIPPED_FOLDERS)]
        pending += [path for path in below if path.count("/") < _MAX_DEPTH and path not in hidden]
    return GitRepositories(tuple(control_files), tuple(trees), tuple(repositories))


def is_memory_folder(folder: Path) -> bool:
    """Whether a folder exists and is empty or contains memories."""
    return folder.is_dir() and has_memories(*_list_folder(folder, ""))


def memory_paths(workspace: Path) -> tuple[str, ...]:
    """The folder for memories, whether it exists or not; empty if it contains code."""
    folder = workspace / MEMORY_FOLDER
    return () if folder.is_dir() and not is_memory_folder(folder) else (MEMORY_FOLDER,)


def still_protected(workspace: Path, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The paths without the folder for memories, if that now contains code."""
    memory = workspace / MEMORY_FOLDER
    return paths if memory_paths(workspace) else tuple(path for path in paths if path != memory)


def _list_folder(workspace: Path, path: str) -> tuple[set[str], set[str]]:
    """The names of subfolders, and of all other entries; empty if the path contains a link."""
    folders: set[str] = set()
    files: set[str] = set()
    with (
        suppress(OSError),
        OpenDescriptor(
            open_absolute(str(workspace / path), os.O_RDONLY | os.O_DIRECTORY)
        ) as descriptor,
        os.scandir(descriptor) as entries,
    ):
        for entry in entries:
            (folders if entry.is_dir(follow_symlinks=False) else files).add(entry.name)
    return folders, files


@dataclass(slots=True)
class ProtectedPathWatcher:
    """The watcher of one session. It guards from the start of the first program until the end of
    the last one; `guard_record.py` continues it after a kill. Changes while no program of the
    session can run are somebody else's."""

    workspace: Path
    watched: tuple[str, ...]
    """Relative to the workspace."""
    git_repositories: GitRepositories
    state: Path
    """The private folder of the session's sandbox."""
    _known: dict[str, str] = field(default_factory=dict[str, str])
    _own: dict[str, str] = field(default_factory=dict[str, str])
    """Paths that this process has created since, with the hash of their content."""
    _mounted: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """What the sandbox protected when it was last started."""
    _removed: list[str] = field(default_factory=list[str])
    _running: int = 0
    _files: GuardFiles = field(init=False)

    def __post_init__(self) -> None:
        self._files = GuardFiles(self.state)
        self._mounted = set(self._protected_state().items())

    def begin(self) -> bool:
        """A program is about to run; returns whether there are now more paths to protect.

        Raises:
            SandboxFailed: what an earlier program created cannot be set aside.
        """
        self._running += 1
        if self._running == 1:
            self._begin_guard()
        self._removed += self.check()
        mounted, self._mounted = self._mounted, set(self._protected_state().items())
        return bool(self._mounted - mounted)

    def check(self) -> list[str]:
        """Set aside what programs have created, and return those paths.

        Raises:
            SandboxFailed: a path cannot be set aside.
        """
        if not self._running:
            return []
        state, own = self._protected_state(), dict(self._own)
        created = [
            path
            for path, kind in sorted(state.items())
            if self._known.get(path) != kind or os.path.basename(path) == _FORBIDDEN_GIT_FILE
        ]
        removed = [
            item
            for path in created
            for item in (self._not_ours(path) if not state[path] else [path])
            if self._set_aside(item)
        ]
        if self._own != own:
            self._write_record()
        return removed

    def end(self) -> list[str]:
        """The program has ended: set aside what it created, and return those paths.

        Raises:
            SandboxFailed: a path cannot be set aside.
        """
        is_last = self._running == 1 and self._files.is_alone()
        try:
            removed, self._removed = [*self._removed, *self.check()], []
            if is_last:  # otherwise a service still runs, or what another process has left
                self._files.remove()
            return removed
        finally:
            self._running -= 1
            if not self._running:
                self._files.leave()
                WRITTEN_FILES.end()

    def _begin_guard(self) -> None:
        WRITTEN_FILES.begin()
        self._files.enter()
        record = self._files.read()
        if record is None:
            self._known, self._own = self._protected_state(), {}
            self._write_record()
        else:  # of a process that was killed, or of a service that still runs
            self._known, self._own = record.known, record.own

    def _write_record(self) -> None:
        repositories = self.git_repositories
        record = GuardRecord(
            workspace=str(self.workspace),
            watched=self.watched,
            trees=repositories.trees,
            folders=repositories.folders,
            known=self._known,
            own=self._own,
        )
        self._files.write(record)

    def _not_ours(self, path: str) -> list[str]:
        """What this process has not written itself in a path: the path, or some in a folder."""
        with suppress(OSError), self._folder_of(path) as folder:
            return list(self._foreign(folder, os.path.basename(path), path))
        return [path]

    def _foreign(self, folder: int, name: str, path: str) -> Iterator[str]:
        own = WRITTEN_FILES.digest(folder, name)
        digest = self._own.get(path) if own is None else own.hex()
        if digest is None:
            yield path
            return
        self._own[path] = digest
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            how = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            with OpenDescriptor(os.open(name, how, dir_fd=folder)) as inner:
                for entry in sorted(os.listdir(inner)):
                    yield from self._foreign(inner, entry, f"{path}/{entry}")
        elif not stat.S_ISREG(mode) or (digest and digest != _digest(folder, name)):
            yield path

    def _protected_state(self) -> dict[str, str]:
        """The protected paths that exist, each with its target if it is a link."""
        paths: dict[str, str] = {}
        for path in (".git", ".git/modules", *PROJECT_PATHS, *self.watched, *self._listed()):
            parts = path.split("/")
            for size in range(1, len(parts) + 1):
                upper = "/".join(parts[:size])
                kind = self._kind(upper)
                if kind is None:
                    break
                if kind or size == len(parts):
                    paths[upper] = kind
                    break
        for path in (".git", *self.git_repositories.folders):
            paths |= self._rebase_programs(path)
        return paths

    def _listed(self) -> Iterator[str]:
        """Protected paths by the names in the folders, since a name has many spellings."""
        for tree in dict.fromkeys(("", *self.git_repositories.trees)):
            folders, files = _list_folder(self.workspace, tree)
            for name in protected_names(folders | files, is_root=not tree):
                yield os.path.join(tree, name)
        yield from self._memories()
        yield from (f".git/{name}" for name in IN_GIT)
        modules, _ = _list_folder(self.workspace, ".git/modules")
        yield from (f".git/modules/{name}" for name in modules)

    def _memories(self) -> Iterator[str]:
        """Folders that contain memories, and links that could lead to one."""
        folders, files = _list_folder(self.workspace, "")
        links = (name for name in files if fold_name(name) == MEMORY_FOLDER)
        yield from (name for name in links if self._kind(name))
        for name in (name for name in folders if fold_name(name) == MEMORY_FOLDER):
            inside = _list_folder(self.workspace, name)
            if any(inside) and has_memories(*inside):
                yield name

    def _rebase_programs(self, git_folder: str) -> dict[str, str]:
        """Unfinished rebases that would run programs, each with the hash of those programs."""
        rebases: dict[str, str] = {}
        for name in REBASE_LISTS:
            path = os.path.join(git_folder, name)
            programs = self._steps(path) - _HARMLESS_REBASE_STEPS
            if programs:
                content = b"\0".join(sorted(programs))
                rebases[os.path.dirname(path)] = hashlib.sha256(content).hexdigest()
        return rebases

    def _steps(self, path: str) -> set[bytes]:
        """The commands of its steps; the whole line for one that is not known to be harmless."""
        how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            with self._folder_of(path) as folder:
                descriptor = os.open(os.path.basename(path), how, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(_MAX_TODO_BYTES + 1)
        except FileNotFoundError:
            return set()
        except OSError:
            return {b"cannot be read"}
        lines = [line.strip() for line in content.splitlines()]
        if len(content) > _MAX_TODO_BYTES:
            return {content}
        steps = [line for line in lines if line and not line.startswith(b"#")]
        firsts = {line: line.split()[0] for line in steps}
        return {
            first if first in _HARMLESS_REBASE_STEPS else line for line, first in firsts.items()
        }

    def _kind(self, path: str) -> str | None:
        """The target of a link, empty for anything else; `None` if the path does not exist."""
        name = os.path.basename(path)
        with suppress(OSError), self._folder_of(path) as folder:
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return os.readlink(name, dir_fd=folder) if stat.S_ISLNK(state.st_mode) else ""
        return None

    def _set_aside(self, path: str) -> bool:
        """Move a path to the private folder; returns whether it still existed."""
        aside = self.state / "set-aside"
        aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        name, mark = os.path.basename(path), new_id("kept")
        try:
            with self._folder_of(path) as folder:
                _make_accessible(folder, stat.S_IRWXU)
                try:
                    os.rename(name, aside / f"{mark}-{path.replace('/', '-')}", src_dir_fd=folder)
                except FileNotFoundError:
                    raise
                except OSError:  # another file system, or a folder that was made unwritable
                    os.rename(name, f"{mark}-{name}", src_dir_fd=folder, dst_dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return False  # it was in a folder that was set aside
        except OSError as error:
            raise SandboxFailed(
                f"a program created {self.workspace / path}, which could run outside of the"
                f" sandbox, and it cannot be set aside: {error.strerror}"
            ) from error
        return True

    @contextmanager
    def _folder_of(self, path: str) -> Generator[int, None, None]:
        """A descriptor of the folder of a path, opened without following links, since programs may
        be changing it."""
        how = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
        folder = os.open(self.workspace, how)
        try:
            for part in path.split("/")[:-1]:
                _make_accessible(folder, stat.S_IXUSR)
                inner = os.open(part, how, dir_fd=folder)
                os.close(folder)
                folder = inner
            _make_accessible(folder, stat.S_IXUSR)
            yield folder
        finally:
            os.close(folder)


def _make_accessible(folder: int, access: int) -> None:
    """Give the owner access to a folder: a program may have removed it to hide its files."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & access != access:
        os.chmod(f"/dev/fd/{folder}", mode | access)


def _digest(folder: int, name: str) -> str:
    how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(name, how, dir_fd=folder), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
