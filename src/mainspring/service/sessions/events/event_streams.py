"""Event streams: each event of a session, once and in order, as it is appended, for one reader;
between them previews of events that are not in the log yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import anyio
import anyio.lowlevel
import msgspec
from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, NotFound, RateLimited, SessionNotFound
from mainspring.core.events import ThreadCreated
from mainspring.log.session_log import ENDLESS, SessionLog
from mainspring.log.store import EventRange
from mainspring.log.task_groups import retry_unavailable
from mainspring.log.wakeup_signals import Watch
from mainspring.service.sessions.events.call_verdicts import visible_log_end
from mainspring.service.sessions.events.preview_deltas import (
    Deltas,
    PreviewKind,
    PreviewPiece,
    PreviewStarted,
    PreviewText,
    Subscription,
)
from mainspring.service.sessions.events.wire_events import (
    EventRenderer,
    EventView,
    RenderedEvent,
    RenderedEvents,
)

_PAGE = 50
"""Events read at a time, which limits the memory of a stream that is far behind."""
_RETRY_SECONDS = 5.0  # after which a client that was refused may connect again
_ENDS_PREVIEWS = frozenset({"agent.message", "agent.thinking", "span.model_request_end"})
_DELETED = "session.deleted"
_THREAD_CREATED = "session.thread_created"
_ENCODER = msgspec.json.Encoder()


class StreamMessage(Struct, frozen=True):
    name: str
    data: bytes
    """JSON."""
    seq: int | None = None
    """The position of the event in the log; `None` if it is not in the log."""


class StreamRenderer(Protocol):
    @property
    def log(self) -> SessionLog: ...

    @property
    def message_name(self) -> str | None:
        """The name of each event's message; `None`: its type."""
        ...

    async def render(self, view: EventView, events_: Sequence[Event], /) -> RenderedEvents: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    tenant: str
    session_id: str
    thread_id: str | None = None
    """Only this thread; `None`: the main one, and events of others that are shown on it."""
    after: int | None = None
    """The last event that the reader has; `None`: only new events."""
    previews: frozenset[PreviewKind] = frozenset()
    is_internal: bool = False
    renderer: StreamRenderer | None = None
    """How events are rendered, if not as those of the Managed Agents API."""


class StreamSubscription(Struct, eq=False):
    renderer: StreamRenderer
    view: EventView
    after: int
    watch: Watch
    clock: Clock
    _changes_read: int = -1  # never equal to the watch: the first `next` reads
    _previewing: _PreviewState | None = None
    _is_stopping: bool = False
    is_over: bool = False

    async def next(self) -> list[StreamMessage]:
        """Wait for the next messages; an empty list after `stop_waiting`, or if the stream is over.

        Raises: StoreUnavailable: for longer than a restart takes.
        """
        while not self.is_over:
            is_behind = self._is_behind
            if messages := await (self._read() if is_behind else self._preview()):
                return messages
            if is_behind or self._is_behind:
                continue
            if self._is_stopping:
                self._is_stopping = False
                return []
            await self.watch.wait()
        return []

    def stop_waiting(self) -> None:
        """Make `next` return, now or when it is called, even if there are no messages."""
        self._is_stopping = True
        self.watch.wake()

    @property
    def _is_behind(self) -> bool:
        return self.watch.changes != self._changes_read

    async def preview(self, subscription: Subscription, kinds: frozenset[PreviewKind]) -> None:
        """Send previews too, except for requests that have already ended."""
        view = self.view
        thread_id = view.thread_id or view.main_thread_id
        newest = EventRange(
            session_id=view.session_id,
            after=0,
            upto=ENDLESS,
            types=_ENDS_PREVIEWS,
            threads=frozenset({thread_id}),
            limit=1,
            backwards=True,
        )
        ends = await self.renderer.log.store.read(newest)
        self._previewing = _PreviewState(
            subscription, thread_id, kinds, ended=ends[0].seq if ends else 0
        )

    def end(self) -> None:
        self.is_over = True
        self.watch.wake()

    async def _read(self) -> list[StreamMessage]:
        await anyio.lowlevel.checkpoint()  # pages may be quick: let other tasks run
        changes, log = self.watch.changes, self.renderer.log
        page = partial(log.read, self.view.session_id, after=self.after, limit=_PAGE)
        try:
            events = await retry_unavailable(page)
            rendered, held_seq = await self.renderer.render(self.view, events)
        except SessionNotFound:
            return [self._deleted()]
        if held_seq is not None:  # the decision of a gate will wake the stream
            events = [event for event in events if event.seq < held_seq]
        if len(events) < _PAGE:
            self._changes_read = changes
        return self._messages(events, rendered)

    def _messages(self, events: list[Event], rendered: list[RenderedEvent]) -> list[StreamMessage]:
        for event in events:
            self.after = event.seq
            if self._previewing is not None and event.type in _ENDS_PREVIEWS:
                self._previewing.end(event.thread_id, event.seq)
            self.is_over = self.is_over or event.type == _DELETED
        name = self.renderer.message_name
        return [
            StreamMessage(name or item.wire["type"], _ENCODER.encode(item.wire), item.event.seq)
            for item in rendered
        ]

    async def _preview(self) -> list[StreamMessage]:
        if self._previewing is None:
            return []
        pieces = self._previewing.take()
        messages: list[StreamMessage] = []
        if pieces and pieces[-1].after > self.after:  # first the events before the piece
            messages = await self._read()
        return messages + self._previewing.messages(pieces)

    def _deleted(self) -> StreamMessage:
        """The message that the session was deleted. Its log is gone, so it has no position."""
        self.is_over = True
        deleted = {
            "id": _deleted_event_id(self.view.session_id),
            "processed_at": self.clock(),
        }
        return _stream_message(_DELETED, deleted)


