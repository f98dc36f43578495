"""Notices streams that have gone silent. One task watches all streams of a client: a time limit
for each chunk would cost as much as reading it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import anyio

if TYPE_CHECKING:
    from anyio.abc import TaskGroup


class WatchedStream(Protocol):
    @property
    def silent_at(self) -> float:
        """By the monotonic clock; later after every chunk."""
        ...

    def on_silence(self) -> None:
        """Called at that time; afterwards `silent_at` is later."""
        ...


class SilenceWatch:
    """Streams that are added later must not be silent earlier: they all have the same limits."""

    def __init__(self) -> None:
        self._streams: set[WatchedStream] = set()
        self._last_silent_at = 0.0
        """Of the stream added last. The task stays until then, so that a turn starts none."""
        self._is_running = False

    def add(self, stream: WatchedStream, group: TaskGroup) -> None:
        self._streams.add(stream)
        self._last_silent_at = stream.silent_at
        if not self._is_running:
            self._is_running = True
            group.start_soon(self._run)

    def remove(self, stream: WatchedStream) -> None:
        self._streams.discard(stream)

    async def _run(self) -> None:
        try:
            while self._streams or time.monotonic() < self._last_silent_at:
                next_time = min(
                    (stream.silent_at for stream in self._streams), default=self._last_silent_at
                )
                await anyio.sleep(max(0.0, next_time - time.monotonic()))
                now = time.monotonic()
                for stream in [item for item in self._streams if item.silent_at <= now]:
                    stream.on_silence()
        finally:
            self._is_running = False
