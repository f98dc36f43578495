"""The store over one SQLite file: one connection writes, with group commit; a few read."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import anyio
from anyio import CancelScope

from mainspring.core.errors import BlobNotFound, StoreFailed
from mainspring.log.provenance import PROCESS_KEY, Provenance
from mainspring.log.records import Records
from mainspring.log.sqlite import queries, text_index
from mainspring.log.sqlite.commits import AdaptiveThreads, CommitQueue
from mainspring.log.sqlite.connect import connect, prepare, translate_errors
from mainspring.log.sqlite.records import LONG_BYTES, SqliteRecords
from mainspring.log.store import (
    ActivityNote,
    Append,
    EventRange,
    Head,
    InboxItem,
    IndexedText,
    Lease,
    LogSearchHit,
    Row,
    SessionRow,
    SessionScope,
)
from mainspring.log.task_groups import run_in_background
from mainspring.log.wakeup_signals import Signals, Watch

T = TypeVar("T")

_READERS = 4  # reads at once, each with a connection of its own
_FEW_ROWS = 50  # read on the event loop; more go to a thread
_CHECKPOINT_JOBS = 500  # commits between two checkpoints of the journal
_POLL_SECONDS = 0.005  # between looks for another process's events while it writes
_QUIET_POLL_SECONDS = 0.02
"""Used when no other process has written for `_QUIET_SECONDS`, as is usual."""
_QUIET_SECONDS = 1.0  # since another process's last write
_INBOX_POLL_SECONDS = 0.025
"""Used while only inboxes are watched: a client's event may take a moment longer."""
_RETRY_SECONDS = 1.0  # after a failed poll
_POLL_SHARE = 10
"""Polling takes at most 1/10 of the time, however many sessions are followed."""


