"""The history of sessions: a fork has the events of its parent up to where it begins, and reads
them from there. Histories are cached; several sessions are read together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mainspring.core.envelope import Event
from mainspring.log.event_chain import to_event
from mainspring.log.store import EventRange, Row, SessionRow, Store

ENDLESS = 2**62  # above every sequence number
_CACHED_LINEAGES = 10_000  # sessions whose parents are remembered
_EVENTS_AT_ONCE = 1000
"""Events of one session that one statement reads together with those of others."""
_SESSIONS_AT_ONCE = 100
"""Sessions of one statement: together, it holds at most 100,000 events."""


class HistorySegment(NamedTuple):
    """A range of a session's history and the session that owns its events."""

    session_id: str
    after: int
    upto: int

    def page(self, after: int, limit: int) -> EventRange:
        return EventRange(
            session_id=self.session_id,
            after=max(after, self.after),
            upto=self.upto,
            limit=limit,
        )


class Lineages:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: dict[str, tuple[HistorySegment, ...]] = {}

    async def of(self, session_id: str) -> tuple[HistorySegment, ...]:
        """A session's history from the start: its ancestors' segments, then its own.

        Raises: SessionNotFound.
        """
        if cached := self._cached.get(session_id):
            return cached
        known: dict[str, SessionRow] = {}
        owner: str | None = session_id
        while owner is not None:
            known[owner] = row = await self._store.session(owner)
            owner = row.parent_id
        return self._lineage(known[session_id], known)

    async def of_many(
        self, sessions: Sequence[SessionRow]
    ) -> dict[str, tuple[HistorySegment, ...]]:
        """By id; the ancestors of all sessions are read together, a generation at a time."""
        known = {session.id: session for session in sessions}
        while unread := {
            row.parent_id
            for row in known.values()
            if row.parent_id and row.parent_id not in known and row.id not in self._cached
        }:
            parents = await self._store.rows([*unread])
            if not parents:
                break  # a parent cannot be deleted before its forks: they are gone as well
            known |= {row.id: row for row in parents}
        return {session.id: self._lineage(session, known) for session in sessions}

    def note_row(self, row: SessionRow) -> None:
        if row.parent_id is None:
            self._note(row.id, (HistorySegment(row.id, row.parent_seq, ENDLESS),))

    def forget(self, session_id: str) -> None:
        self._cached.pop(session_id, None)

    def _lineage(
        self, session: SessionRow, known: Mapping[str, SessionRow]
    ) -> tuple[HistorySegment, ...]:
        if cached := self._cached.get(session.id):
            return cached
        segments: list[HistorySegment] = []
        upto = ENDLESS
        owner: SessionRow | None = session
        while owner is not None:
            segments.append(HistorySegment(owner.id, owner.parent_seq, upto))
            upto = owner.parent_seq
            owner = None if owner.parent_id is None else known.get(owner.parent_id)
        lineage = tuple(reversed(segments))
        self._note(session.id, lineage)
        return lineage

    def _note(self, session_id: str, lineage: tuple[HistorySegment, ...]) -> None:
        if len(self._cached) >= _CACHED_LINEAGES:
            self._cached.clear()
        self._cached[session_id] = lineage


@dataclass(slots=True)
class SessionRead:
    """The events of one session that are read together with those of others."""

    segments: tuple[HistorySegment, ...]
    """Those that are not read yet."""
    after: int
    events: list[Event] = field(default_factory=list[Event])

    @property
    def event_range(self) -> tuple[str, int, int]:
        segment = self.segments[0]
        return segment.session_id, max(self.after, segment.after), segment.upto

    def take(self, rows: Sequence[Row], *, is_full: bool) -> None:
        """`is_full`: the segment may have more events."""
        self.events += [to_event(self.segments[0].session_id, row) for row in rows]
        if is_full:
            self.after = rows[-1].seq
        else:
            self.segments = self.segments[1:]


async def read_together(
    store: Store, reads: Sequence[SessionRead], *, types: frozenset[str], limit: int | None
) -> None:
    """Read the events of these types, at most `limit` of each session."""
    page = _EVENTS_AT_ONCE if limit is None else limit
    waiting = [*reads]
    while waiting:
        batch, waiting = waiting[:_SESSIONS_AT_ONCE], waiting[_SESSIONS_AT_ONCE:]
        ranges = [read.event_range for read in batch]
        by_read: list[list[Row]] = [[] for _ in batch]
        for index, row in await store.read_many(ranges, types=types, limit=page):
            by_read[index].append(row)
        for read, rows in zip(batch, by_read, strict=True):
            read.take(rows, is_full=len(rows) == page)
            if limit is not None and len(read.events) >= limit:
                del read.events[limit:]
            elif read.segments:
                waiting.append(read)
