"""The snapshots of a session's workspace, for whoever looks at them while it does not run."""

from __future__ import annotations

from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import Settings
from mainspring.core.ports import Snapshots
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.rewind import RewindHistory
from mainspring.runtime.session.session_paths import SessionPaths, hide_denied_paths
from mainspring.runtime.settings.pinned_policy import read_pinned_policy
from mainspring.wiring.sandbox_environment import session_paths
from mainspring.wiring.settings_files import load_policy


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
