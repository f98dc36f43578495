"""Reports from a session's log: the model requests, the hooks that ran, the senders of events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal

from anyio import CapacityLimiter, to_thread
from msgspec import Meta, Struct

from mainspring.core.envelope import CLIENT_TYPES, Event
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.events import HookRan
from mainspring.core.sender import Sender
from mainspring.runtime.session.xrays import ShotView, read_shots_between, shot_view
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.metadata import copy_fields
from mainspring.service.storage.pagination import (
    Limit,
    Page,
    Position,
    cut_page,
    decode_cursor,
    encode_cursor,
)

MAX_EVENTS = 50_000
"""The maximum number of events that replays, commands and comparisons of rules read."""
_MAX_CONCURRENT = 2  # each reads a whole log
_CLIENT_EVENT_TYPES = CLIENT_TYPES | {"session.created", "session.forked"}
_HOOK_RAN = str(HookRan.__struct_config__.tag)


class ContextParams(Struct, frozen=True, kw_only=True):
    call: Annotated[int, Meta(ge=1)] | None = None
    """Only this model call, counted from 1, with its full request."""
    limit: Limit = 20
    page: str | None = None


class ListLogEvents(Struct, frozen=True, kw_only=True):
    limit: Limit = 100
    page: str | None = None


class HookRun(Struct, frozen=True, kw_only=True):
    id: str
    """The id of its event."""
    seq: int
    created_at: datetime
    thread_id: str
    hook_event: str
    handler: str
    outcome: Literal["ok", "blocked", "failed", "timed_out"]
    tool_use_id: str | None
    reason: str | None
    milliseconds: int | None
    type: Literal["hook_run"] = "hook_run"


class ReceivedEvent(Struct, frozen=True, kw_only=True):
    """An event that a client sent, with its sender."""

    id: str
    seq: int
    created_at: datetime
    thread_id: str
    event_type: str
    sender: Sender | None
    """`null` if the event was sent before senders were recorded."""
    type: Literal["sent_event"] = "sent_event"


class SessionReports:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._limiter = CapacityLimiter(_MAX_CONCURRENT)

    async def context(
        self, principal: Principal, session_id: str, params: ContextParams
    ) -> Page[ShotView]:
        """The model requests of the main thread, rebuilt from the log, oldest first.

        It reads the log from its start, so only `_MAX_CONCURRENT` run at a time.

        Raises: NotFound, InvalidInput.
        """
        session = await self._sessions.row(principal, session_id)
        begin = _decode_place(params.page) if params.call is None else params.call - 1
        end = begin + (params.limit if params.call is None else 1)
        async with self._limiter:
            shots, has_more = await read_shots_between(
                # with the call before, which the first one is compared with
                self._sessions.log,
                session,
                first=max(1, begin),
                last=end,
            )
            if params.call is not None and (not shots or shots[-1].number != params.call):
                raise NotFound("call", str(params.call))
            views = await to_thread.run_sync(
                lambda: [
                    shot_view(
                        shot,
                        shots[index - 1] if index else None,
                        with_request=params.call is not None,
                    )
                    for index, shot in enumerate(shots)
                    if shot.number > begin
                ]
            )
        is_last = params.call is not None or not has_more
        return Page(data=views, next_page=None if is_last else encode_cursor(end))

    async def hook_runs(
        self, principal: Principal, session_id: str, request: ListLogEvents
    ) -> Page[HookRun]:
        """The hooks that ran, oldest first. Raises: NotFound, InvalidInput."""
        return (await self._events(principal, session_id, request, [_HOOK_RAN])).map(_hook_run)

    async def senders(
        self, principal: Principal, session_id: str, request: ListLogEvents
    ) -> Page[ReceivedEvent]:
        """The events that clients sent, oldest first. Raises: NotFound, InvalidInput."""
        page = await self._events(principal, session_id, request, _CLIENT_EVENT_TYPES)
        return page.map(_sent_event)

    async def _events(
        self, principal: Principal, session_id: str, request: ListLogEvents, types: Iterable[str]
    ) -> Page[Event]:
        session = await self._sessions.row(principal, session_id)
        events = await self._sessions.log.read(
            session.id, after=_decode_place(request.page), types=types, limit=request.limit + 1
        )
        return cut_page(events, request.limit, lambda event: (event.seq,))


def require_readable_log(session_id: str, events: int) -> None:
    """Raises: InvalidInput: reading the log would take too long, and too much memory."""
    if events > MAX_EVENTS:
        raise InvalidInput(
            f"session {session_id} has {events} events; the API reads at most {MAX_EVENTS}."
            " Export the session and use the command line"
        )


def _decode_place(page: str | None) -> int:
    return 0 if page is None else decode_cursor(page, tuple[Position])[0]


def _sent_event(event: Event) -> ReceivedEvent:
    return copy_fields(
        ReceivedEvent, event, created_at=event.time, event_type=event.type, type="sent_event"
    )


def _hook_run(event: Event) -> HookRun:
    return copy_fields(
        HookRun,
        event.payload,
        id=event.id,
        seq=event.seq,
        created_at=event.time,
        thread_id=event.thread_id,
    )
