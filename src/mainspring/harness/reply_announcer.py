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
    _coming: list[_PendingEvent] = []
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
                self._coming, self._is_open = [], False
            case _:
                pass

    def _append_text(self, kind: Kind, text: str) -> None:
        if not self._is_open or self._coming[-1].kind != kind:
            self._coming.append(_PendingEvent(self.new_event_id(), kind))
            self._is_open = True
            self.emit(EventAnnounced(event_id=self._coming[-1].event_id, kind=kind))
        self._coming[-1].pieces.append(text)

    def event_ids(self, part: TextBlock | Thinking | ToolUse) -> tuple[str, ...]:
        """The id that was announced for a part of the reply; `None` if it was not announced."""
        if isinstance(part, ToolUse):
            return ()
        kind = "agent.thinking" if isinstance(part, Thinking) else "agent.message"
        for coming in self._coming:
            if coming.kind == kind and part.text and "".join(coming.pieces).startswith(part.text):
                self._coming.remove(coming)
                return (coming.event_id,)
        return ()

    @property
    def first_message(self) -> tuple[str, ...]:
        """The ids of everything that arrived before the reply broke off."""
        ids = [coming.event_id for coming in self._coming if coming.kind == "agent.message"]
        return tuple(ids[:1])