class SqliteStore:
    """`log/store.py` documents the methods. Create it with `open_sqlite`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, provenance: Provenance) -> None:
        self.path = path
        self.provenance = provenance
        self.signals = Signals()
        self._commits = CommitQueue(path, connection, self._has_one_writer)
        self._leases: set[tuple[str, int]] = set()  # of this process, by session and epoch
        self._adaptive_threads = AdaptiveThreads()
        self._checkpointed = 0
        self._checkpoint_due = anyio.Event()
        self._readers = anyio.CapacityLimiter(_READERS)
        self._idle: list[sqlite3.Connection] = []
        self.records: Records = SqliteRecords(
            self._read_inline, self._read, self._write, provenance
        )

    @asynccontextmanager
    async def transaction(self, *, writes: bool) -> AsyncGenerator[SqliteStore, None]:
        connection = await anyio.to_thread.run_sync(_begin, self.path, writes)
        try:
            yield _TransactionStore(self.path, connection, self.provenance)
            if writes:
                await anyio.to_thread.run_sync(_commit, self.path, connection)
        finally:
            connection.close()

    async def create(
        self,
        session: SessionRow,
        rows: Sequence[Row],
        *,
        blobs: Mapping[str, bytes] = MappingProxyType({}),
        inbox: Sequence[InboxItem] = (),
    ) -> None:
        await self._write(lambda db: queries.create(db, session, rows, blobs, inbox))

    async def session(self, session_id: str) -> SessionRow:
        return await self._read_inline(lambda db: queries.session(db, session_id))

    async def sessions(
        self, *, before: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        return await self._read(lambda db: queries.sessions(db, before, limit))

    async def changed(self, *, since: int, limit: int = 1000) -> list[SessionRow]:
        return await self._read(lambda db: queries.changed(db, since, limit))

    async def latest(self, *, upto: int, limit: int) -> list[SessionRow]:
        return await self._read(lambda db: queries.latest(db, upto, limit))

    async def in_scope(self, scope: SessionScope, session_ids: Sequence[str]) -> list[str]:
        return await self._read(lambda db: text_index.in_scope(db, scope, session_ids))

    async def rows(self, session_ids: Sequence[str]) -> list[SessionRow]:
        return await self._read(lambda db: queries.rows(db, session_ids))

    async def pending_types(self, session_ids: Sequence[str]) -> list[tuple[str, str]]:
        return await self._read(lambda db: queries.pending_types(db, session_ids))

    async def note_activity(self, *notes: ActivityNote) -> None:
        await self._write(lambda db: queries.note_activity(db, notes))

    async def first_pending(
        self, session_ids: Sequence[str], types: frozenset[str]
    ) -> dict[str, InboxItem]:
        found = await self._read(lambda db: queries.first_pending(db, session_ids, types))
        return {id_: item for id_, item in found if self.provenance.is_own_item(id_, item)}

    async def read_many(
        self, event_ranges: Sequence[tuple[str, int, int]], *, types: frozenset[str], limit: int
    ) -> list[tuple[int, Row]]:
        return await self._read(lambda db: queries.read_many(db, event_ranges, types, limit))

    async def runnable(self, *, limit: int = 100) -> list[str]:
        return await self._read(lambda db: queries.runnable(db, limit))

    async def stale(self, *, updated_before: int, limit: int = 100) -> list[str]:
        return await self._read(lambda db: queries.stale(db, updated_before, limit))

    async def expire(self, session_ids: Sequence[str], *, updated_before: int) -> list[str]:
        expired = [
            session_id
            for session_id in session_ids
            if await self._write(partial(_expire, session_id, updated_before))
        ]
        if expired:
            # only once, because it rewrites the whole index
            await self._write(text_index.purge_deleted)
            await self._truncate_wal()
            self.signals.notify(expired)
        return expired

    async def delete(self, session_id: str) -> None:
        await self._write(partial(_delete, session_id))
        await self._truncate_wal()
        self.signals.notify([session_id])

    async def _truncate_wal(self) -> None:
        """Remove deleted content from the write-ahead log as well."""
        await self._read(lambda db: db.execute("pragma wal_checkpoint(truncate)").fetchall())

    async def append(self, append: Append) -> None:
        if append.redacted_bodies or append.removed_blobs:
            with CancelScope(shield=True):
                await self._write(lambda db: queries.append(db, append))
                await self._write(text_index.purge_deleted)
                await self._truncate_wal()
        else:
            await self._write(lambda db: queries.append(db, append))
        self.signals.notify([append.lease.session_id], is_inbox=False)

    async def read(self, event_range: EventRange) -> list[Row]:
        run_read = self._read_inline if event_range.limit <= _FEW_ROWS else self._read
        return await run_read(lambda db: queries.read(db, event_range))

    async def submit(self, session_id: str, item: InboxItem) -> InboxItem:
        stored = await self._write(lambda db: queries.submit(db, session_id, item))
        self.signals.notify([session_id])
        return stored

    async def pending(
        self,
        session_id: str,
        *,
        after: int = 0,
        types: frozenset[str] | None = None,
        limit: int = 1000,
    ) -> list[InboxItem]:
        items = await self._read_inline(
            lambda db: queries.pending(db, session_id, after, types, limit)
        )
        return [item for item in items if self.provenance.is_own_item(session_id, item)]

    async def inbox(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[InboxItem]:
        return await self._read(lambda db: queries.inbox(db, session_id, after, limit))

    async def adopt(self, session_id: str, head: Head, items: Sequence[InboxItem]) -> None:
        mac = self.provenance.log_mac(session_id, head)
        await self._write(lambda db: queries.adopt(db, session_id, head, mac, items))

    async def acquire(
        self,
        session_id: str,
        *,
        owner: str,
        seconds: float,
        instead_of: tuple[str, int] | None = None,
    ) -> Lease:
        lease = await self._write(
            lambda db: queries.acquire(db, session_id, owner, seconds, instead_of)
        )
        self._leases.add((session_id, lease.epoch))
        return lease

    async def renew(self, lease: Lease) -> None:
        if not lease.seconds:  # the lease will expire
            self._leases.discard((lease.session_id, lease.epoch))
        await self._write(lambda db: queries.renew(db, lease))

    async def release(self, lease: Lease) -> None:
        self._leases.discard((lease.session_id, lease.epoch))
        await self._write(lambda db: queries.release(db, lease))

    def _has_one_writer(self) -> bool:
        return len(self._leases) == 1 and not self.signals.has_followers()

    async def put_blob(self, session_id: str, digest: str, content: bytes) -> None:
        await self._write(
            lambda db: queries.put_blob(db, session_id, digest, content),
            is_long=len(content) > LONG_BYTES,
        )

    async def blob(self, digest: str) -> bytes:
        row = await self._read(
            lambda db: db.execute("select content from blob where hash = ?", (digest,)).fetchone()
        )
        if row is None:
            raise BlobNotFound(digest)
        return bytes(row[0])

    async def blobs(self, session_id: str) -> list[str]:
        return await self._read(lambda db: queries.blobs(db, session_id))

    async def unindexed(self, session_id: str | None, *, limit: int) -> list[tuple[str, Row]]:
        return await self._read(lambda db: text_index.unindexed(db, session_id, limit))

    async def index(
        self, indexed_texts: Sequence[IndexedText], upto: Sequence[tuple[str, int]]
    ) -> None:
        await self._write(lambda db: text_index.index(db, indexed_texts, upto))

    async def search(
        self,
        words: Sequence[str],
        *,
        event_ranges: Sequence[EventRange],
        limit: int,
        is_loose: bool = False,
        scope: SessionScope | None = None,
    ) -> list[LogSearchHit]:
        query = text_index.match_query(words, is_loose=is_loose)
        return await self._read(lambda db: text_index.search(db, query, event_ranges, scope, limit))

    def watch(self, session_id: str, *, is_inbox_only: bool = False) -> Watch:
        return self.signals.watch(session_id, is_inbox_only=is_inbox_only)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await anyio.to_thread.run_sync(self._read_now, work, limiter=self._readers)

    def _read_now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translate_errors(self.path):
            try:  # not `if`: another thread may take the last one in between
                connection = self._idle.pop()
            except IndexError:
                connection = connect(self.path)
            try:
                return work(connection)
            finally:
                self._idle.append(connection)

    async def _read_inline(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read a few rows on the event loop, which is cheaper than a thread."""
        return await self._adaptive_threads.run(partial(self._read_now, work))

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, is_long: bool = False) -> T:
        result = await self._commits.run(work, is_long=is_long)
        if self._commits.count >= self._checkpointed + _CHECKPOINT_JOBS:
            self._checkpoint_due.set()
        return result

    async def poll(self) -> None:
        """Wake followers of sessions that other processes have changed, until cancelled."""
        last_version = 0
        changed_at = time.monotonic()
        while True:
            await self.signals.wait_for_follower()
            begin = time.monotonic()
            try:
                if (version := self._commits.foreign_version()) != last_version:
                    watched = self.signals.watched()
                    heads = await self._read_inline(partial(queries.heads, session_ids=watched))
                    self.signals.compare(heads)
                    last_version, changed_at = version, begin
            except StoreFailed:
                await anyio.sleep(_RETRY_SECONDS)  # followers get the error when they read
                continue
            seconds = _QUIET_POLL_SECONDS if begin - changed_at > _QUIET_SECONDS else _POLL_SECONDS
            if not self.signals.has_followers():
                seconds = _INBOX_POLL_SECONDS
            await anyio.sleep(max(seconds, (time.monotonic() - begin) * _POLL_SHARE))

    async def checkpoint(self) -> None:
        """Checkpoint the write-ahead log on another connection, so that writers need not wait."""
        while True:
            await self._checkpoint_due.wait()
            self._checkpoint_due, self._checkpointed = anyio.Event(), self._commits.count
            with suppress(StoreFailed):  # nothing is lost, and the next checkpoint may succeed
                await self._read(lambda db: db.execute("pragma wal_checkpoint").fetchall())

    def close(self) -> None:
        self._commits.close()
        for connection in self._idle:
            connection.close()


