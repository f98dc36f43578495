"""Which sessions a dream reads: the newest that people have had, not evals or dreams, and that no
dream of the store has read."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from mainspring.core.events import SessionCreated
from mainspring.improve.dreams.dream_log import list_dreams, read_dream
from mainspring.improve.dreams.dreamer import MAX_SESSIONS
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.runtime.memory.extraction import is_learned_from

DUE_SESSIONS = 5
DUE_AFTER = timedelta(hours=24)
_PAGE = 200


async def new_sessions(log: SessionLog, known: Collection[str]) -> list[str]:
    """Newest first."""
    chosen: list[str] = []
    before: SessionRow | None = None
    while len(chosen) < MAX_SESSIONS and (page := await log.sessions(before=before, limit=_PAGE)):
        before = page[-1]
        for row in page:
            if row.id not in known and len(chosen) < MAX_SESSIONS and await _is_chosen(log, row):
                chosen.append(row.id)
    return chosen


async def sessions_read(log: SessionLog, store: str) -> tuple[set[str], datetime | None]:
    """What the dreams of a store have read, and when the last one began."""
    dreams = await list_dreams(log, store)
    known = {session_id for dream in dreams for session_id in dream.session_ids}
    last = (await read_dream(log, dreams[-1].dream_id)).time if dreams else None
    return known, last


def is_due(last: datetime | None, new: int, now: datetime) -> bool:
    """Whether it is time to dream: a day after the last dream, or after five new sessions."""
    if not new:
        return False
    return new >= DUE_SESSIONS or (last is not None and now - last >= DUE_AFTER)


async def _is_chosen(log: SessionLog, row: SessionRow) -> bool:
    first = await log.read(row.id, limit=1)
    return any(
        isinstance(event.payload, SessionCreated) and is_learned_from(event.payload)
        for event in first
    )
