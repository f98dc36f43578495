"""The snapshots of a session's workspace, for whoever looks at them while it does not run."""

from __future__ import annotations

from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.capabilities.workspace.tree import Tree
from mainspring.config import Settings
from mainspring.core.hands import Snapshots
from mainspring.log.session_log import SessionLog
from mainspring.runtime.rewinding import Past
from mainspring.wiring.adopted import still_adopted
from mainspring.wiring.environment import Places, places_of, without_denied
from mainspring.wiring.policies import load_policy


async def open_snapshots(settings: Settings, log: SessionLog, past: Past) -> Snapshots:
    """Of the workspace that the session last had; of this folder, if it had none.

    Raises:
        InvalidInput: the workspace is not there, or a settings file cannot be understood.
    """
    workspace = Path(past.workspace or settings.folder)
    places = places_of(settings, workspace, past.session_id)
    if past.policy is not None:
        places = await _as_the_session_sees(settings, log, past.policy, places)
    return WorkspaceSnapshots(Tree(places.workspace, hidden=places.hidden), places.snapshots)


async def _as_the_session_sees(
    settings: Settings, log: SessionLog, digest: str, places: Places
) -> Places:
    """What is hidden from a session is in none of its snapshots: seen here, it would be taken for
    something that came later, and be removed."""
    home = Path(settings.home)
    loaded = await to_thread.run_sync(lambda: load_policy(places.workspace, home=home))
    adopted = await still_adopted(log, digest, loaded)
    return await to_thread.run_sync(without_denied, places, adopted.policy)
