"""What programs make that would run, or steer what runs, outside of their sandbox: it is set aside.

What exists when a sandbox starts is the sandbox's to protect; nothing can be mounted over the rest.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from mainspring.core.errors import SandboxFailed
from mainspring.core.hands import Ran
from mainspring.core.ids import new_id
from mainspring.core.openat import open_absolute

PROTECTED = (
    *(".git/hooks", ".git/config", ".git/info", ".git/config.worktree"),
    *(".gitmodules", ".envrc"),
    *(".agents", ".claude", ".kiro", ".vscode", ".idea", ".husky", ".devcontainer"),
    *("agent.yaml", "hooks.json", ".mcp.json", "mcp.json"),
)
"""What programs may read and not change: it runs later, or steers what runs."""
_IN_GIT = ("hooks", "config", "info", "config.worktree", "commondir")
_NEVER_MEANT = "commondir"
"""Has git believe another config. It makes one in linked worktrees only, which are elsewhere."""
_LOOKS_LIKE_GIT = frozenset(("HEAD", "objects", "refs"))
_NOT_ENTERED = frozenset(("objects", "node_modules"))
_DEEPEST = 6
_MOST_FOLDERS = 10_000
_MOST_REPOSITORIES = 50


def find_repositories(workspace: Path, hidden: Collection[str]) -> tuple[str, ...]:
    """What steers git in the repositories of a workspace, nested ones and submodules too: those
    nearest to its root, if there are many. Relative paths; not all of them need to be there."""
    found: list[str] = []
    pending = deque([""])
    looked = repositories = 0
    while pending and looked < _MOST_FOLDERS and repositories < _MOST_REPOSITORIES:
        looked += 1
        at = pending.popleft()
        folders, files = _listed(workspace, at)
        if folders | files >= _LOOKS_LIKE_GIT:
            repositories += 1
            found += [os.path.join(at, name) for name in _IN_GIT]
        if ".git" in files:  # says where the repository is, and git believes it
            found.append(os.path.join(at, ".git"))
        below = [os.path.join(at, name) for name in sorted(folders - _NOT_ENTERED)]
        pending += [path for path in below if path.count("/") < _DEEPEST and path not in hidden]
    return tuple(found)


def _listed(workspace: Path, path: str) -> tuple[set[str], set[str]]:
    """The names of folders in a folder, and of all else; nothing, if a link leads there."""
    folders: set[str] = set()
    files: set[str] = set()
    with suppress(OSError):
        opened = open_absolute(str(workspace / path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(opened) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else files).add(entry.name)
        finally:
            os.close(opened)
    return folders, files


@dataclass(slots=True)
class Lookout:
    """Of one session. What comes while none of its programs can run is somebody else's."""

    workspace: Path
    watched: tuple[str, ...]
    """Relative to the workspace."""
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
        known, self._known = self._known, self._look()
        return bool(self._known.items() - known.items())

    def end(self) -> list[str]:
        """It has ended, whichever way: what it made is moved out of the way, and named.

        Raises:
            SandboxFailed: it cannot be moved.
        """
        self._running -= 1
        return [
            path
            for path, kind in sorted(self._look().items())
            if (self._known.get(path) != kind or os.path.basename(path) == _NEVER_MEANT)
            and self._set_aside(path)
        ]

    def _look(self) -> dict[str, str]:
        """What there is of what is watched, and where it leads if it is a link."""
        found: dict[str, str] = {}
        for path in (".git", ".git/modules", *PROTECTED, *self.watched, *self._in_git()):
            parts = path.split("/")
            for size in range(1, len(parts) + 1):
                upper = "/".join(parts[:size])
                kind = self._kind(upper)
                if kind is None:
                    break
                if kind or size == len(parts):
                    found[upper] = kind
                    break
        return found

    def _in_git(self) -> Iterator[str]:
        yield from (f".git/{name}" for name in _IN_GIT)
        modules, _ = _listed(self.workspace, ".git/modules")
        yield from (f".git/modules/{name}" for name in modules)

    def _kind(self, path: str) -> str | None:
        """`None`: there is no such thing; empty: it is no link."""
        name = os.path.basename(path)
        with suppress(OSError), self._folder_of(path) as folder:
            known = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return os.readlink(name, dir_fd=folder) if stat.S_ISLNK(known.st_mode) else ""
        return None

    def _set_aside(self, path: str) -> bool:
        """Whether it was still there."""
        aside = self.state / "set-aside"
        aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        name, mark = os.path.basename(path), new_id("kept")
        try:
            with self._folder_of(path) as folder:
                _open_up(folder, stat.S_IRWXU)
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
                _open_up(folder, stat.S_IXUSR)
                inner = os.open(part, how, dir_fd=folder)
                os.close(folder)
                folder = inner
            _open_up(folder, stat.S_IXUSR)
            yield folder
        finally:
            os.close(folder)


def _open_up(folder: int, wanted: int) -> None:
    """For whoever owns it: a program may have closed it, for what it made not to be found."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & wanted != wanted:
        os.chmod(f"/dev/fd/{folder}", mode | wanted)


def noted(ran: Ran, set_aside: list[str]) -> Ran:
    """A result that says what has become of what the program made."""
    if not set_aside:
        return ran
    notice = (
        f"\n[set aside, since it could run outside of the sandbox: {', '.join(set_aside)}."
        " Only people can make these (`git init`, say): ask the user to.]\n"
    ).encode("utf-8", "replace")
    stderr = ran.stderr
    told = replace(stderr, tail=stderr.tail + notice, size=stderr.size + len(notice))
    return replace(ran, stderr=told)
