"""A session as one line: what it is, what it does now or why it waits, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from mainspring.core import events
from mainspring.core.clock import from_micros
from mainspring.core.envelope import event_types
from mainspring.core.errors import NotFound, SessionNotFound
from mainspring.core.sender import UNKNOWN_ORIGIN, OriginType
from mainspring.log.lru_cache import LruCache
from mainspring.log.search import search
from mainspring.log.session_status import ThreadStatus
from mainspring.log.store import SessionRow, SessionScope
from mainspring.runtime.session.activity_line import WaitsFor, activity_line
from mainspring.runtime.skills.substitution import typed_text
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.session_listing import ListSessions, TwoWayPage
from mainspring.service.sessions.session_view import LoadedSession
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Page
from mainspring.service.views.local_records import LOCAL_TENANT

_TITLE_CHARS = 120  # of a session without a title
_MESSAGES = event_types(events.UserMessage)
_CACHED_TITLES = 10_000  # sessions


class ListedSession(Struct, frozen=True, kw_only=True):
    """A session in a list."""

    id: str
    title: str | None
    """Its title, or the beginning of its first message."""
    agent_id: str
    agent_name: str
    agent_version: int
    status: ThreadStatus
    stop_reason: str | None
    """Why it stopped the last time; see `session.status_idle`."""
    activity: str
    """What it does now, or why it waits; see `GET /v1/mainspring/activity`."""
    waits_for: WaitsFor | None
    since: datetime
    """Since when it does that."""
    waiting: int
    """How many of its calls wait for a person."""
    threads: int
    cost_usd: float
    input_tokens: int
    output_tokens: int
    seq: int
    """The number of its last event."""
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None
    origin: OriginType
    parent_id: str | None
    """The session that it was forked from."""


class SearchSessions(Struct, frozen=True, kw_only=True):
    query: Annotated[str, Meta(min_length=1, max_length=500)]
    """Words that must all occur in one event."""
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class FoundSession(Struct, frozen=True, kw_only=True):
    """A session with an event that a search found."""

    session: ListedSession
    seq: int
    """The number of the event."""
    snippet: str


@dataclass(frozen=True, slots=True)
class ListedSessions:
    sessions: Sessions
    _titles: LruCache[str, str] = field(default_factory=lambda: LruCache(_CACHED_TITLES))

    async def page(self, principal: Principal, request: ListSessions) -> TwoWayPage[ListedSession]:
        """Raises: InvalidInput."""
        page = await self.sessions.loaded_page(principal, request)
        await self._read_openings([item.row for item in page.data if not item.record.title])
        return TwoWayPage(
            data=[await self.line(item) for item in page.data],
            next_page=page.next_page,
            prev_page=page.prev_page,
        )

    async def get(self, principal: Principal, session_id: str) -> ListedSession:
        """Raises: NotFound."""
        session = await self.sessions.find(principal, session_id)
        if not session.record.title:
            await self._read_openings([session.row])
        return await self.line(session)

    async def find(
        self, principal: Principal, session_ids: Sequence[str]
    ) -> tuple[list[ListedSession], list[str]]:
        """Those of these sessions that the principal may see, and the ids of the others."""
        lines: list[ListedSession] = []
        missing: list[str] = []
        for session_id in session_ids:
            try:
                lines.append(await self.get(principal, session_id))
            except (NotFound, SessionNotFound):
                missing.append(session_id)
        return lines, missing

    async def search(self, principal: Principal, request: SearchSessions) -> Page[FoundSession]:
        """The best event of each session. Raises: InvalidInput: there is no word in the query."""
        is_local = principal.tenant == LOCAL_TENANT
        scope = SessionScope(tenant=None if is_local else principal.tenant)
        hits = await search(
            self.sessions.log, request.query, limit=5 * request.limit, is_loose=True, scope=scope
        )
        found: dict[str, FoundSession] = {}
        for hit in hits:
            if hit.session_id in found:
                continue
            lines, _ = await self.find(principal, [hit.session_id])
            for line in lines:
                found[line.id] = FoundSession(session=line, seq=hit.seq, snippet=hit.snippet)
            if len(found) == request.limit:
                break
        return Page(data=list(found.values()))

    async def line(self, session: LoadedSession) -> ListedSession:
        record, projection, row = session.record, session.projection, session.row
        main = projection.threads.get(projection.main_thread_id)
        usage = projection.usage
        waiting = [call for call in projection.calls if call.asked]
        activity = activity_line(
            row, await self.sessions.log.activity(row), has_work=session.has_pending_input
        )
        cached = usage.cache_creation_input_tokens + usage.cache_read_input_tokens
        return ListedSession(
            id=record.id,
            title=record.title or self._titles.get(record.id),
            agent_id=record.agent.id,
            agent_name=record.agent.name,
            agent_version=record.agent.version,
            status=session.status,
            stop_reason=None if main is None else main.stop_reason,
            activity="archived" if record.archived_at else activity.text,
            waits_for=activity.waits_for,
            since=activity.since,
            waiting=len(waiting),
            threads=len(projection.threads),
            cost_usd=float(projection.spent.cost_usd),
            input_tokens=usage.input_tokens + cached,
            output_tokens=usage.output_tokens,
            seq=row.head.seq,
            created_at=record.created_at,
            updated_at=max(record.updated_at, from_micros(row.updated)),
            archived_at=record.archived_at,
            origin=(record.origin or UNKNOWN_ORIGIN).type,
            parent_id=row.parent_id,
        )

    async def _read_openings(self, rows: Sequence[SessionRow]) -> None:
        """The beginnings of the first messages, in one statement for many sessions."""
        new = [(row, 0) for row in rows if self._titles.get(row.id) is None]
        for row, log in await self.sessions.log.read_many(new, types=_MESSAGES, limit=1):
            for event in log:
                if isinstance(event.payload, events.UserMessage):
                    title = _shortened(typed_text(event.payload.content), _TITLE_CHARS)
                    self._titles.put(row.id, title)


def _shortened(text: str, chars: int) -> str:
    line = " ".join(text[: 4 * chars].split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
