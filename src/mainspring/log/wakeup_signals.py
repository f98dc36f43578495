"""Wake-ups for followers. A signal is only a hint to read again: correctness comes from seq."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import WeakSet

import anyio


class Watch:
    """One follower's ear on one session. Hears everything since it last stopped waiting."""

    __slots__ = ("__weakref__", "_heard", "pokes")

    def __init__(self) -> None:
        self._heard = anyio.Event()
        self.pokes = 0
        """How often the session may have changed."""

    def poke(self) -> None:
        self.pokes += 1
        self._heard.set()

    def nudge(self) -> None:
        """Wake the follower for a reason of its own; the session has not changed."""
        self._heard.set()

    async def wait(self) -> None:
        await self._heard.wait()
        self._heard = anyio.Event()


class Signals:
    """Who listens to what. A follower that is dropped stops listening by itself."""

    def __init__(self) -> None:
        self._watches: dict[str, WeakSet[Watch]] = {}
        self.arrivals = 0
        """Counts followers that came; tells a poller that it has somebody new."""
        self._heads: Mapping[str, int] = {}
        self._arrived = anyio.Event()

    def watch(self, session_id: str) -> Watch:
        watch = Watch()
        self._watches.setdefault(session_id, WeakSet()).add(watch)
        self.arrivals += 1
        self._arrived.set()
        return watch

    def poke(self, session_ids: Iterable[str]) -> None:
        for session_id in session_ids:
            for watch in tuple(self._watches.get(session_id, ())):
                watch.poke()

    def compare(self, heads: Mapping[str, int]) -> None:
        """Poke followers of sessions whose head is not what it was, or that are gone."""
        for session_id in self.watched():
            if self._heads.get(session_id, -1) != heads.get(session_id):
                self.poke([session_id])
        self._heads = heads

    def watched(self) -> list[str]:
        for session_id in [key for key, watches in self._watches.items() if not watches]:
            del self._watches[session_id]
        return list(self._watches)

    async def someone(self) -> None:
        """Return when there is a follower to work for."""
        while not any(self._watches.values()):
            if self._arrived.is_set():  # never replace one that somebody else waits for
                self._arrived = anyio.Event()
            await self._arrived.wait()