class _TransactionStore(SqliteStore):
    """The store inside one transaction of one connection; calls are serialized."""

    def __init__(self, path: Path, connection: sqlite3.Connection, provenance: Provenance) -> None:
        super().__init__(path, connection, provenance)
        self._connection = connection
        self._lock = threading.Lock()

    def _read_now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, translate_errors(self.path):
            return work(self._connection)

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, is_long: bool = False) -> T:
        return await self._read(work)


def _begin(path: Path, writes: bool) -> sqlite3.Connection:
    with translate_errors(path):
        connection = connect(path)
        try:
            if not writes:
                connection.execute("pragma query_only = on")
            connection.execute("begin immediate" if writes else "begin")
            # a transaction begins with its first query
            connection.execute("select count(*) from sqlite_master")
        except BaseException:
            connection.close()
            raise
        return connection


def _commit(path: Path, connection: sqlite3.Connection) -> None:
    with translate_errors(path):
        connection.execute("commit")


def _delete(session_id: str, db: sqlite3.Connection) -> None:
    if queries.delete(db, session_id):
        text_index.purge_deleted(db)


def _expire(session_id: str, updated_before: int, db: sqlite3.Connection) -> bool:
    return queries.expire(db, session_id, updated_before)


@asynccontextmanager
async def open_sqlite(path: Path, *, key: bytes = PROCESS_KEY) -> AsyncGenerator[SqliteStore, None]:
    """Open the file at `path`, creating it if it does not exist. `key` is the installation's.

    Raises:
        StoreMismatch, StoreReadOnly, StoreUnavailable: the message says why it is unusable.
    """
    connection = await anyio.to_thread.run_sync(prepare, path)
    store = SqliteStore(path, connection, Provenance(key))
    try:
        async with run_in_background(store.poll, store.checkpoint):
            yield store
    finally:
        store.close()
