"""Wake-ups for followers. A signal is only a hint to read again: correctness comes from seq."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from weakref import WeakSet

import anyio
from msgspec import Struct, field

_LEAST_SWEPT = 256
"""Above this number of sessions, those without followers are removed from time to time."""


class SessionHeads(NamedTuple):
    """The last seq of a session's log, and the number of events that its inbox ever got."""

    seq: int
    inbox: int


class Watch(Struct, eq=False, weakref=True):
    """One follower of one session. A change between two waits is not missed."""

    pokes: int = 0
    """How often the session, or its inbox, may have changed."""
    _heard: anyio.Event = field(default_factory=anyio.Event)

    def poke(self) -> None:
        self.pokes += 1
        self._heard.set()

    def nudge(self) -> None:
        """Wake the follower although the session has not changed."""
        self._heard.set()

    async def wait(self) -> None:
        await self._heard.wait()
        self._heard = anyio.Event()


class Signals:
    """Which followers watch which sessions. A follower that is garbage-collected is removed."""

    def __init__(self) -> None:
        self._followers: dict[str, WeakSet[Watch]] = {}
        self._inboxes: dict[str, WeakSet[Watch]] = {}
        """Followers that only watch the inbox."""
        self._heads: Mapping[str, SessionHeads] = {}
        self._arrived = anyio.Event()
        self._sweep_at = _LEAST_SWEPT

    def watch(self, session_id: str, *, is_inbox_only: bool = False) -> Watch:
        watch = Watch()
        watches = self._inboxes if is_inbox_only else self._followers
        watches.setdefault(session_id, WeakSet()).add(watch)
        if len(self._followers) + len(self._inboxes) >= self._sweep_at:
            self._sweep_at = max(_LEAST_SWEPT, 2 * len(self.watched()))
        self._arrived.set()
        return watch

    def poke(self, session_ids: Iterable[str], *, is_inbox: bool = True) -> None:
        """`is_inbox`: the inbox may have changed, too, not only the log."""
        for session_id in session_ids:
            for watch in tuple(self._followers.get(session_id, ())):
                watch.poke()
            if is_inbox:
                for watch in tuple(self._inboxes.get(session_id, ())):
                    watch.poke()

    def compare(self, heads: Mapping[str, SessionHeads]) -> None:
        """Poke followers of sessions that have changed or were deleted since the last call."""
        for session_id in self.watched():
            before, now = self._heads.get(session_id), heads.get(session_id)
            if before is None or before != now:
                is_inbox = before is None or now is None or before.inbox != now.inbox
                self.poke([session_id], is_inbox=is_inbox)
        self._heads = heads

    def watched(self) -> list[str]:
        """Sessions that have followers; the others are removed."""
        for kind in (self._followers, self._inboxes):
            for session_id in [key for key, watches in kind.items() if not watches]:
                del kind[session_id]
        return [*{**self._followers, **self._inboxes}]

    def has_followers(self) -> bool:
        """Whether anyone watches a log, not only the inbox of a session that it runs."""
        return any(self._followers.values())

    async def someone(self) -> None:
        """Return when there is a follower."""
        while not (self.has_followers() or any(self._inboxes.values())):
            if self._arrived.is_set():  # never replace an event that another task waits for
                self._arrived = anyio.Event()
            await self._arrived.wait()
