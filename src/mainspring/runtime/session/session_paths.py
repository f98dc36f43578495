"""The folders of a session: its workspace, what is hidden or protected there, and private state."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import Struct

from mainspring import error_table
from mainspring.core.errors import InvalidInput
from mainspring.files.openat import real_path
from mainspring.harness.permissions.policy import Policy, is_hidden, is_unchangeable
from mainspring.harness.permissions.protected_path_watcher import GitRepositories
from mainspring.runtime.mcp_server import McpServer

_MAX_DENIED_PATHS = 200  # that a sandbox hides; each is a mount
TEAM_MEMORY_FILE = ".mainspring/team-memory"
"""In the home folder: the path of the folder of a team's memories."""
SERVED_STATE_FOLDER = ".state"
"""The folder beside the workspaces of the service's sessions for the state of their sandboxes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPaths:
    """The folders that one session works with."""

    workspace: Path
    state: Path
    """Private state of the sandbox."""
    snapshots: Path
    transcripts: Path
    """The private folder in which hooks read the conversation."""
    hidden: tuple[str, ...]
    """Paths in the workspace that are hidden from the session."""
    protected: tuple[str, ...] = ()
    """Paths in the workspace that programs may not change."""
    watched: tuple[str, ...] = ()
    """Paths in the workspace that programs may neither change nor create."""
    git_repositories: GitRepositories | None = None
    """`None` before they have been searched for."""
    readable: tuple[Path, ...] = ()
    """Folders outside the workspace, or hidden in it, that programs may read."""
    private: tuple[Path, ...] = ()
    """The operator's files: see `SandboxSpec`."""
    aliases: tuple[str, ...] = ()
    """Other absolute paths of the workspace: see `aliased_folder`."""
    distrusted: tuple[Path, ...] = ()
    """Other folders in which programs of the session can change files and links."""

    def worktrees(self, session_id: str) -> Path:
        """Where the worktrees of a session are."""
        return self.state.parent.with_name("worktrees") / session_id

    def needs_mount(self, folder: Path) -> bool:
        """Whether a folder has to be mounted, because it is elsewhere or hidden here. A link in the
        workspace does not count: a program may have created it."""
        untrusted = [str(item) for item in (self.workspace, *self.distrusted)]
        try:
            real = Path(real_path(str(folder), distrusted=untrusted))
        except OSError:
            return False
        if not real.is_relative_to(self.workspace):
            return True
        hidden = any(real.is_relative_to(self.workspace / item) for item in self.hidden)
        return hidden and real == folder


def add_protected_paths(paths: SessionPaths, policy: Policy) -> SessionPaths:
    """Also protect the policy's protected paths from the session's programs."""
    own = (Path(item) for item in policy.protected)
    inside = (item for item in own if item.is_relative_to(paths.workspace))
    watched = tuple(item.relative_to(paths.workspace).as_posix() for item in inside)
    return replace(paths, watched=watched)


def hide_denied_paths(paths: SessionPaths, policy: Policy) -> SessionPaths:
    """Hide files from programs if a rule denies reading them, and protect files if a rule denies
    editing them.

    Covers the files that exist now; later ones are created by the session itself."""
    if not any(rule.behavior == "deny" for rule in policy.rules):
        return paths
    hidden: list[str] = []
    protected: list[str] = []
    covered: set[str] = set()
    """Folders that are protected with everything in them."""
    for folder, folders, files in os.walk(paths.workspace):
        is_covered = folder in covered
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            target = _link_target(path)
            if is_hidden(policy, path, target):
                hidden.append(os.path.relpath(path, paths.workspace))
            elif is_covered:
                covered.add(path)
            elif is_unchangeable(policy, path, target):
                covered.add(path)
                protected.append(os.path.relpath(path, paths.workspace))
        skipped = {*hidden, *paths.hidden}
        folders[:] = [
            name
            for name in folders
            if os.path.relpath(os.path.join(folder, name), paths.workspace) not in skipped
        ]
        _refuse_many(hidden, "read")
        _refuse_many(protected, "edit")
    return replace(paths, hidden=(*paths.hidden, *hidden), protected=tuple(protected))


def _link_target(path: str) -> str:
    """The target of a link; programs may be changing it."""
    with suppress(OSError):
        return os.path.realpath(path) if os.path.islink(path) else path
    return path


def _refuse_many(paths: list[str], access: str) -> None:
    if len(paths) > _MAX_DENIED_PATHS:
        raise InvalidInput(
            f"rules deny {access} access to more than {_MAX_DENIED_PATHS} paths: name their folders"
        )


