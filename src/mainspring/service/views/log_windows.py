"""A session's log in windows, bounded in bytes, backwards from its end or forwards from an event.
Long texts are cut; each event can be read whole on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from mainspring.core.clock import from_micros
from mainspring.core.envelope import Event
from mainspring.core.errors import BlobNotFound, InvalidInput, NotFound
from mainspring.core.ids import ThreadId
from mainspring.core.sender import Sender
from mainspring.log.event_chain import to_event
from mainspring.log.search import search
from mainspring.log.session_log import ENDLESS, SessionLog
from mainspring.log.store import EventRange, InboxItem
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.events.wire_events import EventView, RenderedEvent, RenderedEvents
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Page
from mainspring.service.views.listed_sessions import ListedSession, ListedSessions

DEFAULT_TEXT_CHARS = 2000  # of one text before it is cut for the page
_MAX_ITEMS = 100
"""Items of one list or object that a cut payload shows."""
_CHUNK = 50
"""Events read at a time: each may have a body of megabytes."""
_MAX_SCANNED = 20_000
"""Events that one request reads; after that, its window is short."""
_OVERHEAD_BYTES = 400
"""Of an event in the response, beside its payload."""

_ENCODER = msgspec.json.Encoder()
TextChars = Annotated[int, Meta(ge=100, le=100_000)]


class WindowQuery(Struct, frozen=True, kw_only=True):
    before: Annotated[int, Meta(ge=1)] | None = None
    """Only events before this one, from the last one backwards."""
    after: Annotated[int, Meta(ge=0)] | None = None
    """Only events after this one, from the first one forwards."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200
    max_bytes: Annotated[int, Meta(ge=1000, le=1_000_000)] = 100_000
    """Where the window ends; it has at least one event."""
    max_text: TextChars = DEFAULT_TEXT_CHARS
    """Longer texts are cut after so many characters."""
    thread_id: ThreadId | None = None
    types: tuple[str, ...] = ()


class LogEvent(Struct, frozen=True, kw_only=True):
    """An event of the log."""

    seq: int
    id: str
    type: str
    time: datetime
    thread_id: str
    sender: Sender | None
    hash: str
    """Of the event, which contains the hash of the one before it."""
    bytes: int
    """The size of the whole payload."""
    is_cut: bool
    """Whether texts of the payload were cut."""
    payload: dict[str, Any]


class WaitingEvent(Struct, frozen=True, kw_only=True):
    """An event that a client sent and no worker has processed yet."""

    id: str
    type: str
    time: datetime
    thread_id: str
    payload: dict[str, Any]


class LogWindow(Struct, frozen=True, kw_only=True):
    session: ListedSession
    main_thread_id: str
    data: Sequence[LogEvent]
    """In the order of the log."""
    waiting: Sequence[WaitingEvent]
    has_before: bool
    has_after: bool


