"""Wake-ups between processes: LISTEN on a separate connection, NOTIFY after the commit.

NOTIFY is not part of an append's transaction: it locks the whole database during the commit, so
the appends of all sessions would run one after another. Polling covers lost notifications.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import anyio
import psycopg
from anyio import CancelScope

from mainspring.core.errors import StoreFailed
from mainspring.log.postgres import queries
from mainspring.log.postgres.connect import Connection, Pool, connect
from mainspring.log.wakeup_signals import SessionHeads, Signals

POLL_SECONDS = 1.0  # in case a notice was lost with its connection
_GATHER_SECONDS = 0.01  # notices are sent together
# Before the listening connection is opened again.
_BACKOFF_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
_PAYLOAD_BYTES = 7900
"""PostgreSQL accepts fewer than 8000."""
_SEND: Final = "select pg_notify('mainspring', payload) from unnest(%s::text[]) payload"


class Wakeups:
    def __init__(self, pool: Pool, signals: Signals, *, name: str) -> None:
        self._pool = pool
        self._signals = signals
        self._name = name
        """A prefix of this process's payloads, so that it ignores its own notifications."""
        self._changed: set[str] = set()
        self._has_changes = anyio.Event()

    def notify(self, session_id: str, *, is_inbox: bool = True) -> None:
        """Notify followers of a changed session: at once in this process, soon in others."""
        self._signals.notify([session_id], is_inbox=is_inbox)
        self._changed.add(session_id)
        self._has_changes.set()

    async def announce(self) -> None:
        """Notify other processes, until cancelled."""
        failures = 0
        while True:
            await self._has_changes.wait()
            self._has_changes = anyio.Event()
            try:
                await self.send()
                failures = 0
                await anyio.sleep(_GATHER_SECONDS)
            except StoreFailed:
                await anyio.sleep(_backoff(failures))
                failures += 1

    async def send(self) -> None:
        """Notify other processes of the sessions that changed since the last call."""
        changed, self._changed = self._changed, set()
        if not changed:
            return
        payloads = list(_pack_session_ids(self._name, sorted(changed)))

        async def notify(db: Connection) -> None:
            await db.shared_cursor.execute(_SEND, [payloads], prepare=True)

        try:
            await self._pool.run(notify)
        except BaseException:
            self._changed |= changed
            self._has_changes.set()
            raise

    async def listen(self) -> None:
        """Pass on notifications of other processes, until cancelled."""
        failures = 0

        def reset_failures() -> None:
            nonlocal failures
            failures = 0

        while True:
            # a process that follows nothing needs no connection
            await self._signals.wait_for_follower()
            try:
                await self._listen_until_error(reset_failures)
            except (psycopg.Error, OSError):
                await anyio.sleep(_backoff(failures))
                failures += 1

    async def _listen_until_error(self, reset_failures: Callable[[], None]) -> None:
        connection = await connect(self._pool.address)
        try:
            await connection.execute("listen mainspring")
            reset_failures()
            self._signals.notify(self._signals.watched())  # earlier notifications were lost
            async for notification in connection.notifies():
                # any client of the database may send notifications
                sender, _, session_ids = notification.payload.partition(" ")
                if sender != self._name:
                    self._signals.notify(session_ids.split())
        finally:
            with CancelScope(shield=True):
                await connection.close()

    async def poll(self) -> None:
        """Poll watched sessions, until cancelled."""
        while True:
            await self._signals.wait_for_follower()
            with suppress(StoreFailed):  # followers get the error when they read
                self._signals.compare(await self._pool.run(self._heads))
            await anyio.sleep(POLL_SECONDS)

    async def _heads(self, db: Connection) -> dict[str, SessionHeads]:
        return await queries.heads(db, self._signals.watched())


def _backoff(failures: int) -> float:
    return _BACKOFF_SECONDS[min(failures, len(_BACKOFF_SECONDS) - 1)]


def _pack_session_ids(name: str, session_ids: Iterable[str]) -> Iterable[str]:
    """Pack ids into as few payloads as possible."""
    payload = name
    for session_id in session_ids:
        if len(payload) + len(session_id) + 1 > _PAYLOAD_BYTES:
            yield payload
            payload = name
        payload += f" {session_id}"
    yield payload
