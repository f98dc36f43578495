"""The workspace of a fork: its own folder, with the files that its parent had at that point."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.capabilities.workspace.tree import Tree
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.log.session_log import SessionLog
from mainspring.runtime.rewinding import Past, read_past
from mainspring.service.sessions.mounted import Resource
from mainspring.wiring.environment import places_of
from mainspring.wiring.mounts import carry_mounts, make_private


async def bring_workspace(
    settings: Settings,
    log: SessionLog,
    session_id: str,
    workspace: Path,
    resources: Sequence[Resource],
) -> None:
    """Make the workspace, if the session is a fork that has not run yet; else there is nothing to
    bring. Where nothing was kept nothing was changed: then it begins empty, and gets its mounts.

    Raises:
        InvalidInput: its parent's workspace is not on this machine.
        HandsError: the snapshot is damaged, or the disk is full; it can be tried again.
    """
    session = await log.session(session_id)
    if session.parent_id is None or await to_thread.run_sync(workspace.exists):
        return
    past = await read_past(log, session)
    if past.workspace is None or Path(past.workspace) == workspace:
        return  # no hands yet, or its own: that is not ours to make up for
    staged = workspace.with_name(f"{workspace.name}.forking")
    await to_thread.run_sync(_cleared, staged)
    await _restore(settings, past, session.parent_seq, staged)
    await to_thread.run_sync(carry_mounts, Path(past.workspace), staged, workspace, resources)
    await to_thread.run_sync(staged.rename, workspace)
    await _keep(settings, session_id, workspace)


async def _restore(settings: Settings, past: Past, seq: int, staged: Path) -> None:
    kept = past.at(seq)
    if kept is None:
        return
    before = Path(past.workspace or "")
    if not await to_thread.run_sync(before.is_dir):
        raise InvalidInput(
            f"session {past.session_id} goes on from work in {before}, which is not on this"
            " machine; give all workers the same MAINSPRING_WORKSPACES on a disk that they share"
        )
    places = places_of(settings, before, past.session_id)
    tree = Tree(staged, hidden=places.hidden)
    await WorkspaceSnapshots(tree, places.snapshots).restore(kept.snapshot)


async def _keep(settings: Settings, session_id: str, workspace: Path) -> None:
    """Snapshots are named by what is in them: kept here too, the one that was inherited is known
    to the fork, for it to go back to."""
    places = places_of(settings, workspace, session_id)
    tree = Tree(places.workspace, hidden=places.hidden)
    await WorkspaceSnapshots(tree, places.snapshots).take()


def _cleared(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    make_private(folder)
