"""Announces the ids of a reply's events while the reply streams, before the events are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct, field

from mainspring.core.content import TextBlock
from mainspring.core.model import (
    Delta,
    EventAnnounced,
    FailedOver,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolInputDelta,
    ToolUse,
)

Kind: TypeAlias = Literal["agent.message", "agent.thinking"]


class _PendingEvent(Struct):
    event_id: str
    kind: Kind
    pieces: list[str] = field(default_factory=list[str])


class ReplyAnnouncer(Struct):
    """Receives the deltas of one reply. Consecutive deltas of one kind become one event."""

    emit: Callable[[Delta], None]
    new_event_id: Callable[[], str]
    _pending: list[_PendingEvent] = []
    _is_open: bool = False

    def on_delta(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text=text):
                self._append_text("agent.message", text)
            case ThinkingDelta(text=text):
                self._append_text("agent.thinking", text)
            case ToolInputDelta():
                self._is_open = False
            case FailedOver():  # another model starts over
                self._pending, self._is_open = [], False
            case _:
                pass

    def _append_text(self, kind: Kind, text: str) -> None:
        if not self._is_open or self._pending[-1].kind != kind:
            self._pending.append(_PendingEvent(self.new_event_id(), kind))
            self._is_open = True
            self.emit(EventAnnounced(event_id=self._pending[-1].event_id, kind=kind))
        self._pending[-1].pieces.append(text)

    def event_ids(self, part: TextBlock | Thinking | ToolUse) -> tuple[str, ...]:
        """The id that was announced for a part of the reply; empty if there is none."""
        if isinstance(part, ToolUse):
            return ()
        kind = "agent.thinking" if isinstance(part, Thinking) else "agent.message"
        for pending in self._pending:
            if pending.kind == kind and part.text and "".join(pending.pieces).startswith(part.text):
                self._pending.remove(pending)
                return (pending.event_id,)
        return ()

    @property
    def first_message(self) -> tuple[str, ...]:
        """The id of the first message of a reply that broke off; empty if there is none."""
        ids = [pending.event_id for pending in self._pending if pending.kind == "agent.message"]
        return tuple(ids[:1])
