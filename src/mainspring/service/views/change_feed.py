"""What changed in a tenant: its sessions, and the approvals that wait. Read from the store, so that
it includes the changes of all processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import anyio
import msgspec
from msgspec import Meta, Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import NotFound, StoreFailed
from mainspring.log.lru_cache import LruCache
from mainspring.log.records import SESSION_KIND, RecordQuery, Records
from mainspring.log.store import SessionRow
from mainspring.service.access.principal import Principal
from mainspring.service.approvals.approval_record import KIND as APPROVAL_KIND
from mainspring.service.sessions.events.event_streams import StreamMessage
from mainspring.service.views.listed_sessions import ListedSession, ListedSessions

_POLL_SECONDS = 0.5  # between looks for changes of other processes
_OVERLAP_MICROS = 5_000_000
"""Changes are read again for so long: a writer may commit after another one that began later."""
_MAX_CHANGED = 1000
"""Changed sessions that one answer names; with more, its reader starts anew."""
_MAX_WAITING = 1000  # approvals that one answer names
_CACHED_TENANTS = 100_000  # of sessions
_MAX_SENT = 20_000
"""Sessions of which a stream remembers what it has sent."""
_ENCODER = msgspec.json.Encoder()


class ChangesQuery(Struct, frozen=True, kw_only=True):
    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    """The `cursor` of the last answer; without it, only changes from now on."""


class Changes(Struct, frozen=True, kw_only=True):
    cursor: int
    """Continues after these changes, at any server. It may repeat some of them."""
    sessions: Sequence[ListedSession] = ()
    deleted_session_ids: Sequence[str] = ()
    approvals: Sequence[str] | None = None
    """The ids of all approvals that wait; `null` if they have not changed."""
    is_reset: bool = False
    """There were too many changes: read your lists anew."""


@dataclass(slots=True)
class ChangeFeed:
    listed: ListedSessions
    clock: Clock = clocks.now
    monotonic: Callable[[], float] = time.monotonic
    _tenants: LruCache[str, str] = field(
        default_factory=lambda: LruCache(_CACHED_TENANTS), init=False
    )
    _rows: tuple[int, list[SessionRow]] = field(default=(0, []), init=False)
    """The last read: since when, and what had changed."""
    _read_at: float = field(default=float("-inf"), init=False)
    _lock: anyio.Lock = field(default_factory=anyio.Lock, init=False)
    _streams: set[ChangeStream] = field(default_factory=set["ChangeStream"], init=False)
    is_closed: bool = field(default=False, init=False)

    def now(self) -> int:
        return to_micros(self.clock())

    async def changes(self, principal: Principal, query: ChangesQuery) -> Changes:
        """The changes since the last answer, without waiting for any."""
        stream = ChangeStream(self, principal, query.after)
        return await stream.read() or Changes(cursor=stream.cursor)

    def open(self, principal: Principal, after: int | None) -> ChangeStream:
        stream = ChangeStream(self, principal, after)
        self._streams.add(stream)
        if self.is_closed:
            stream.end()
        return stream

    def release(self, stream: ChangeStream) -> None:
        self._streams.discard(stream)

    def close(self) -> None:
        """End all streams, including those opened from now on."""
        self.is_closed = True
        for stream in self._streams:
            stream.end()

    async def rows(self, since: int) -> list[SessionRow]:
        """Sessions that changed since then. Streams share what one of them has read."""
        async with self._lock:
            first, rows = self._rows
            if self.monotonic() - self._read_at < _POLL_SECONDS / 2 and first <= since:
                return [row for row in rows if row.updated >= since]
            store = self.listed.sessions.log.store
            rows = await store.changed(since=since, limit=_MAX_CHANGED + 1)
            if len(rows) <= _MAX_CHANGED:
                self._rows, self._read_at = (since, rows), self.monotonic()
            return rows

    async def of_tenant(self, tenant: str, rows: Sequence[SessionRow]) -> list[SessionRow]:
        return [row for row in rows if await self._tenant(row.id) == tenant]

    async def _tenant(self, session_id: str) -> str | None:
        if (tenant := self._tenants.get(session_id)) is None:
            try:
                tenant = (await self.records.get(SESSION_KIND, session_id)).tenant
            except NotFound:
                return None
            self._tenants.put(session_id, tenant)
        return tenant

    @property
    def records(self) -> Records:
        return self.listed.sessions.log.store.records

    async def waiting(self, principal: Principal) -> list[str]:
        """The ids of approvals that wait, the longest waiting first."""
        query = RecordQuery(
            kind=APPROVAL_KIND,
            tenant=principal.tenant,
            label=principal.agent_id,
            is_archived=False,
            order="asc",
            limit=_MAX_WAITING,
        )
        return [row.id for row in await self.records.list(query)]


class ChangeStream:
    """The changes for one reader."""

    def __init__(self, feed: ChangeFeed, principal: Principal, after: int | None) -> None:
        self._feed = feed
        self._principal = principal
        self.cursor = feed.now() if after is None else after
        self._begins_now = after is None
        self._sent: LruCache[str, tuple[int, int]] = LruCache(_MAX_SENT)
        """The state of each session that was sent."""
        self._waiting: list[str] | None = None
        self._is_first = True
        self._is_stopping = False
        self.is_over = False
        self._wakeup = anyio.Event()

    async def next(self) -> list[StreamMessage]:
        """Wait for the next changes; an empty list after `stop_waiting`, or if it is over."""
        while not self.is_over:
            try:
                changes = await self.read()
            except StoreFailed:  # tried again; nothing is lost
                changes = None
            if changes is not None:
                return [StreamMessage("changes", _ENCODER.encode(changes), changes.cursor)]
            if self._is_stopping:
                self._is_stopping = False
                return []
            with anyio.move_on_after(_POLL_SECONDS):
                await self._wakeup.wait()
        return []

    def stop_waiting(self) -> None:
        self._is_stopping = True

    def end(self) -> None:
        self.is_over = True
        self._wakeup.set()

    async def read(self) -> Changes | None:
        """The changes since the last read; `None` if there are none. The first read always gives
        an answer, so that a reader knows at once that it is connected."""
        started = self._feed.now()
        rows = await self._feed.rows(self.cursor - _OVERLAP_MICROS)
        is_reset = len(rows) > _MAX_CHANGED
        own = [] if is_reset else await self._feed.of_tenant(self._principal.tenant, rows)
        new = [row for row in own if self._sent.get(row.id) != (row.head.seq, row.updated)]
        if self._is_first and self._begins_now:
            new = [row for row in new if row.updated >= self.cursor]
        lines, missing = await self._feed.listed.find(self._principal, [row.id for row in new])
        for row in own:
            self._sent.put(row.id, (row.head.seq, row.updated))
        # not further than the present: clocks of machines differ, and a change may come late
        self.cursor = max(self.cursor, min(started, max((r.updated for r in rows), default=0)))
        waiting = await self._feed.waiting(self._principal)
        is_new = waiting != self._waiting
        if not (lines or is_new or is_reset or self._is_first):
            return None
        self._waiting, self._is_first = waiting, False
        if is_reset:
            self.cursor = started
        return Changes(
            cursor=self.cursor,
            sessions=lines,
            deleted_session_ids=missing if self._principal.agent_id is None else (),
            approvals=waiting if is_new else None,
            is_reset=is_reset,
        )
