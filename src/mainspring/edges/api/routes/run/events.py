"""`/v1/sessions/{session_id}/events`: send, list and stream events; and
`/v1/sessions/{session_id}/threads/{thread_id}/stream`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from aiohttp import web
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.edges.api.idempotency import IDEMPOTENCY_KEY
from mainspring.edges.api.route import ApiCall, Empty, RouteOptions, route
from mainspring.edges.api.sse import STREAM_TIMING, StreamTiming, send_stream
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.events.event_content import SendEvents
from mainspring.service.sessions.events.event_pages import EventPages, ListEvents, event_query
from mainspring.service.sessions.events.event_streams import EventStreams, StreamRequest
from mainspring.service.sessions.events.preview_deltas import PreviewKind
from mainspring.service.sessions.events.wire_events import EventView, WireEvent
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Page


class SentEvents(Struct, frozen=True, kw_only=True):
    data: Sequence[WireEvent]


@dataclass(frozen=True, slots=True)
class EventRoutes:
    sessions: Sessions
    event_sender: EventSender
    pages: EventPages

    @route(
        "POST /v1/sessions/{session_id}/events",
        "Send events to a session",
        for_worker_keys=True,
        handles_idempotency_key=True,
    )
    async def send(self, call: ApiCall[Empty, SendEvents]) -> SentEvents:
        events = await self.event_sender.send(
            call.who,
            call["session_id"],
            call.body.events,
            key=call.request.headers.get(IDEMPOTENCY_KEY),
        )
        return SentEvents(data=events)

    @route(
        "GET /v1/sessions/{session_id}/events", "List the events of a session", for_worker_keys=True
    )
    async def list(self, call: ApiCall[ListEvents, Empty]) -> Page[WireEvent]:
        row = await self.sessions.row(call.who, call["session_id"])
        view = EventView(
            session_id=row.id,
            main_thread_id=row.thread_id,
            is_internal="internal" in call.query.include,
        )
        return await self.pages.page(event_query(view, call.query), call.query.page)


LAST_EVENT_ID_HEADER = "last-event-id"


class StreamEvents(Struct, frozen=True, kw_only=True):
    event_deltas: tuple[PreviewKind, ...] = ()
    after: Annotated[int, Meta(ge=0)] | None = None
    """An extension: start after this event; 0 for all events. The header `Last-Event-ID` takes
    precedence, because a browser that reconnects sends both."""
    include: tuple[Literal["internal"], ...] = ()
    """An extension: `internal` also sends events that the Managed Agents API does not have."""


@dataclass(frozen=True, slots=True)
class StreamRoutes:
    event_streams: EventStreams
    find: Callable[[Principal, str], Awaitable[object]]
    """Finds a session. Raises: NotFound: it does not exist, or the principal may not see it."""
    stream_timing: StreamTiming = STREAM_TIMING
    route_options: ClassVar[RouteOptions] = {
        "for_worker_keys": True,
        "media_type": "text/event-stream",
    }

    @route("GET /v1/sessions/{session_id}/events/stream", "Stream the events of a session")
    @route(
        "GET /v1/sessions/{session_id}/threads/{thread_id}/stream", "Stream the events of a thread"
    )
    async def stream(self, call: ApiCall[StreamEvents, Empty]) -> web.StreamResponse:
        await self.find(call.who, call["session_id"])
        query = call.query
        options = StreamRequest(
            tenant=call.tenant,
            session_id=call["session_id"],
            thread_id=call.path.get("thread_id"),
            after=log_position(call.request.headers.get(LAST_EVENT_ID_HEADER), query.after),
            previews=frozenset(query.event_deltas),
            is_internal="internal" in query.include,
        )
        async with self.event_streams.open(options) as stream:
            return await send_stream(
                call.request,
                stream,
                self.stream_timing,
                check_access=call.recheck_access,
            )


def log_position(last_event_id: str | None, after: int | None) -> int | None:
    """Where a stream continues. Raises: InvalidInput."""
    if not last_event_id:
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 18):
        raise InvalidInput(
            f"Last-Event-ID: {last_event_id[:40]!r} is not the id of an event on this stream"
        )
    return int(last_event_id)
