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
from mainspring.runtime.session.session_footprint import SessionFootprint, unused_snapshots
from mainspring.runtime.session.session_paths import SessionPaths, hide_denied_paths
from mainspring.runtime.settings.pinned_policy import read_pinned_policy
from mainspring.wiring.sandbox_environment import session_paths
from mainspring.wiring.session_repositories import open_worktrees
from mainspring.wiring.settings_files import load_policy

_ANY_ID = "any"
"""Stands for an id where a path is made: what it is in, does not depend on it."""


async def remove_session_files(
    settings: Settings, log: SessionLog, gone: Collection[SessionFootprint]
) -> None:
    """Remove what these sessions, which are not in the log any more, had for themselves.

    Only what they named is forgotten: another log may keep snapshots in the same place.
    """
    unneeded = await unused_snapshots(log, gone)
    for traces in gone:
        await to_thread.run_sync(remove_readonly_mount, traces.session_id)
        for places in _places(settings, traces):
            sandbox_session = places.state.parent
            await to_thread.run_sync(remove_sandbox_folders, sandbox_session, traces.session_id)
            await to_thread.run_sync(remove_transcripts, places.transcripts, traces.session_id)
            await _remove_worktrees(places, traces.session_id)
            with suppress(
                ToolEnvironmentError, InvalidInput
            ):  # they are kept for longer than they need be
                await _remove_snapshots(places, traces.snapshots & unneeded)
        await to_thread.run_sync(release_session_uid, traces.session_id)


async def _remove_worktrees(paths: SessionPaths, session_id: str) -> None:
    place = paths.worktrees(session_id)
    if await to_thread.run_sync(place.is_dir):
        with suppress(ToolEnvironmentError):  # somebody has to look at them
            await open_worktrees(paths.workspace, place).remove_all()
            await to_thread.run_sync(remove_folder, place.parent, session_id)


def _places(settings: Settings, session_footprint: SessionFootprint) -> list[SessionPaths]:
    found: list[SessionPaths] = []
    for workspace in sorted(session_footprint.workspaces or {settings.folder}):
        with suppress(InvalidInput):  # there is no such folder any more
            found.append(session_paths(settings, Path(workspace), _ANY_ID))
    return found


async def _remove_snapshots(paths: SessionPaths, snapshots: Collection[str]) -> None:
    if snapshots and paths.snapshots.is_dir():
        tree = FolderWorkspace(paths.workspace, hidden=paths.hidden)
        await WorkspaceSnapshots(tree, paths.snapshots).forget(snapshots)


async def open_snapshots(
    settings: Settings, log: SessionLog, rewind_history: RewindHistory
) -> Snapshots:
    """Of the workspace that the session last had; of this folder, if it had none.

    Raises:
        InvalidInput: the workspace is not there, or a settings file cannot be understood.
    """
    workspace = Path(rewind_history.workspace or settings.folder)
    places = session_paths(settings, workspace, rewind_history.session_id)
    if rewind_history.policy is not None:
        places = await _visible_to_session(settings, log, rewind_history.policy, places)
    return WorkspaceSnapshots(
        FolderWorkspace(places.workspace, hidden=places.hidden), places.snapshots
    )


async def _visible_to_session(
    settings: Settings, log: SessionLog, digest: str, paths: SessionPaths
) -> SessionPaths:
    """What is hidden from a session is in none of its snapshots: seen here, it would be taken for
    something that came later, and be removed."""
    home = Path(settings.home)
    loaded = await to_thread.run_sync(lambda: load_policy(paths.workspace, home=home))
    adopted = await read_pinned_policy(log, digest, loaded)
    return await to_thread.run_sync(hide_denied_paths, paths, adopted.policy)
