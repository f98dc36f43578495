"""Watch protected paths while programs run in a sandbox: what a program creates there is moved
out of the way before anything outside can execute it.
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
"""Has git believe another config. It makes one in linked worktrees only, which are elsewhere."""
PROTECTED_PATHS = (
    *(f".git/{name}" for name in IN_GIT if name != _FORBIDDEN_GIT_FILE),
    *sorted(PROJECT_FOLDERS | PROJECT_FILES),
    *PROJECT_PATHS,
)
"""What programs may read and not change: it runs later, or steers what runs."""
_LOOKS_LIKE_GIT = frozenset(("HEAD", "objects", "refs"))
_LOOKS_LIKE_WORKTREE = frozenset(("HEAD", "commondir", "gitdir"))
"""In the repository that a linked worktree is of: what it keeps of that one."""
_SKIPPED_FOLDERS = frozenset(("objects", "node_modules"))
_MAX_DEPTH = 6
_MAX_FOLDERS = 10_000
_MAX_REPOSITORIES = 50
_MAX_TODO_BYTES = 1_000_000
_HARMLESS_REBASE_STEPS = frozenset(
    b"pick p reword r edit e squash s fixup f drop d break b label l reset t merge m update-ref u"
    b" noop".split()
)
"""Of a rebase; all but `exec`."""


class GitRepositories(Struct, frozen=True):
    """Those of a workspace, nested ones and submodules too; the nearest to its root, if there are
    many. All paths are from the workspace on."""

    steering: tuple[str, ...] = ()
    """What steers git in them; not all of it need be there."""
    trees: tuple[str, ...] = ()
    """Their working trees."""
    folders: tuple[str, ...] = ()
    """Where git keeps them."""


def find_repositories(workspace: Path, hidden: Collection[str]) -> GitRepositories:
    steering: list[str] = []
    trees: list[str] = []
    repositories: list[str] = []
    pending = deque([""])
    looked = 0
    while pending and looked < _MAX_FOLDERS and len(repositories) < _MAX_REPOSITORIES:
        looked += 1
        at = pending.popleft()
        folders, files = _list_folder(workspace, at)
        names = folders | files
        if names >= _LOOKS_LIKE_GIT:
            repositories.append(at)
            steering += [os.path.join(at, name) for name in IN_GIT]
        elif names >= _LOOKS_LIKE_WORKTREE:
            steering += [os.path.join(at, name) for name in (*IN_GIT, "gitdir")]
        if ".git" in files:  # says where the repository is, and git believes it
            steering.append(os.path.join(at, ".git"))
        if ".git" in names:
            trees.append(at)
            steering += [os.path.join(at, name) for name in protected_names(names, is_root=not at)]
        below = [os.path.join(at, name) for name in sorted(folders - _SKIPPED_FOLDERS)]
        pending += [path for path in below if path.count("/") < _MAX_DEPTH and path not in hidden]
    return GitRepositories(tuple(steering), tuple(trees), tuple(repositories))


def is_memory_folder(folder: Path) -> bool:
    """Whether a folder exists and is one of memories; an empty one is."""
    return folder.is_dir() and has_memories(*_list_folder(folder, ""))


def memory_paths(workspace: Path) -> tuple[str, ...]:
    """The folder of memories, or where one may be made; nothing if code is there."""
    folder = workspace / MEMORY_FOLDER
    return () if folder.is_dir() and not is_memory_folder(folder) else (MEMORY_FOLDER,)


def still_protected(workspace: Path, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Without the place for memories, if there is code by now."""
    memory = workspace / MEMORY_FOLDER
    return paths if memory_paths(workspace) else tuple(path for path in paths if path != memory)


def _list_folder(workspace: Path, path: str) -> tuple[set[str], set[str]]:
    """The names of folders in a folder, and of all else; nothing, if a link leads there."""
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
    """Of one session. What comes while none of its programs can run is somebody else's."""

    workspace: Path
    watched: tuple[str, ...]
    """Relative to the workspace."""
    git_repositories: GitRepositories
    state: Path
    """The private folder of the session's sandbox."""
    _known: dict[str, str] = field(default_factory=dict[str, str])
    _running: int = 0

    def __post_init__(self) -> None:
        self._known = self._look()

    def begin(self) -> bool:
        """A program is about to run. Whether there is more to be protected than before."""
        self._running += 1
        # a service may have made what is new; and once there was one, nobody can tell
        if self._running > 1 or (self.state / "services").exists():
            return False
        earlier, self._known = self._known, self._look()
        return bool(self._known.items() - earlier.items())

    def end(self) -> list[str]:
        """It has ended, whichever way: what it made is moved out of the way, and named.

        Raises:
            SandboxFailed: it cannot be moved.
        """
        self._running -= 1
        return [
            path
            for path, kind in sorted(self._look().items())
            if (self._known.get(path) != kind or os.path.basename(path) == _FORBIDDEN_GIT_FILE)
            and self._set_aside(path)
        ]

    def _look(self) -> dict[str, str]:
        """What there is of what is watched, and where it leads if it is a link."""
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
        """By the names that there are: those that count can be spelled in many ways."""
        for tree in dict.fromkeys(("", *self.git_repositories.trees)):
            folders, files = _list_folder(self.workspace, tree)
            for name in protected_names(folders | files, is_root=not tree):
                yield os.path.join(tree, name)
        yield from self._memories()
        yield from (f".git/{name}" for name in IN_GIT)
        modules, _ = _list_folder(self.workspace, ".git/modules")
        yield from (f".git/modules/{name}" for name in modules)

    def _memories(self) -> Iterator[str]:
        """A folder with memories in it, or a link that could lead to one."""
        folders, files = _list_folder(self.workspace, "")
        links = (name for name in files if fold_name(name) == MEMORY_FOLDER)
        yield from (name for name in links if self._kind(name))
        for name in (name for name in folders if fold_name(name) == MEMORY_FOLDER):
            inside = _list_folder(self.workspace, name)
            if any(inside) and has_memories(*inside):
                yield name

    def _rebase_programs(self, git_folder: str) -> dict[str, str]:
        """A rebase that was left to be continued, if it would run programs: with which."""
        found: dict[str, str] = {}
        for name in REBASE_LISTS:
            path = os.path.join(git_folder, name)
            programs = self._steps(path) - _HARMLESS_REBASE_STEPS
            if programs:
                content = b"\0".join(sorted(programs))
                found[os.path.dirname(path)] = hashlib.sha256(content).hexdigest()
        return found

    def _steps(self, path: str) -> set[bytes]:
        """What is done in its steps; of those that are not known to be harmless, the whole line."""
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
        """`None`: there is no such thing; empty: it is no link."""
        name = os.path.basename(path)
        with suppress(OSError), self._folder_of(path) as folder:
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return os.readlink(name, dir_fd=folder) if stat.S_ISLNK(state.st_mode) else ""
        return None

    def _set_aside(self, path: str) -> bool:
        """Whether it was still there."""
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
            return False  # it was in something that has been set aside
        except OSError as error:
            raise SandboxFailed(
                f"{self.workspace / path} was made by a program, could run outside of the sandbox,"
                f" and cannot be set aside: {error.strerror}"
            ) from error
        return True

    @contextmanager
    def _folder_of(self, path: str) -> Generator[int, None, None]:
        """A descriptor of the folder that a path is in, reached through no link: programs may
        be changing it meanwhile."""
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
    """For whoever owns it: a program may have closed it, for what it made not to be found."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & access != access:
        os.chmod(f"/dev/fd/{folder}", mode | access)