class StateFolders(Struct, frozen=True, kw_only=True):
    """The folders for the private state of this machine's sessions."""

    name: str
    """The name of the state folder in a workspace, which sessions do not see."""
    home: Path
    workspaces: Path | None
    """The folder with the workspaces of the service's sessions."""
    store: Path | None
    """`None`: the store is a database server."""
    private: tuple[Path, ...]
    """The operator's files."""

    def session_paths(self, workspace: Path, session_id: str) -> SessionPaths:
        """
        Raises:
            InvalidInput: the workspace does not exist, or is too large to work in.
        """
        workspace = workspace.resolve()
        if not workspace.is_dir():
            raise error_table.NO_WORKSPACE.error(InvalidInput, folder=workspace)
        if self.home.resolve().is_relative_to(workspace):
            raise error_table.NOT_A_PROJECT.error(InvalidInput, folder=workspace)
        own, hidden = workspace / self.name, {self.name}
        if self.workspaces is not None and workspace.parent == self.workspaces.resolve():
            own = self._served  # the same for every store, on a disk that workers share
        elif self.store is not None and self.store.resolve().parent != workspace:
            own = self.store.resolve().parent
        if own.is_relative_to(workspace):
            hidden.add(own.relative_to(workspace).as_posix())
        hidden |= {
            path.relative_to(workspace).as_posix()
            for path in (private.resolve() for private in self.private)
            if path.is_relative_to(workspace)
            and not any(path.is_relative_to(workspace / folder) for folder in hidden)
        }
        paths = _paths_in(own, workspace, session_id)
        return replace(paths, hidden=tuple(sorted(hidden)), private=self.private)

    def served_paths(self, session_id: str) -> SessionPaths:
        """The paths of a session of the service; its workspace may no longer exist."""
        return _paths_in(self._served, self._served.parent / session_id, session_id)

    @property
    def served_states(self) -> Path:
        """Where the states of the service's sessions are: see `SessionPaths.state`."""
        return self.served_paths("any").state.parent

    @property
    def _served(self) -> Path:
        return (self.workspaces or Path()).resolve() / SERVED_STATE_FOLDER


def _paths_in(own: Path, workspace: Path, session_id: str) -> SessionPaths:
    return SessionPaths(
        workspace=workspace,
        state=own / "hands" / session_id,
        snapshots=own / "snapshots" / workspace.as_posix().encode().hex()[-120:],
        transcripts=own / "transcripts",
        hidden=(),
    )


def thread_sandbox_id(session_id: str, thread_id: str) -> str:
    """The id of a thread's own sandbox; short, because it becomes part of a socket's path."""
    return f"{session_id}-{thread_id[-12:]}"


def worktree_paths(
    paths: SessionPaths, workspace: Path, thread_id: str, repository: Path
) -> SessionPaths:
    """The paths of a thread that works in a git worktree of the workspace. Its programs can read,
    but not change, the repository of the worktree."""
    return replace(
        paths,
        workspace=workspace,
        aliases=(),
        state=paths.state.with_name(thread_sandbox_id(paths.state.name, thread_id)),
        hidden=(),
        protected=(),
        watched=(),
        git_repositories=None,
        readable=(*paths.readable, repository),
        distrusted=(*paths.distrusted, paths.workspace),
    )


def with_plugin_folders(paths: SessionPaths, servers: Iterable[McpServer]) -> SessionPaths:
    """Add the folders of plugins with MCP servers: their programs are there."""
    roots = {Path(server.plugin_root) for server in servers if server.plugin is not None}
    folders = [folder for folder in sorted(roots) if paths.needs_mount(folder)]
    return replace(paths, readable=(*paths.readable, *folders))


def memory_places(workspace: Path, home: Path) -> tuple[Path, ...]:
    """The folders of the agent's memories, the user's, and the team's if one is chosen."""
    team = team_memory_place(home)
    own = workspace / "memory", home / ".mainspring/memory"
    return own if team is None else (*own, team)


def team_memory_place(home: Path) -> Path | None:
    """The folder that the user has chosen for memories of their team."""
    try:
        return Path((home / TEAM_MEMORY_FILE).read_text().strip())
    except FileNotFoundError:
        return None


def has_memories(workspace: Path, home: Path) -> bool:
    """Whether there may be memories: a folder, or a `MEMORY.md` in the workspace itself."""
    is_there = any(place.is_dir() for place in memory_places(workspace, home))
    return is_there or (workspace / "MEMORY.md").is_file()


def subagent_memory_place(kind: str, name: str, workspace: Path, home: Path) -> Path:
    """The folder of a subagent's own memories: the same as in Claude Code.

    Raises:
        InvalidInput: a link leads elsewhere.
    """
    folder = "agent-memory-local" if kind == "local" else "agent-memory"
    above = (home if kind == "user" else workspace).resolve() / ".claude" / folder
    place = above / (re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "agent")
    if place.resolve() != place:
        raise InvalidInput(f"{place} is behind a link, so {name} cannot have memories")
    return place
