"""Chooses the sessions that a dream reads: the newest ones, except evals and dreams, that no dream
of the store has read."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from mainspring.core.events import SessionCreated
from mainspring.improve.dreams.dream_log import list_dreams, read_dream
from mainspring.improve.dreams.dreamer import MAX_SESSIONS
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.runtime.memory.learning.extraction import is_learned_from

DUE_SESSIONS = 5  # new ones that make a dream due
DUE_AFTER = timedelta(hours=24)  # since the last dream
_PAGE = 200  # sessions read at once


async def new_sessions(log: SessionLog, read_ids: Collection[str]) -> list[str]:
    """The ids of the sessions to read, newest first. Nothing is learned from foreign ones."""
    session_ids: list[str] = []
    before: SessionRow | None = None
    while page := await log.sessions(before=before, limit=_PAGE):
        before = page[-1]
        for row in page:
            if row.id not in read_ids and log.is_own(row) and await _is_readable(log, row):
                session_ids.append(row.id)
                if len(session_ids) == MAX_SESSIONS:
                    return session_ids
    return session_ids


async def sessions_read(log: SessionLog, store: str) -> tuple[set[str], datetime | None]:
    """The sessions that the dreams of a store have read, and when the last one began."""
    dreams = await list_dreams(log, store)
    read_ids = {session_id for dream in dreams for session_id in dream.session_ids}
    last = (await read_dream(log, dreams[-1].dream_id)).time if dreams else None
    return read_ids, last


def is_due(last: datetime | None, session_count: int, now: datetime) -> bool:
    """Whether it is time to dream: a day after the last dream, or after five new sessions."""
    if not session_count:
        return False
    return session_count >= DUE_SESSIONS or (last is not None and now - last >= DUE_AFTER)


async def _is_readable(log: SessionLog, row: SessionRow) -> bool:
    first = await log.read(row.id, limit=1)
    return any(
        isinstance(event.payload, SessionCreated) and is_learned_from(event.payload)
        for event in first
    )
