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
        """On the monotonic clock; moved forward after every chunk."""
        ...

    def on_silence(self) -> None:
        """Called at that time; it must move `silent_at` forward."""
        ...


class SilenceWatch:
    """All streams have the same limits, so one that is added later never becomes silent earlier."""

    def __init__(self) -> None:
        self._streams: set[WatchedStream] = set()
        self._last_silent_at = 0.0
        """The `silent_at` of the newest stream. The task runs until then, so that not every turn
        starts one."""
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
