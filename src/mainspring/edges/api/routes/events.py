"""`/v1/sessions/{session_id}/events`: sent and listed. Following them is `streams`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from mainspring.edges.api.idempotency import IDEMPOTENCY_KEY
from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.keeping.page import Page
from mainspring.service.sessions.event_pages import EventPages, ListEvents, sought
from mainspring.service.sessions.sending import Sending
from mainspring.service.sessions.sending_params import SendEvents
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.sessions.wire_events import View, WireEvent


class SentEvents(Struct, frozen=True, kw_only=True):
    data: Sequence[WireEvent]


@dataclass(frozen=True, slots=True)
class EventRoutes:
    sessions: Sessions
    sending: Sending
    pages: EventPages

    def routes(self) -> tuple[Route, ...]:
        events = "/v1/sessions/{session_id}/events"
        return (
            Route(
                method="POST",
                path=events,
                handle=self.send,
                summary="Send events to a session",
                body=SendEvents,
                answer=SentEvents,
                has_own_keys=True,
                role="user",
                for_agent_keys=True,
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=events,
                handle=self.list,
                summary="List the events of a session",
                query=ListEvents,
                answer=Page[WireEvent],
                for_agent_keys=True,
                for_worker_keys=True,
            ),
        )

    async def send(self, call: Call[Nothing, SendEvents]) -> SentEvents:
        sent = await self.sending.send(
            call.who,
            call["session_id"],
            call.body.events,
            key=call.request.headers.get(IDEMPOTENCY_KEY),
        )
        return SentEvents(data=sent)

    async def list(self, call: Call[ListEvents, Nothing]) -> Page[WireEvent]:
        row = await self.sessions.row(call.who, call["session_id"])
        view = View(
            session_id=row.id,
            main_thread_id=row.thread_id,
            is_internal="internal" in call.query.include,
        )
        return await self.pages.page(sought(view, call.query), call.query.page)
