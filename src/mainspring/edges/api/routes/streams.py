"""`/v1/sessions/{session_id}/events/stream`, and `threads/{thread_id}/stream` beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from aiohttp import web
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.edges.api.sse import PACE, Pace, send
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.deltas import Kind
from mainspring.service.sessions.streams import Streams, Wish

LAST_EVENT_ID = "last-event-id"


class StreamEvents(Struct, frozen=True, kw_only=True):
    event_deltas: tuple[Kind, ...] = ()
    after: Annotated[int, Meta(ge=0)] | None = None
    """Ours: begin behind this event; 0 for all of them. The header `Last-Event-ID` has precedence,
    as a browser that reconnects sends both."""
    include: tuple[Literal["internal"], ...] = ()
    """Ours: events that the Managed Agents API has no word for."""


@dataclass(frozen=True, slots=True)
class StreamRoutes:
    streams: Streams
    find: Callable[[Principal, str], Awaitable[object]]
    """Raises: NotFound: there is no such session for whoever asks."""
    pace: Pace = PACE

    def routes(self) -> tuple[Route, ...]:
        session = "/v1/sessions/{session_id}"
        return (
            Route(
                method="GET",
                path=f"{session}/events/stream",
                handle=self.stream,
                summary="Follow a session as it happens",
                query=StreamEvents,
                media_type="text/event-stream",
                for_agent_keys=True,
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=f"{session}/threads/{{thread_id}}/stream",
                handle=self.stream,
                summary="Follow a thread of a session as it happens",
                query=StreamEvents,
                media_type="text/event-stream",
                for_agent_keys=True,
                for_worker_keys=True,
            ),
        )

    async def stream(self, call: Call[StreamEvents, Nothing]) -> web.StreamResponse:
        await self.find(call.who, call["session_id"])
        query = call.query
        wish = Wish(
            tenant=call.tenant,
            session_id=call["session_id"],
            thread_id=call.path.get("thread_id"),
            after=_cursor(call.request.headers.get(LAST_EVENT_ID), query.after),
            previews=frozenset(query.event_deltas),
            is_internal="internal" in query.include,
        )
        async with self.streams.open(wish) as stream:
            return await send(call.request, stream, self.pace, require_welcome=call.require_welcome)


def _cursor(last_event_id: str | None, after: int | None) -> int | None:
    if not last_event_id:
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 18):
        raise InvalidInput(
            f"Last-Event-ID: {last_event_id[:40]!r} is no id of an event on this stream"
        )
    return int(last_event_id)
