"""Observes runs: passes each appended event to listeners, which cannot affect the run."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.core.errors import LogError, StoreFailed
from mainspring.core.model import Delta, TextDelta, ThinkingDelta, ToolInputDelta
from mainspring.log.lru_cache import LruCache
from mainspring.service.telemetry.session_spans import SPAN_TYPES, SpanFold, TraceSpan

_LOG = logging.getLogger("mainspring.telemetry")
_MAX_FOLDS = 256
"""How many sessions' folds stay in memory between two runs."""
_STATUS_TYPES = (
    "session.created",
    "session.forked",
    "session.thread_created",
    "session.status_running",
    "session.status_idle",
    "session.thread_status_running",
    "session.thread_status_idle",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSubject:
    """The session and agent of a run."""

    session_id: str
    tenant: str
    agent_id: str
    agent_name: str


class ReadableLog(Protocol):
    """The part of a `SessionLog` that is used here."""

    async def read(
        self, session_id: str, *, after: int = 0, types: Iterable[str] | None = None
    ) -> list[Event]: ...


class RunListener(Protocol):
    def on_event(self, subject: RunSubject, event: Event) -> None: ...

    def on_first_token(self, subject: RunSubject) -> None:
        """Called when the model begins to answer, for the first time in a run."""
        ...

    def finished(self, subject: RunSubject, span: TraceSpan) -> None: ...


@dataclass(slots=True)
class RunObserver:
    """Observes one run: its `emit` and `on_event` are for `Session.run`."""

    subject: RunSubject
    fold: SpanFold
    listeners: Sequence[RunListener]
    _is_answering: bool = False

    def emit(self, delta: Delta) -> None:
        if not self._is_answering and isinstance(delta, TextDelta | ThinkingDelta | ToolInputDelta):
            self._is_answering = True
            try:
                for listener in self.listeners:
                    listener.on_first_token(self.subject)
            except Exception:  # noqa: BLE001 (as in `on_event`)
                _LOG.exception("could not count a first token")

    def on_event(self, event: Event) -> None:
        try:
            spans = self.fold.apply(event)
            for listener in self.listeners:
                listener.on_event(self.subject, event)
                for span in spans:
                    listener.finished(self.subject, span)
        except Exception:  # noqa: BLE001 (a failed listener must not fail the run)
            _LOG.exception("could not count event %s", event.id)


class RunObservers:
    """The observed runs of this process."""

    def __init__(
        self, log: ReadableLog, listeners: Sequence[RunListener], *, captures: bool = False
    ) -> None:
        """`captures`: whether spans contain messages."""
        self._log = log
        self._listeners = tuple(listeners)
        self._captures = captures
        self._folds: LruCache[str, SpanFold] = LruCache(_MAX_FOLDS)
        self.running = 0
        """The number of runs in progress."""

    @asynccontextmanager
    async def run(self, subject: RunSubject) -> AsyncGenerator[RunObserver, None]:
        fold = self._folds.pop(subject.session_id)
        fold = fold or SpanFold(agent_name=subject.agent_name, captures=self._captures)
        try:
            await catch_up(self._log, subject.session_id, fold)
        except (LogError, StoreFailed) as error:  # the run itself will report it
            _LOG.warning(
                "session %s: cannot read its earlier events: %s", subject.session_id, error
            )
        self.running += 1
        try:
            yield RunObserver(subject, fold, self._listeners)
        finally:
            self.running -= 1
            self._folds.put(subject.session_id, fold)


async def catch_up(log: ReadableLog, session_id: str, fold: SpanFold) -> None:
    """Fold up to the end of the log. Other processes have reported the spans that they ended, and
    events before the last moment without open spans are not read.

    Raises: SessionNotFound.
    """
    status_events = await log.read(session_id, after=fold.seq, types=_STATUS_TYPES)
    busy = {id_ for id_, thread in fold.threads.items() if thread.run is not None}
    settled = _last_idle_seq(status_events, busy=busy)
    for event in status_events:
        if event.seq <= settled:
            fold.apply(event)
    if settled:
        fold.forget_open()
    events_ = await log.read(session_id, after=max(settled, fold.seq), types=SPAN_TYPES)
    for event in events_:
        fold.apply(event)


def _last_idle_seq(status_events: Sequence[Event], *, busy: set[str]) -> int:
    """The seq of the last event after which no thread ran or waited."""
    idle_seq = 0
    for event in status_events:
        match event.payload:
            case events.StatusRunning():
                busy.add(event.thread_id)
            case events.ThreadStatusRunning(session_thread_id=thread_id):
                busy.add(thread_id)
            case events.StatusIdle(stop_reason=stop):
                _settle(busy, event.thread_id, stop)
            case events.ThreadStatusIdle(session_thread_id=thread_id, stop_reason=stop):
                _settle(busy, thread_id, stop)
            case _:
                continue
        if not busy:
            idle_seq = event.seq
    return idle_seq


def _settle(busy: set[str], thread_id: str, stop: events.StopReason) -> None:
    if stop.type == "requires_action":
        busy.add(thread_id)
    else:
        busy.discard(thread_id)
