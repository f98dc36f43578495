"""What a session left on disk, according to its log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

from mainspring.core.facts import SandboxOpened, WorkspaceRestored, WorkspaceSnapshotted
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow

_TYPES = ("sandbox.opened", "workspace.snapshotted", "workspace.restored")
_PAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFootprint:
    """Its workspaces and its snapshots of them; read it before the session is deleted."""

    session_id: str
    workspaces: frozenset[str]
    snapshots: frozenset[str]


async def read_footprint(log: SessionLog, session_id: str) -> SessionFootprint:
    payloads = [event.payload for event in await log.read(session_id, types=_TYPES)]
    named = (WorkspaceSnapshotted, WorkspaceRestored)
    return SessionFootprint(
        session_id=session_id,
        workspaces=frozenset(
            payload.workspace for payload in payloads if isinstance(payload, SandboxOpened)
        ),
        snapshots=frozenset(payload.snapshot for payload in payloads if isinstance(payload, named)),
    )


async def unused_snapshots(log: SessionLog, gone: Iterable[SessionFootprint]) -> frozenset[str]:
    """Snapshots of deleted sessions that no other session can return to."""
    named = frozenset[str]().union(*(item.snapshots for item in gone))
    if named:
        async for session in _sessions(log):
            named -= (await read_footprint(log, session.id)).snapshots
    return named


async def _sessions(log: SessionLog) -> AsyncGenerator[SessionRow, None]:
    before: SessionRow | None = None
    while page := await log.sessions(before=before, limit=_PAGE):
        for session in page:
            yield session
        before = page[-1]
