"""Wake-ups for followers. A wake-up is only a hint to read again: `seq` ensures correctness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from weakref import WeakSet

import anyio
from msgspec import Struct, field

_MIN_SWEEP = 256
"""Above this number of sessions, `watch` sometimes removes those without followers."""


class SessionHeads(NamedTuple):
    """The last seq of a session's log, and the number of events that its inbox has received."""

    seq: int
    inbox: int


class Watch(Struct, eq=False, weakref=True):
    """One follower of one session. A change between two waits is not missed."""

    changes: int = 0
    """How often the session, or its inbox, may have changed."""
    _wakeup: anyio.Event = field(default_factory=anyio.Event)

    def notify(self) -> None:
        self.changes += 1
        self._wakeup.set()

    def wake(self) -> None:
        """Wake the follower although the session has not changed."""
        self._wakeup.set()

    async def wait(self) -> None:
        await self._wakeup.wait()
        self._wakeup = anyio.Event()


class Signals:
    """Which followers watch which sessions. A garbage-collected follower is removed."""

    def __init__(self) -> None:
        self._followers: dict[str, WeakSet[Watch]] = {}
        self._inboxes: dict[str, WeakSet[Watch]] = {}
        """Followers that only watch the inbox."""
        self._heads: Mapping[str, SessionHeads] = {}
        self._follower_added = anyio.Event()
        self._sweep_at = _MIN_SWEEP

    def watch(self, session_id: str, *, is_inbox_only: bool = False) -> Watch:
        watch = Watch()
        watches = self._inboxes if is_inbox_only else self._followers
        watches.setdefault(session_id, WeakSet()).add(watch)
        if len(self._followers) + len(self._inboxes) >= self._sweep_at:
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self.watched()))
        self._follower_added.set()
        return watch

    def notify(self, session_ids: Iterable[str], *, is_inbox: bool = True) -> None:
        """`is_inbox`: the inbox may have changed as well as the log."""
        for session_id in session_ids:
            for watch in tuple(self._followers.get(session_id, ())):
                watch.notify()
            if is_inbox:
                for watch in tuple(self._inboxes.get(session_id, ())):
                    watch.notify()

    def compare(self, heads: Mapping[str, SessionHeads]) -> None:
        """Notify followers of sessions that have changed or were deleted since the last call."""
        for session_id in self.watched():
            before, now = self._heads.get(session_id), heads.get(session_id)
            if before is None or before != now:
                is_inbox = before is None or now is None or before.inbox != now.inbox
                self.notify([session_id], is_inbox=is_inbox)
        self._heads = heads

    def watched(self) -> list[str]:
        """The sessions that have followers. Removes the others."""
        for watches in (self._followers, self._inboxes):
            for session_id in [key for key, followers in watches.items() if not followers]:
                del watches[session_id]
        return [*{**self._followers, **self._inboxes}]

    def has_followers(self) -> bool:
        """Whether anyone watches a log, rather than only the inbox of a session that it runs."""
        return any(self._followers.values())

    async def wait_for_follower(self) -> None:
        """Return when there is a follower."""
        while not (self.has_followers() or any(self._inboxes.values())):
            if self._follower_added.is_set():  # never replace an event that another task waits for
                self._follower_added = anyio.Event()
            await self._follower_added.wait()
