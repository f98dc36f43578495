"""What deleted sessions leave on disk, and nobody needs any more: their folders and snapshots."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.sandbox.session_uids import release_session_uid
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.capabilities.workspace.tree import Tree
from mainspring.config import Settings
from mainspring.core.errors import HandsError, InvalidInput
from mainspring.core.facts import SandboxOpened, WorkspaceRestored, WorkspaceSnapshotted
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.wiring.environment import Places, places_of
from mainspring.wiring.shares import remove_below, remove_hands, remove_share, remove_transcripts
from mainspring.wiring.worktrees import GitWorktrees, place_of

_TYPES = ("sandbox.opened", "workspace.snapshotted", "workspace.restored")
_PAGE = 200
_ANY = "any"
"""Stands for an id where a path is made: what it is in, does not depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Where a session worked, and which states of it it named; to be read before it is deleted."""

    session_id: str
    workspaces: frozenset[str]
    snapshots: frozenset[str]


async def traces_of(log: SessionLog, session_id: str) -> Traces:
    payloads = [event.payload for event in await log.read(session_id, types=_TYPES)]
    named = (WorkspaceSnapshotted, WorkspaceRestored)
    return Traces(
        session_id=session_id,
        workspaces=frozenset(
            each.workspace for each in payloads if isinstance(each, SandboxOpened)
        ),
        snapshots=frozenset(each.snapshot for each in payloads if isinstance(each, named)),
    )


async def collect(settings: Settings, log: SessionLog, gone: Collection[Traces]) -> None:
    """Remove what these sessions, which are not in the log any more, had for themselves.

    Only what they named is forgotten: another log may keep snapshots in the same place.
    """
    unneeded = await _unneeded(log, gone)
    for traces in gone:
        await to_thread.run_sync(remove_share, traces.session_id)
        for places in _places(settings, traces):
            hands = places.state.parent
            await to_thread.run_sync(remove_hands, hands, traces.session_id)
            await to_thread.run_sync(remove_transcripts, places.transcripts, traces.session_id)
            await _put_away(places, traces.session_id)
            with suppress(HandsError, InvalidInput):  # they are kept for longer than they need be
                await _forget(places, traces.snapshots & unneeded)
        await to_thread.run_sync(release_session_uid, traces.session_id)


async def _put_away(places: Places, session_id: str) -> None:
    place = place_of(places, session_id)
    if await to_thread.run_sync(place.is_dir):
        with suppress(HandsError):  # somebody has to look at them
            await GitWorktrees(places.workspace, place).put_away()
            await to_thread.run_sync(remove_below, place.parent, session_id)


async def _unneeded(log: SessionLog, gone: Iterable[Traces]) -> frozenset[str]:
    """Snapshots that no session can go back to any more."""
    named = frozenset[str]().union(*(traces.snapshots for traces in gone))
    if named:
        async for session in _sessions(log):
            named -= (await traces_of(log, session.id)).snapshots
    return named


async def _sessions(log: SessionLog) -> AsyncGenerator[SessionRow, None]:
    before: SessionRow | None = None
    while page := await log.sessions(before=before, limit=_PAGE):
        for session in page:
            yield session
        before = page[-1]


def _places(settings: Settings, traces: Traces) -> list[Places]:
    found: list[Places] = []
    for workspace in sorted(traces.workspaces or {settings.folder}):
        with suppress(InvalidInput):  # there is no such folder any more
            found.append(places_of(settings, Path(workspace), _ANY))
    return found


async def _forget(places: Places, snapshots: Collection[str]) -> None:
    if snapshots and places.snapshots.is_dir():
        tree = Tree(places.workspace, hidden=places.hidden)
        await WorkspaceSnapshots(tree, places.snapshots).forget(snapshots)