class SearchLog(Struct, frozen=True, kw_only=True):
    query: Annotated[str, Meta(min_length=1, max_length=500)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 50


class FoundEvent(Struct, frozen=True, kw_only=True):
    seq: int
    snippet: str


@dataclass(frozen=True, slots=True)
class LogWindows:
    sessions: Sessions
    listed: ListedSessions

    @property
    def log(self) -> SessionLog:
        return self.sessions.log

    async def window(self, principal: Principal, session_id: str, query: WindowQuery) -> LogWindow:
        """Raises: NotFound: the session, or it has no such thread; InvalidInput: both `before` and
        `after`."""
        if query.before is not None and query.after is not None:
            raise InvalidInput("before, after: give one of them")
        session = await self.sessions.find(principal, session_id)
        pending = await self.log.store.pending(session_id)
        events, is_over = await self._events(session_id, query)
        if query.thread_id is not None and not events:
            await self._check_thread(session_id, query.thread_id)
        first, last = (events[0].seq, events[-1].seq) if events else (0, query.after or 0)
        head = session.row.head.seq
        is_backwards = query.after is None
        return LogWindow(
            session=await self.listed.line(session),
            main_thread_id=session.row.thread_id,
            data=events,
            waiting=[_waiting(item, query.max_text) for item in pending],
            has_before=not is_over if is_backwards else first > 1,
            has_after=(bool(events) and last < head and query.before is not None)
            if is_backwards
            else not is_over,
        )

    async def _check_thread(self, session_id: str, thread_id: str) -> None:
        """Each thread has an event of its own, the one that created it."""
        if not await self._chunk(session_id, WindowQuery(thread_id=thread_id), ENDLESS):
            raise NotFound("thread", thread_id)

    async def _events(self, session_id: str, query: WindowQuery) -> tuple[list[LogEvent], bool]:
        """The events, and whether there are no more in that direction."""
        is_backwards = query.after is None
        place = (query.before or ENDLESS) if is_backwards else (query.after or 0)
        found: list[LogEvent] = []
        size = scanned = 0
        while scanned < _MAX_SCANNED:
            chunk = await self._chunk(session_id, query, place)
            scanned += len(chunk)
            for event in chunk:
                item = log_event(event, query.max_text)
                size += len(_ENCODER.encode(item.payload)) + _OVERHEAD_BYTES
                if found and (size > query.max_bytes or len(found) == query.limit):
                    return (found[::-1] if is_backwards else found), False
                found.append(item)
            if len(chunk) < _CHUNK:
                return (found[::-1] if is_backwards else found), True
            place = chunk[-1].seq
        return (found[::-1] if is_backwards else found), False

    async def _chunk(self, session_id: str, query: WindowQuery, place: int) -> list[Event]:
        is_backwards = query.after is None
        segments = await self.log.lineage(session_id)
        events: list[Event] = []
        for segment in reversed(segments) if is_backwards else segments:
            after = segment.after if is_backwards else max(place, segment.after)
            upto = min(place - 1, segment.upto) if is_backwards else segment.upto
            if after >= upto or len(events) == _CHUNK:
                continue
            rows = await self.log.store.read(
                EventRange(
                    session_id=segment.session_id,
                    after=after,
                    upto=upto,
                    types=frozenset(query.types) or None,
                    threads=None if query.thread_id is None else frozenset([query.thread_id]),
                    limit=_CHUNK - len(events),
                    backwards=is_backwards,
                )
            )
            events += [to_event(segment.session_id, row) for row in rows]
        return events

    async def body(self, principal: Principal, session_id: str, seq: int) -> bytes:
        """The whole payload of one event, as stored. Raises: NotFound."""
        row = await self.sessions.row(principal, session_id)
        if 1 <= seq <= row.head.seq:
            for event in await self.log.read(session_id, after=seq - 1, limit=1):
                return event.body
        raise NotFound("event", str(seq))

    async def search(
        self, principal: Principal, session_id: str, request: SearchLog
    ) -> Page[FoundEvent]:
        """Events of the session that have a word of the query, oldest first. Raises: NotFound."""
        await self.sessions.row(principal, session_id)
        hits = await search(
            self.log, request.query, session_id=session_id, limit=request.limit, is_loose=True
        )
        found = [FoundEvent(seq=hit.seq, snippet=hit.snippet) for hit in hits]
        return Page(data=sorted(found, key=lambda item: item.seq))

    async def blob(self, principal: Principal, session_id: str, digest: str) -> bytes:
        """A blob that the session refers to. Raises: NotFound."""
        await self.sessions.row(principal, session_id)
        try:
            for segment in await self.log.lineage(session_id):
                if digest in await self.log.store.blobs(segment.session_id):
                    return await self.log.blob(digest)
        except BlobNotFound:
            pass
        raise NotFound("blob", digest)


@dataclass(frozen=True, slots=True)
class LogRenderer:
    """Renders all events of a session as `LogEvent`, for streams."""

    log: SessionLog
    max_text: int
    message_name: str = "log_event"

    async def render(self, view: EventView, events: Sequence[Event]) -> RenderedEvents:
        items = [
            RenderedEvent(event, msgspec.to_builtins(log_event(event, self.max_text)))
            for event in events
            if view.thread_id in (None, event.thread_id)
        ]
        return RenderedEvents(items, None)


def log_event(event: Event, max_text: int) -> LogEvent:
    payload, is_cut = _payload(event.body, max_text)
    return LogEvent(
        seq=event.seq,
        id=event.id,
        type=event.type,
        time=event.time,
        thread_id=event.thread_id,
        sender=event.sender,
        hash=event.digest().hex(),
        bytes=len(event.body),
        is_cut=is_cut,
        payload=payload,
    )


def _waiting(item: InboxItem, max_text: int) -> WaitingEvent:
    payload, _ = _payload(item.body.encode(), max_text)
    return WaitingEvent(
        id=item.event_id,
        type=item.type,
        time=from_micros(item.time),
        thread_id=item.thread_id,
        payload=payload,
    )


def _payload(body: bytes, max_text: int) -> tuple[dict[str, Any], bool]:
    payload = cast("dict[str, Any]", msgspec.json.decode(body))
    payload.pop("type", None)
    if len(body) <= max_text:
        return payload, False
    cutter = _Cutter(max_text)
    return cutter.cut_object(payload), cutter.is_cut


class _Cutter:
    """Cuts long texts, and lists and objects with many items."""

    def __init__(self, max_text: int) -> None:
        self.max_text = max_text
        self.is_cut = False

    def cut(self, value: object) -> object:
        match value:
            case str():
                return self._cut_text(value)
            case list():
                items = cast("list[object]", value)
                self.is_cut = self.is_cut or len(items) > _MAX_ITEMS
                return [self.cut(item) for item in items[:_MAX_ITEMS]]
            case dict():
                return self.cut_object(cast("dict[str, object]", value))
            case _:
                return value

    def cut_object(self, fields: Mapping[str, object]) -> dict[str, Any]:
        self.is_cut = self.is_cut or len(fields) > _MAX_ITEMS
        names = list(fields)[:_MAX_ITEMS]
        return {self._cut_text(name): self.cut(fields[name]) for name in names}

    def _cut_text(self, text: str) -> str:
        if len(text) <= self.max_text:
            return text
        self.is_cut = True
        return f"{text[: self.max_text]}…"
