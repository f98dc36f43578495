"""Redacts the pieces of a reply that a terminal or a client shows while they arrive, as the log
redacts the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from mainspring.core.envelope import Event
from mainspring.core.model import (
    Delta,
    FailedOver,
    RetryScheduled,
    Stalled,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolOutput,
)
from mainspring.log.event_chain import Scrub
from mainspring.runtime.session.streaming_redactor import StreamingRedactor

_MAX_OUTPUT_CHARS = 4_000
"""Of the lines of a program that may be part of one secret."""


class DeltaRedactor(Struct):
    """Its `delta` and `event` are for `Session.run`. Text is passed on as soon as it cannot be part
    of a secret, and the input of a call when it is complete."""

    emit: Callable[[Delta], None]
    tell: Callable[[Event], None]
    scrub: Scrub
    passages: Sequence[str] = ()
    """Known secrets of several words."""
    _open: TextDelta | ThinkingDelta | ToolInputDelta | None = None
    """The last piece of what is arriving."""
    _text: StreamingRedactor | None = None
    _emitted: int = 0
    _json: list[str] = []
    _output: dict[str, str] = {}
    """The last lines of programs, by call."""

    def delta(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text=text) | ThinkingDelta(text=text):
                self._continue(delta)
                if self._text is not None:
                    self._emit_text(delta, self._text.add(text))
            case ToolInputDelta(json=json):
                self._continue(delta)
                if json:
                    self._json.append(json)
                else:
                    self.emit(delta)
            case ToolOutput():
                self._emit_output(delta)
            case Stalled() | RetryScheduled():
                self.emit(delta)
            case FailedOver():  # another model starts over
                self._open, self._text, self._json = None, None, []
                self.emit(delta)
            case _:
                self.close()
                self.emit(delta)

    def event(self, event: Event) -> None:
        self.close()
        self.tell(event)

    def close(self) -> None:
        """Pass on what was held back: the text or the input is complete."""
        last, self._open = self._open, None
        if isinstance(last, ToolInputDelta):
            if self._json:
                self.emit(structs.replace(last, json=self._clean("".join(self._json))))
            self._json = []
        elif last is not None and self._text is not None:
            self._emit_text(last, self._text.whole()[self._emitted :])
        self._text = None

    def _continue(self, delta: TextDelta | ThinkingDelta | ToolInputDelta) -> None:
        """What was arriving is complete if this piece belongs to something else."""
        before = self._open
        is_same = type(delta) is type(before) and getattr(delta, "id", "") == getattr(
            before, "id", ""
        )
        if not is_same:
            self.close()
            self._text, self._emitted = StreamingRedactor(self.scrub, self.passages), 0
        self._open = delta

    def _emit_text(self, delta: TextDelta | ThinkingDelta, text: str) -> None:
        if text:
            self._emitted += len(text)
            self.emit(structs.replace(delta, text=text))

    def _emit_output(self, delta: ToolOutput) -> None:
        """Redact complete lines, together with those before them."""
        earlier = self._output.get(delta.id, "")
        text = earlier + delta.text
        lines = text[: max(text.rfind("\n"), text.rfind("\r")) + 1]
        self._output[delta.id] = text[-_MAX_OUTPUT_CHARS:]
        if len(lines) > len(earlier):
            clean = self._clean(lines)
            self.emit(
                structs.replace(
                    delta, text=clean.rstrip("\r\n").splitlines()[-1] if clean.strip() else ""
                )
            )

    def _clean(self, text: str) -> str:
        return self.scrub(text.encode(errors="replace")).decode(errors="replace")
