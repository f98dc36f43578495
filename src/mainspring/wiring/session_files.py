"""Files of sessions that are not running: snapshots of their workspaces, and the removal of deleted
sessions' files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.sandbox import readonly_mounts
from mainspring.capabilities.sandbox.backends.session_uids import release_session_uid
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.ports import Snapshots
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.rewind import RewindHistory
from mainspring.runtime.session.session_paths import SessionPaths, hide_denied_paths
from mainspring.runtime.session.session_removal import SessionRemoval
from mainspring.runtime.settings.pinned_policy import read_pinned_policy
from mainspring.wiring.sandbox_settings import session_paths, state_folders
from mainspring.wiring.settings_files import read_folder_policy
from mainspring.wiring.worktrees import open_worktrees


def session_removal(settings: Settings, log: SessionLog) -> SessionRemoval:
    async def remove_worktrees(workspace: Path, place: Path) -> None:
        await open_worktrees(workspace, place).remove_all()

    async def forget_snapshots(paths: SessionPaths, snapshots: Collection[str]) -> None:
        await _snapshots(paths).forget(snapshots)

    return SessionRemoval(
        log=log,
        folder=Path(settings.folder),
        state_folders=state_folders(settings),
        folders=readonly_mounts,
        release_uid=release_session_uid,
        remove_worktrees=remove_worktrees,
        forget_snapshots=forget_snapshots,
    )


async def open_snapshots(
    settings: Settings, log: SessionLog, rewind_history: RewindHistory
) -> Snapshots:
    """The snapshots of the session's last workspace, or of this folder if it had none.

    Raises:
        InvalidInput: the workspace does not exist, or a settings file is not valid.
    """
    workspace = Path(rewind_history.workspace or settings.folder)
    paths = session_paths(settings, workspace, rewind_history.session_id)
    if rewind_history.policy is not None:
        # what was hidden from the session is in none of its snapshots: a restore would remove it
        loaded = await read_folder_policy(settings, paths.workspace)
        own_log = await log.own(rewind_history.session_id)
        pinned = await read_pinned_policy(own_log, log, rewind_history.policy, loaded)
        paths = await to_thread.run_sync(hide_denied_paths, paths, pinned.policy)
    return _snapshots(paths)


def served_snapshots(
    settings: Settings,
) -> Callable[[SessionLog, RewindHistory], Awaitable[Snapshots]]:
    """Opens the snapshots of sessions of the service: each has a workspace of its own, and the log
    of a fork that has not run yet names that of its parent."""

    async def open_served(log: SessionLog, rewind_history: RewindHistory) -> Snapshots:
        session_id = rewind_history.session_id
        folder = await to_thread.run_sync(Path(settings.workspaces).resolve)
        own = str(folder / session_id)
        if rewind_history.workspace != own:
            raise InvalidInput(f"session {session_id} has no files of its own yet")
        return await open_snapshots(settings, log, rewind_history)

    return open_served


def _snapshots(paths: SessionPaths) -> WorkspaceSnapshots:
    return WorkspaceSnapshots(
        FolderWorkspace(paths.workspace, hidden=paths.hidden), paths.snapshots
    )