class _PreviewState(Struct, eq=False):
    """The previews of one stream: events that its reader has seen the start of, but not the end."""

    subscription: Subscription
    thread_id: str
    kinds: frozenset[PreviewKind]
    ended: int
    _open: dict[str, int] = {}

    def take(self) -> list[PreviewPiece]:
        return [piece for piece in self.subscription.take() if piece.thread_id == self.thread_id]

    def end(self, thread_id: str, seq: int) -> None:
        """End the previews of a request: later pieces of it are dropped."""
        if thread_id == self.thread_id:
            self._open.clear()
            self.ended = seq

    def messages(self, pieces: list[PreviewPiece]) -> list[StreamMessage]:
        open_pieces = [piece for piece in pieces if piece.after > self.ended]
        return [message for piece in open_pieces if (message := self._message(piece)) is not None]

    def _message(self, piece: PreviewPiece) -> StreamMessage | None:
        match piece:
            case PreviewStarted(event_id=event_id, kind=kind):
                if kind not in self.kinds:
                    return None
                self._open[event_id] = 0
                preview = {"type": kind, "id": event_id}
                return _stream_message("event_start", {"event": preview})
            case PreviewText(event_id=event_id, at=at, text=text):
                if self._open.get(event_id) != at:  # an earlier piece was lost
                    self._open.pop(event_id, None)
                    return None
                self._open[event_id] = at + len(text)
                block = {"type": "text", "text": text}
                delta = {"type": "content_delta", "index": 0, "content": block}
                return _stream_message("event_delta", {"event_id": event_id, "delta": delta})


def _stream_message(name: str, fields: Mapping[str, object]) -> StreamMessage:
    return StreamMessage(name, _ENCODER.encode({"type": name, **fields}))


def _deleted_event_id(session_id: str) -> str:
    """The event's id, which is the same on every stream."""
    return f"{ids.EVENT}_{session_id.partition('_')[2]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """The maximum number of open streams."""

    in_process: int = 2000
    of_tenant: int = 1000


DEFAULT_STREAM_LIMITS = StreamLimits()


class EventStreams:
    """All streams of one process."""

    def __init__(
        self,
        log: SessionLog,
        deltas: Deltas,
        *,
        limits: StreamLimits = DEFAULT_STREAM_LIMITS,
        clock: Clock = clocks.now,
    ) -> None:
        self._log = log
        self._wire = EventRenderer(log)
        self._deltas = deltas
        self._limits = limits
        self._clock = clock
        self._open: set[StreamSubscription] = set()
        self._of_tenant: Counter[str] = Counter()
        self._is_closed = False

    @property
    def count(self) -> int:
        return sum(self._of_tenant.values())

    @asynccontextmanager
    async def open(self, request: StreamRequest) -> AsyncGenerator[StreamSubscription, None]:
        """A stream that begins at the current end of the log, or after `request.after`.

        Raises:
            SessionNotFound, NotFound: there is no such session, no such thread.
            InvalidInput: it would begin after the end of the log.
            RateLimited: too many streams are open.
        """
        with self._counted(request.tenant):
            watch = self._log.store.watch(request.session_id)
            view, after = await self._begin(request)
            stream = StreamSubscription(
                request.renderer or self._wire, view, after=after, watch=watch, clock=self._clock
            )
            with self._registered(stream):
                if not request.previews:
                    yield stream
                    return
                with self._deltas.listen(request.session_id, watch.wake) as subscription:
                    await stream.preview(subscription, request.previews)
                    yield stream

    def close(self) -> None:
        """End all streams, including those opened from now on; readers resume on other servers."""
        self._is_closed = True
        for stream in self._open:
            stream.end()

    async def _begin(self, request: StreamRequest) -> tuple[EventView, int]:
        session = await self._log.session(request.session_id)
        after = (
            await visible_log_end(self._log, session) if request.after is None else request.after
        )
        if after > session.head.seq:
            raise InvalidInput(
                f"session {session.id} has events 1 to {session.head.seq}; {after} is after its end"
            )
        if request.thread_id not in (None, session.thread_id):
            await self._check_thread(session.id, request.thread_id or "")
        view = EventView(
            session_id=session.id,
            main_thread_id=session.thread_id,
            thread_id=request.thread_id,
            is_internal=request.is_internal,
        )
        return view, after

    async def _check_thread(self, session_id: str, thread_id: str) -> None:
        for event in await self._log.read(session_id, types=[_THREAD_CREATED]):
            created = event.payload
            if isinstance(created, ThreadCreated) and created.session_thread_id == thread_id:
                return
        raise NotFound("thread", thread_id)

    @contextmanager
    def _registered(self, stream: StreamSubscription) -> Generator[None]:
        self._open.add(stream)
        if self._is_closed:
            stream.end()
        try:
            yield
        finally:
            self._open.discard(stream)

    @contextmanager
    def _counted(self, tenant: str) -> Generator[None]:
        if self._of_tenant[tenant] >= self._limits.of_tenant:
            what = f"{self._limits.of_tenant} streams are already open; close one, or share one"
            raise RateLimited(what, retry_after_seconds=_RETRY_SECONDS)
        if self.count >= self._limits.in_process:
            what = "this server has reached its limit of open streams; try again"
            raise RateLimited(what, retry_after_seconds=_RETRY_SECONDS)
        self._of_tenant[tenant] += 1
        try:
            yield
        finally:
            self._of_tenant[tenant] -= 1
            if not self._of_tenant[tenant]:
                del self._of_tenant[tenant]
