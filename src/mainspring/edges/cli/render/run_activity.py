"""The line that shows, while a session runs, what it waits for, for how long, and its tokens."""

from __future__ import annotations

import time

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.core.model import (
    Delta,
    RetryScheduled,
    Stalled,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
)
from mainspring.edges.cli.render.event_summary import truncate
from mainspring.edges.cli.render.printing import token_count
from mainspring.harness.limits import prompt_tokens
from mainspring.log.session_activity import SessionActivity
from mainspring.runtime.session.activity_line import work_text

_CHARS_PER_TOKEN = 4
"""An estimate until the provider reports the tokens of a reply."""
_QUIET_SECONDS = 1.0
"""While text arrives more often than this, the text itself shows progress."""


class RunActivity:
    """Takes the deltas and events of one run."""

    def __init__(self, main_id: str) -> None:
        self._activity = SessionActivity(main=main_id)
        self._begun = self._heard = time.monotonic()
        self._input = self._output = self._chars = 0
        self._waiting: RetryScheduled | Stalled | None = None
        self._waiting_since = 0.0

    def delta(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text=text) | ThinkingDelta(text=text):
                self._chars += len(text)
                self._waiting = None
                self._heard = time.monotonic()
            case ToolInputDelta(json=text):
                self._chars += len(text)
                self._waiting = None
            case RetryScheduled() | Stalled():
                self._waiting, self._waiting_since = delta, time.monotonic()
            case _:
                pass

    def event(self, event: Event) -> None:
        self._activity.apply(event)
        match event.payload:
            case events.ModelRequestEnded(model_usage=usage):
                self._input += prompt_tokens(usage)
                self._output += usage.output_tokens
                self._chars, self._waiting = 0, None
            case _:
                pass

    def text(self, hint: str = "") -> str:
        """The line at this moment; empty while text arrives."""
        now = time.monotonic()
        if now - self._heard < _QUIET_SECONDS and self._chars:
            return ""
        output = self._output + self._chars // _CHARS_PER_TOKEN
        counts = {"in": self._input, "out": output}
        parts = [
            f"{now - self._begun:.0f} s",
            ", ".join(f"{token_count(count)} {name}" for name, count in counts.items() if count),
            self._wait_text(now),
            hint,
        ]
        return " · ".join(["⋯", *filter(None, parts)]).replace("⋯ · ", "⋯ ", 1)

    def _wait_text(self, now: float) -> str:
        if self._waiting is None:
            return truncate(work_text(self._activity))
        return waiting_text(self._waiting, now - self._waiting_since)


def waiting_text(delta: Stalled | RetryScheduled, elapsed: float = 0) -> str:
    """What a person sees while no model answers, so many seconds later."""
    if isinstance(delta, Stalled):
        return f"nothing has arrived for {delta.seconds + elapsed:.0f} s; still waiting"
    seconds = max(1, round(delta.seconds - elapsed))
    return f"retrying in {seconds} s, {delta.attempt} of {delta.attempts}: {truncate(delta.reason)}"
