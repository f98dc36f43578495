"""What a session's log tells about how it went: the requests that were made, the hooks that ran."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from anyio import CapacityLimiter, to_thread
from msgspec import Meta, Struct

from mainspring.core.envelope import CLIENT_TYPES, Event
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.facts import HookRan
from mainspring.core.sender import Sender
from mainspring.harness.context.xray import ModelCall
from mainspring.runtime.session.xrays import ShotView, read_shots, shot_view
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Limit, Page, decode_cursor, encode_cursor

MAX_EVENTS = 50_000
"""In a log that is gone through for one request."""
_MAX_CONCURRENT = 2
_CLIENT_EVENT_TYPES = CLIENT_TYPES | {"session.created", "session.forked"}
_HOOK_RAN = str(HookRan.__struct_config__.tag)


class ContextParams(Struct, frozen=True, kw_only=True):
    call: Annotated[int, Meta(ge=1)] | None = None
    """Only this call of the model, with the request that it was sent."""
    limit: Limit = 20
    page: str | None = None


class ListHookRuns(Struct, frozen=True, kw_only=True):
    limit: Limit = 100
    page: str | None = None


class HookRun(Struct, frozen=True, kw_only=True):
    id: str
    """Of its event."""
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


class ListSenders(Struct, frozen=True, kw_only=True):
    limit: Limit = 100
    page: str | None = None


class ReceivedEvent(Struct, frozen=True, kw_only=True):
    """An event that came from outside, and who sent it."""

    id: str
    seq: int
    created_at: datetime
    thread_id: str
    event_type: str
    sender: Sender | None
    """`None`: it was sent before senders were noted."""
    type: Literal["sent_event"] = "sent_event"


class SessionReports:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._limiter = CapacityLimiter(_MAX_CONCURRENT)

    async def context(
        self, principal: Principal, session_id: str, params: ContextParams
    ) -> Page[ShotView]:
        """The requests that the main thread made, rebuilt from the log, oldest first.

        It reads the whole log, whatever is asked for; so only `_AT_ONCE` at a time.

        Raises: NotFound, InvalidInput.
        """
        session = await self._sessions.row(principal, session_id)
        require_readable_log(session_id, session.head.seq)
        async with self._limiter:
            shots = await read_shots(self._sessions.log, session)
            begin, chosen = _select_requests(shots, params)
            views = await to_thread.run_sync(
                lambda: [
                    shot_view(shots, shot, with_request=params.call is not None) for shot in chosen
                ]
            )
        end = begin + len(chosen)
        is_last = params.call is not None or end >= len(shots)
        return Page(data=views, next_page=None if is_last else encode_cursor(end))

    async def hook_runs(
        self, principal: Principal, session_id: str, request: ListHookRuns
    ) -> Page[HookRun]:
        """Oldest first. Raises: NotFound, InvalidInput."""
        session = await self._sessions.row(principal, session_id)
        after = 0 if request.page is None else _decode_place(request.page)
        read = partial(self._sessions.log.read, session.id, types=[_HOOK_RAN])
        found = [_hook_run(item) for item in await read(after=after, limit=request.limit + 1)]
        shown = found[: request.limit]
        is_last = len(found) <= request.limit
        return Page(data=shown, next_page=None if is_last else encode_cursor(shown[-1].seq))

    async def senders(
        self, principal: Principal, session_id: str, request: ListSenders
    ) -> Page[ReceivedEvent]:
        """Oldest first. Raises: NotFound, InvalidInput."""
        session = await self._sessions.row(principal, session_id)
        after = 0 if request.page is None else _decode_place(request.page)
        read = partial(self._sessions.log.read, session.id, types=_CLIENT_EVENT_TYPES)
        found = [_sent_event(item) for item in await read(after=after, limit=request.limit + 1)]
        shown = found[: request.limit]
        is_last = len(found) <= request.limit
        return Page(data=shown, next_page=None if is_last else encode_cursor(shown[-1].seq))


def require_readable_log(session_id: str, events: int) -> None:
    """Raises: InvalidInput: it would take too long, and too much memory."""
    if events > MAX_EVENTS:
        raise InvalidInput(
            f"session {session_id} has {events} events, and the API goes through {MAX_EVENTS} at"
            " most; export it, and use the command line"
        )


def _select_requests(
    model_calls: list[ModelCall], params: ContextParams
) -> tuple[int, list[ModelCall]]:
    if params.call is not None:
        if params.call > len(model_calls):
            raise NotFound("call", str(params.call))
        return params.call - 1, [model_calls[params.call - 1]]
    begin = 0 if params.page is None else _decode_place(params.page)
    return begin, model_calls[begin : begin + params.limit]


def _decode_place(page: str) -> int:
    match decode_cursor(page):
        case [int(place)] if 0 <= place < 1 << 62:
            return place
        case _:
            raise InvalidInput("page: not a cursor of this list")


def _sent_event(event: Event) -> ReceivedEvent:
    return ReceivedEvent(
        id=event.id,
        seq=event.seq,
        created_at=event.time,
        thread_id=event.thread_id,
        event_type=event.type,
        sender=event.sender,
    )


def _hook_run(event: Event) -> HookRun:
    payload = event.payload
    if not isinstance(payload, HookRan):
        raise InvalidInput(f"event {event.id} is not of a hook")
    return HookRun(
        id=event.id,
        seq=event.seq,
        created_at=event.time,
        thread_id=event.thread_id,
        hook_event=payload.hook_event,
        handler=payload.handler,
        outcome=payload.outcome,
        tool_use_id=payload.tool_use_id,
        reason=payload.reason,
        milliseconds=payload.milliseconds,
    )
