"""Workspaces of the service's sessions: fills them, forks them, and removes the files of deleted
sessions and expired workspaces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from mainspring.capabilities.git.git_clone import GitCloner
from mainspring.capabilities.network.addresses import Resolver, resolve_allowed, system_resolver
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.sandbox import readonly_mounts
from mainspring.capabilities.sandbox.backends.session_uids import release_session_uid
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.served_files import ServedFiles
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import FOLDER, Settings
from mainspring.core.ports import Snapshots
from mainspring.log.records import Records
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.session_paths import SERVED_STATE_FOLDER
from mainspring.service.sessions.resource_types import FileContent
from mainspring.service.sessions.workspaces.expired_workspaces import WorkspaceCleaner
from mainspring.service.sessions.workspaces.session_mounts import ForkWorkspaces, Mounts
from mainspring.wiring.sandbox_settings import session_paths, state_folders
from mainspring.wiring.sandboxes import SandboxPool


def workspace_cleaner(
    settings: Settings, records: Records, sandboxes: SandboxPool
) -> WorkspaceCleaner:
    return WorkspaceCleaner(
        records=records,
        state_folders=state_folders(settings),
        folders=readonly_mounts,
        release_uid=release_session_uid,
        discard_sandbox=sandboxes.discard,
    )


_FILES = ServedFiles(hidden=FOLDER, state=SERVED_STATE_FOLDER)


def open_mounts(
    file_content: Callable[[str, str], Awaitable[FileContent]], git_cloner: GitCloner
) -> Mounts:
    return Mounts(file_content=file_content, clone=git_cloner.clone, files=_FILES)


def open_git_cloner(
    networks: Sequence[Network] = (),
    *,
    max_bytes: int = 4 << 30,
    resolver: Resolver = system_resolver,
) -> GitCloner:
    """`networks`: private addresses that are allowed too, also over plain HTTP."""
    return GitCloner(
        resolve=partial(resolve_allowed, resolver=resolver, besides=networks),
        allow_http=bool(networks),
        max_bytes=max_bytes,
    )


def fork_workspaces(settings: Settings, log: SessionLog) -> ForkWorkspaces:
    def open_snapshots(workspace: Path, session_id: str, to: Path | None) -> Snapshots:
        paths = session_paths(settings, workspace, session_id)
        tree = FolderWorkspace(to or paths.workspace, hidden=paths.hidden)
        return WorkspaceSnapshots(tree, paths.snapshots)

    return ForkWorkspaces(log=log, files=_FILES, open_snapshots=open_snapshots)
