"""A session's events in pages, in both directions, at a cost that does not depend on the length of
the log. Events that wait to be processed come after those in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.log.event_chain import to_event
from mainspring.log.session_log import ENDLESS, SessionLog
from mainspring.log.store import EventRange, InboxItem
from mainspring.service.sessions.events.wire_events import (
    CROSS_POSTED,
    PUBLIC_TYPES,
    EventRenderer,
    EventView,
    RenderedEvent,
    WireEvent,
    logged_types,
)
from mainspring.service.storage.pagination import (
    Limit,
    Page,
    created_bounds,
    decode_cursor,
    encode_cursor,
)

MAX_READ = 20_000
"""The maximum number of events that one request reads; after that, its page is short."""
_CHUNK = 1000  # events read at once
_CONFIRMATION = "user.tool_confirmation"
"""Shown only once it is in the log: on seeing it, a client that runs the call would run it."""
_LAST = ENDLESS - 1
_CursorType = tuple[Literal["seq", "inbox"], Annotated[int, Meta(ge=0, le=ENDLESS)]]


class ListEvents(Struct, frozen=True, kw_only=True):
    created_at_gt: datetime | None = None
    created_at_gte: datetime | None = None
    created_at_lt: datetime | None = None
    created_at_lte: datetime | None = None
    limit: Limit = 100
    order: Literal["asc", "desc"] = "asc"
    page: str | None = None
    types: tuple[str, ...] = ()
    include: tuple[Literal["internal"], ...] = ()
    """An extension: `internal` also shows events that the Managed Agents API does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """The filters of a list of events."""

    view: EventView
    types: frozenset[str] | None
    since: datetime | None
    until: datetime | None
    is_backwards: bool
    limit: int

    @property
    def logged(self) -> frozenset[str] | None:
        """The requested types, by their names in the log."""
        return None if self.types is None else logged_types(self.types)

    def names(self, event: RenderedEvent) -> bool:
        return self.types is None or event.wire["type"] in self.types

    def is_early(self, moment: datetime) -> bool:
        return self.since is not None and moment < self.since

    def is_late(self, moment: datetime) -> bool:
        return self.until is not None and moment > self.until

    @property
    def is_timed(self) -> bool:
        return self.since is not None or self.until is not None


def event_query(view: EventView, request: ListEvents) -> EventQuery:
    """Raises: InvalidInput."""
    types = frozenset(request.types) or (None if view.is_internal else PUBLIC_TYPES)
    if not view.is_internal and types is not None and (unknown := types - PUBLIC_TYPES):
        raise InvalidInput(f"types: {sorted(unknown)[0]} is not a type of event")
    since, until = created_bounds(request)
    return EventQuery(
        view=view,
        types=types,
        since=since,
        until=until,
        is_backwards=request.order == "desc",
        limit=request.limit,
    )


