"""Projections of sessions, cached and continued: nobody folds an event twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mainspring.core.envelope import Event
from mainspring.harness.state.session_projection import PROJECTION_TYPES, SessionProjection
from mainspring.log.lru_cache import LruCache
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow

MAX_CACHED_BYTES = 64 << 20
"""Bytes of all cached projections of a process, as estimated: about 20,000 short sessions."""
_PROJECTION_BYTES, _THREAD_BYTES, _CALL_BYTES = 1500, 1000, 500
"""Bytes of a projection, a thread and a call without their texts, measured on CPython 3.11."""


def estimated_bytes(projection: SessionProjection) -> int:
    texts = [text for item in projection.metadata.items() for text in item]
    for outcome in projection.outcomes:
        texts += outcome.description, outcome.explanation or ""
    inputs = [call.input for call in projection.calls]
    shown = [item.request for item in projection.approvals]
    counted = len(projection.threads) * _THREAD_BYTES + len(inputs) * _CALL_BYTES
    return _PROJECTION_BYTES + counted + len(msgspec.json.encode((texts, inputs, shown)))


class Projections:
    """Each projection is continued from the position where it was last read."""

    def __init__(self, log: SessionLog, *, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._log = log
        self._cached: LruCache[str, SessionProjection] = LruCache(
            max_bytes, size_of=estimated_bytes
        )

    async def of(self, session: SessionRow) -> SessionProjection:
        """Raises: SessionNotFound: it was deleted in the meantime."""
        projection = self._cached.get(session.id) or SessionProjection()
        if projection.seq < session.head.seq:
            new = await self._log.read(session.id, after=projection.seq, types=PROJECTION_TYPES)
            projection = self._continue(projection, session, new)
        return projection

    async def of_many(self, sessions: Sequence[SessionRow]) -> dict[str, SessionProjection]:
        """By id, with a number of statements that does not depend on the number of sessions."""
        projections: dict[str, SessionProjection] = {}
        behind: list[tuple[SessionRow, int]] = []
        for session in sessions:
            projection = self._cached.get(session.id) or SessionProjection()
            projections[session.id] = projection
            if projection.seq < session.head.seq:
                behind.append((session, projection.seq))
        for session, new in await self._log.read_many(behind, types=PROJECTION_TYPES):
            projections[session.id] = self._continue(projections[session.id], session, new)
        return projections

    def _continue(
        self, projection: SessionProjection, session: SessionRow, new: Iterable[Event]
    ) -> SessionProjection:
        projection = projection.copy()  # other tasks may still use the cached one
        for event in new:
            projection.apply(event)
        projection.seq = max(projection.seq, session.head.seq)
        cached = self._cached.get(session.id)
        if cached is None or cached.seq < projection.seq:  # another task may have read further
            self._cached.put(session.id, projection)
        return projection

    def forget(self, session_id: str) -> None:
        self._cached.pop(session_id)


async def read_projection(log: SessionLog, session: SessionRow) -> SessionProjection:
    """For a reader that needs the projection of a session once."""
    projection = SessionProjection()
    for event in await log.read(session.id, types=PROJECTION_TYPES):
        projection.apply(event)
    projection.seq = max(projection.seq, session.head.seq)
    return projection
