"""The event sink of a running session: all its threads write through it, in one order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from mainspring.core.envelope import Event
from mainspring.core.errors import Conflict
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.log.writer import Writer


def ignore_event(_: Event) -> None:
    return None


@dataclass(slots=True, kw_only=True)
class EventSink:
    writer: Writer
    thread_tree: ThreadTree
    on_event: Callable[[Event], None] = ignore_event
    """Called with every event of this run, in order, once it is durable."""
    _waiting: list[Event] = field(default_factory=list[Event], init=False)
    _stored: set[str] = field(default_factory=set[str], init=False)
    _store_lock: anyio.Lock = field(default_factory=anyio.Lock, init=False)

    def apply(self, event: Event) -> None:
        """Apply an event to the threads; it already has its position in the log."""
        self.thread_tree.apply(event)
        self._waiting.append(event)

    async def store_blob(self, digest: str, content: bytes) -> None:
        """Store a JSON blob that the log refers to; once, if several threads share it."""
        async with self._store_lock:  # a second caller waits until the blob is stored
            if digest not in self._stored:
                await self.writer.put_blob(content, media_type="application/json")
                self._stored.add(digest)

    async def commit(self) -> None:
        """Write everything that is staged, of all threads.

        Raises:
            Conflict: an earlier commit failed, and the events staged after it are lost.
        """
        if self.writer.commit_error is not None:  # events staged since depend on lost ones
            lost_seq = max((event.seq for event in self._waiting), default=0)
            conflict = Conflict(
                self.writer.session_id, expected=lost_seq, actual=self.writer.head.seq
            )
            raise conflict from self.writer.commit_error
        await self.writer.commit()
        durable = self.writer.head.seq
        durable_events = [event for event in self._waiting if event.seq <= durable]
        del self._waiting[: len(durable_events)]
        for event in durable_events:
            self.on_event(event)