class EventPages:
    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._wire = EventRenderer(log)

    async def page(self, query: EventQuery, cursor: str | None) -> Page[WireEvent]:
        """Raises: InvalidInput: a cursor of another list; SessionNotFound."""
        waiting = await self._waiting(query)  # before the log: an item may enter it meanwhile
        if query.is_backwards:
            return await self._newest_first(query, waiting, cursor)
        return await self._oldest_first(query, waiting, cursor)

    async def _oldest_first(
        self, query: EventQuery, waiting: Sequence[InboxItem], cursor: str | None
    ) -> Page[WireEvent]:
        kind, place = decode_cursor(cursor, _CursorType) if cursor else ("seq", 0)
        rendered: list[WireEvent] = []
        next_page: str | None = None
        if kind == "seq":
            rendered, last = await self._from_log(query, place)
            if last is not None:
                return Page(data=rendered, next_page=encode_cursor("seq", last))
        else:
            waiting = [item for item in waiting if item.position > place]
        logged_ids = {event["id"] for event in rendered}
        waiting = [item for item in waiting if item.event_id not in logged_ids]
        room = query.limit - len(rendered)
        rendered += [await self._pending_event(query, item) for item in waiting[:room]]
        if len(waiting) > room:
            place = waiting[room - 1].position if room else waiting[0].position - 1
            next_page = encode_cursor("inbox", place)
        return Page(data=rendered, next_page=next_page)

    async def _newest_first(
        self, query: EventQuery, waiting: Sequence[InboxItem], cursor: str | None
    ) -> Page[WireEvent]:
        kind, place = decode_cursor(cursor, _CursorType) if cursor else ("inbox", _LAST)
        newest = [item for item in reversed(waiting) if kind == "inbox" and item.position < place]
        rendered = [await self._pending_event(query, item) for item in newest[: query.limit]]
        if len(newest) >= query.limit:
            return Page(
                data=rendered, next_page=encode_cursor("inbox", newest[query.limit - 1].position)
            )
        start = place if kind == "seq" else ENDLESS
        pending_ids = {event["id"] for event in rendered}
        logged, last = await self._from_log(query, start, room=query.limit - len(rendered))
        rendered += [event for event in logged if event["id"] not in pending_ids]
        return Page(data=rendered, next_page=None if last is None else encode_cursor("seq", last))

    async def _waiting(self, query: EventQuery) -> list[InboxItem]:
        view = query.view
        if query.is_timed:
            return []  # waiting events have no time yet
        items = await self._log.store.pending(view.session_id, types=query.types)
        thread = view.thread_id or view.main_thread_id
        return [
            item
            for item in items
            if view.shows(item.type) and item.type != _CONFIRMATION
            if item.thread_id == thread or (view.thread_id is None and item.type in CROSS_POSTED)
        ]

    async def _pending_event(self, query: EventQuery, item: InboxItem) -> WireEvent:
        return await self._wire.pending(item, main_thread_id=query.view.main_thread_id)

    async def _from_log(
        self, query: EventQuery, place: int, *, room: int | None = None
    ) -> tuple[list[WireEvent], int | None]:
        """At most `room` events after a position, and the position to continue at if there are
        more."""
        room = query.limit if room is None else room
        place = await self._skipped(query, place)
        visible: list[WireEvent] = []
        read_count = 0
        while read_count < MAX_READ:
            size = _CHUNK if read_count else min(_CHUNK, room + 1)
            chunk = await self._chunk(query, place, size)
            fitting, is_over = _within_times(query, chunk)
            rendered = await self._wire.render(query.view, fitting)
            for item in filter(query.names, rendered.events):
                if len(visible) == room:
                    return visible, place
                visible.append(item.wire)
                place = item.event.seq
            if is_over or len(chunk) < size or (rendered.held and not query.is_backwards):
                return visible, None  # nothing is shown after a call that is held back
            if len(visible) < room:
                place = chunk[-1].seq
            read_count += len(chunk)
        return visible, place

    async def _chunk(self, query: EventQuery, place: int, size: int) -> list[Event]:
        view = query.view
        events: list[Event] = []
        segments = await self._log.lineage(view.session_id)
        for segment in reversed(segments) if query.is_backwards else segments:
            after = segment.after if query.is_backwards else max(place, segment.after)
            upto = min(place - 1, segment.upto) if query.is_backwards else segment.upto
            if after >= upto or len(events) == size:
                continue
            rows = await self._log.store.read(
                EventRange(
                    session_id=segment.session_id,
                    after=after,
                    upto=upto,
                    types=query.logged,
                    threads=None if view.thread_id is None else frozenset([view.thread_id]),
                    limit=size - len(events),
                    backwards=query.is_backwards,
                )
            )
            events += [to_event(segment.session_id, row) for row in rows]
        return events

    async def _skipped(self, query: EventQuery, place: int) -> int:
        """The position after skipping events that are too early, or too late, by bisection: times
        in a log only grow."""
        edge = query.until if query.is_backwards else query.since
        if edge is None:
            return place
        low, high = 0, (await self._log.session(query.view.session_id)).head.seq
        while low < high:  # the first event at or after the edge is in low + 1 .. high + 1
            middle = (low + high + 1) // 2
            [event] = await self._log.read(query.view.session_id, after=middle - 1, limit=1)
            is_before = (
                not query.is_late(event.time) if query.is_backwards else query.is_early(event.time)
            )
            low, high = (middle, high) if is_before else (low, middle - 1)
        return min(place, low + 1) if query.is_backwards else max(place, low)


def _within_times(query: EventQuery, chunk: Sequence[Event]) -> tuple[list[Event], bool]:
    """The events within the requested times, and whether all further ones are outside."""
    fitting = [
        event for event in chunk if not query.is_early(event.time) and not query.is_late(event.time)
    ]
    if not chunk:
        return fitting, True
    last = chunk[-1].time
    return fitting, query.is_early(last) if query.is_backwards else query.is_late(last)
