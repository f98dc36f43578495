"""Files of sessions that do not run: snapshots of their workspaces, and what deleted ones leave
on disk.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.sandbox.readonly_mounts import (
    remove_folder,
    remove_readonly_mount,
    remove_sandbox_folders,
    remove_transcripts,
)
from mainspring.capabilities.sandbox.session_uids import release_session_uid
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.core.ports import Snapshots
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.rewind import RewindHistory
from mainspring.runtime.session.session_paths import SessionPaths, hide_denied_paths
from mainspring.runtime.session.session_summary import SessionFootprint, unused_snapshots
from mainspring.runtime.settings.pinned_policy import read_pinned_policy
from mainspring.wiring.sandbox_environment import session_paths
from mainspring.wiring.session_repositories import open_worktrees
from mainspring.wiring.settings_files import load_policy

_ANY_ID = "any"
"""Stands for an id in a path whose folders do not depend on it."""


async def remove_session_files(
    settings: Settings, log: SessionLog, gone: Collection[SessionFootprint]
) -> None:
    """Remove the files of sessions that are no longer in the log.

    Only snapshots that they named are removed: another log may have snapshots in the same place.
    """
    unneeded = await unused_snapshots(log, gone)
    for footprint in gone:
        await to_thread.run_sync(remove_readonly_mount, footprint.session_id)
        for paths in _session_paths(settings, footprint):
            await to_thread.run_sync(
                remove_sandbox_folders, paths.state.parent, footprint.session_id
            )
            await to_thread.run_sync(remove_transcripts, paths.transcripts, footprint.session_id)
            await _remove_worktrees(paths, footprint.session_id)
            with suppress(ToolEnvironmentError, InvalidInput):  # then they stay for longer
                await _remove_snapshots(paths, footprint.snapshots & unneeded)
        await to_thread.run_sync(release_session_uid, footprint.session_id)


async def _remove_worktrees(paths: SessionPaths, session_id: str) -> None:
    place = paths.worktrees(session_id)
    if await to_thread.run_sync(place.is_dir):
        with suppress(ToolEnvironmentError):  # then somebody has to look at them
            await open_worktrees(paths.workspace, place).remove_all()
            await to_thread.run_sync(remove_folder, place.parent, session_id)


def _session_paths(settings: Settings, footprint: SessionFootprint) -> list[SessionPaths]:
    result: list[SessionPaths] = []
    for workspace in sorted(footprint.workspaces or {settings.folder}):
        with suppress(InvalidInput):  # the folder no longer exists
            result.append(session_paths(settings, Path(workspace), _ANY_ID))
    return result


async def _remove_snapshots(paths: SessionPaths, snapshots: Collection[str]) -> None:
    if snapshots and paths.snapshots.is_dir():
        tree = FolderWorkspace(paths.workspace, hidden=paths.hidden)
        await WorkspaceSnapshots(tree, paths.snapshots).forget(snapshots)


async def open_snapshots(
    settings: Settings, log: SessionLog, rewind_history: RewindHistory
) -> Snapshots:
    """Of the last workspace of the session, or of this folder if it had none.

    Raises:
        InvalidInput: the workspace is not there, or a settings file cannot be understood.
    """
    workspace = Path(rewind_history.workspace or settings.folder)
    paths = session_paths(settings, workspace, rewind_history.session_id)
    if rewind_history.policy is not None:
        paths = await _visible_to_session(settings, log, rewind_history.policy, paths)
    return WorkspaceSnapshots(
        FolderWorkspace(paths.workspace, hidden=paths.hidden), paths.snapshots
    )


async def _visible_to_session(
    settings: Settings, log: SessionLog, digest: str, paths: SessionPaths
) -> SessionPaths:
    """Hide what was hidden from the session: it is in none of its snapshots, so a restore would
    remove it."""
    home = Path(settings.home)
    loaded = await to_thread.run_sync(lambda: load_policy(paths.workspace, home=home))
    pinned = await read_pinned_policy(log, digest, loaded)
    return await to_thread.run_sync(hide_denied_paths, paths, pinned.policy)
