"""`/v1/sessions/{session_id}/threads`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, route
from mainspring.log.session_status import ThreadStatus
from mainspring.service.sessions.events.event_pages import EventPages, ListEvents, event_query
from mainspring.service.sessions.events.wire_events import EventView, WireEvent
from mainspring.service.sessions.session_threads import ThreadObject, Threads
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Limit, Page


class ListThreads(Struct, frozen=True, kw_only=True):
    limit: Limit = 1000
    page: str | None = None
    statuses: tuple[ThreadStatus, ...] = ()


class ListThreadEvents(Struct, frozen=True, kw_only=True):
    limit: Limit = 100
    page: str | None = None
    include: tuple[Literal["internal"], ...] = ()
    """An extension: `internal` also shows events that the Managed Agents API does not have."""


@dataclass(frozen=True, slots=True)
class ThreadRoutes:
    sessions: Sessions
    threads: Threads
    pages: EventPages

    @route(
        "GET /v1/sessions/{session_id}/threads",
        "List the threads of a session",
        for_worker_keys=True,
    )
    async def list(self, call: ApiCall[ListThreads, Empty]) -> Page[ThreadObject]:
        query = call.query
        return await self.threads.page(
            call.who,
            call["session_id"],
            statuses=query.statuses,
            limit=query.limit,
            page=query.page,
        )

    @route(
        "GET /v1/sessions/{session_id}/threads/{thread_id}", "Get a thread", for_worker_keys=True
    )
    async def get(self, call: ApiCall[Empty, Empty]) -> ThreadObject:
        return await self.threads.get(call.who, call["session_id"], call["thread_id"])

    @route(
        "POST /v1/sessions/{session_id}/threads/{thread_id}/archive",
        "Archive a thread: it accepts no more events",
    )
    async def archive(self, call: ApiCall[Empty, Empty]) -> ThreadObject:
        return await self.threads.archive(call.who, call["session_id"], call["thread_id"])

    @route(
        "GET /v1/sessions/{session_id}/threads/{thread_id}/events",
        "List the events of a thread",
        for_worker_keys=True,
    )
    async def events(self, call: ApiCall[ListThreadEvents, Empty]) -> Page[WireEvent]:
        thread = await self.threads.get(call.who, call["session_id"], call["thread_id"])
        session = await self.sessions.find(call.who, thread.session_id)
        view = EventView(
            session_id=thread.session_id,
            main_thread_id=session.row.thread_id,
            thread_id=thread.id,
            is_internal="internal" in call.query.include,
        )
        return await self.pages.page(
            event_query(view, ListEvents(limit=call.query.limit)), call.query.page
        )
