"""Previews: parts of events that are still being produced, from the worker of a session to its
readers. Best effort: they may be lost; the log has the complete event.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.envelope import Event
from mainspring.core.events import AgentMessage, ModelRequestEnded, ModelRequestStarted
from mainspring.core.model import Delta, EventAnnounced, TextDelta, ToolInputDelta
from mainspring.log.event_chain import Scrub
from mainspring.log.store import SessionRow
from mainspring.runtime.session.streaming_redactor import StreamingRedactor

PreviewKind: TypeAlias = Literal["agent.message", "agent.thinking"]

_MAX_WAITING = 1000
"""The maximum number of unread pieces of a stream; beyond it, it only gets the event."""
_MAX_PIECE_CHARS = 1000
"""At most six times as many bytes, which is below the limit of a PostgreSQL notification."""


class PreviewStarted(Struct, frozen=True, kw_only=True, tag_field="type", tag="began"):
    """An event has started. It will have this id if it is completed."""

    thread_id: str
    after: int
    """The seq of the start of its request; the end of the request has a higher one."""
    event_id: str
    kind: PreviewKind


class PreviewText(Struct, frozen=True, kw_only=True, tag_field="type", tag="grew"):
    thread_id: str
    after: int
    event_id: str
    at: int
    """The number of characters before this piece, so that a lost piece is detected."""
    text: str


PreviewPiece: TypeAlias = PreviewStarted | PreviewText
_PIECE_DECODER: msgspec.json.Decoder[PreviewPiece] = msgspec.json.Decoder(PreviewPiece)


class Subscription:
    """The unread pieces of one stream. Bounded: a stream that does not read loses all of them."""

    __slots__ = ("_pieces", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._pieces: list[PreviewPiece] = []
        self._wake = wake

    def deliver(self, piece: PreviewPiece) -> None:
        if len(self._pieces) >= _MAX_WAITING:
            self._pieces.clear()
        self._pieces.append(piece)
        self._wake()

    def take(self) -> list[PreviewPiece]:
        pieces, self._pieces = self._pieces, []
        return pieces


class Deltas(Protocol):
    def publish(self, session_id: str, piece: PreviewPiece) -> None:
        """Deliver a piece to all subscribers, without waiting for any of them."""
        ...

    def listen(
        self, session_id: str, wake: Callable[[], None]
    ) -> AbstractContextManager[Subscription]:
        """Subscribe to a session until the block ends; `wake` is called for every piece."""
        ...


class LocalDeltas:
    """Delivers previews within one process."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, list[Subscription]] = {}

    def publish(self, session_id: str, piece: PreviewPiece) -> None:
        for subscription in self._subscriptions.get(session_id, ()):
            subscription.deliver(piece)

    @contextmanager
    def listen(self, session_id: str, wake: Callable[[], None]) -> Generator[Subscription]:
        subscription = Subscription(wake)
        subscriptions = self._subscriptions.setdefault(session_id, [])
        subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            subscriptions.remove(subscription)
            if not subscriptions:
                del self._subscriptions[session_id]


class PubSub(Protocol):
    """Carries short texts between processes; see `log/postgres/broadcast.py`."""

    def publish(self, topic: str, text: str) -> None: ...

    def listen(
        self, topic: str, on_message: Callable[[str], None]
    ) -> AbstractContextManager[None]: ...


class SharedDeltas:
    """Delivers previews within this process and to other processes."""

    def __init__(self, pub_sub: PubSub) -> None:
        self._pub_sub = pub_sub
        self._local = LocalDeltas()

    def publish(self, session_id: str, piece: PreviewPiece) -> None:
        self._local.publish(session_id, piece)
        self._pub_sub.publish(session_id, msgspec.json.encode(piece).decode())

    @contextmanager
    def listen(self, session_id: str, wake: Callable[[], None]) -> Generator[Subscription]:
        with self._local.listen(session_id, wake) as subscription:

            def on_message(text: str) -> None:
                with suppress(
                    msgspec.MsgspecError, RecursionError
                ):  # from a newer version: the log will have the event
                    subscription.deliver(_PIECE_DECODER.decode(text))

            with self._pub_sub.listen(session_id, on_message):
                yield subscription


class PreviewPublisher:
    """Publishes the replies of the main thread during a run. Its `emit` and `on_event` are for
    `Session.run`."""

    def __init__(
        self, deltas: Deltas, session: SessionRow, *, scrub: Scrub, passages: Sequence[str] = ()
    ) -> None:
        """`scrub`: the redaction that the log uses. `passages`: known secrets of several words."""
        self._deltas = deltas
        self._session_id = session.id
        self._thread_id = session.thread_id
        self._new_redactor = partial(StreamingRedactor, scrub, passages)
        self._request = 0
        self._event_id: str | None = None
        self._redactor = self._new_redactor()
        self._published = 0

    def emit(self, delta: Delta) -> None:
        match delta:
            case EventAnnounced(event_id=event_id, kind=kind):
                self._end()
                self._begin(event_id, kind)
            case TextDelta(text=text) if self._event_id is not None:
                self._publish_text(self._redactor.add(text))
            case ToolInputDelta():
                self._end()
            case _:  # the text of thoughts is not previewed; other deltas belong to no event
                pass

    def on_event(self, event: Event) -> None:
        if event.thread_id != self._thread_id:
            return
        match event.payload:
            case ModelRequestStarted():
                self._request = event.seq
            case AgentMessage() | ModelRequestEnded():
                self._event_id = None
            case _:
                pass

    def _begin(self, event_id: str, preview_kind: PreviewKind) -> None:
        started = PreviewStarted(
            thread_id=self._thread_id, after=self._request, event_id=event_id, kind=preview_kind
        )
        self._deltas.publish(self._session_id, started)
        if preview_kind == "agent.message":
            self._event_id, self._redactor, self._published = event_id, self._new_redactor(), 0

    def _end(self) -> None:
        if self._event_id is not None:
            self._publish_text(self._redactor.close())
            self._event_id = None

    def _publish_text(self, text: str) -> None:
        assert self._event_id is not None
        for start in range(0, len(text), _MAX_PIECE_CHARS):
            piece = PreviewText(
                thread_id=self._thread_id,
                after=self._request,
                event_id=self._event_id,
                at=self._published,
                text=text[start : start + _MAX_PIECE_CHARS],
            )
            self._published += len(piece.text)
            self._deltas.publish(self._session_id, piece)
