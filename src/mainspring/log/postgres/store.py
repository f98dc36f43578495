"""The store over a PostgreSQL database. Any number of processes on any machines can share it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from anyio import CancelScope
from psycopg import IsolationLevel, errors

from mainspring.core import ids
from mainspring.core.errors import StoreFailed, StoreUnavailable
from mainspring.log.postgres import queries, statements, text_index
from mainspring.log.postgres.connect import (
    Address,
    Connection,
    Pool,
    SingleConnectionPool,
    connect,
    translate_errors,
)
from mainspring.log.postgres.migrations import prepare
from mainspring.log.postgres.records import PostgresRecords
from mainspring.log.postgres.wakeups import Wakeups
from mainspring.log.provenance import PROCESS_KEY, Provenance
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

_MAX_ATTEMPTS = 8  # after conflicts with concurrent writes


class PostgresStore:
    """`log/store.py` documents the methods. Create it with `open_postgres`."""

    def __init__(self, pool: Pool, provenance: Provenance) -> None:
        self.provenance = provenance
        self.address = pool.address
        self.signals = Signals()
        self.wakeups = Wakeups(pool, self.signals, name=ids.new_id(ids.WORKER))
        self._pool = pool
        self.records = PostgresRecords(pool.read, self._run_retrying_conflicts, provenance)

    @asynccontextmanager
    async def transaction(self, *, writes: bool) -> AsyncGenerator[PostgresStore, None]:
        with translate_errors(self.address):
            async with await connect(self.address) as connection:
                await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
                await connection.set_read_only(not writes)
                async with connection.transaction():
                    # a transaction begins with its first query
                    await connection.execute("select 1")
                    pool = SingleConnectionPool(self.address, connection)
                    yield PostgresStore(pool, self.provenance)

    async def create(
        self,
        session: SessionRow,
        rows: Sequence[Row],
        *,
        blobs: Mapping[str, bytes] = MappingProxyType({}),
        inbox: Sequence[InboxItem] = (),
    ) -> None:
        await self._run_retrying_conflicts(
            lambda db: queries.create(db, session, rows, blobs, inbox)
        )

    async def session(self, session_id: str) -> SessionRow:
        return await self._pool.read(lambda db: queries.session(db, session_id))

    async def sessions(
        self, *, before: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        return await self._pool.read(lambda db: queries.sessions(db, before, limit))

    async def changed(self, *, since: int, limit: int = 1000) -> list[SessionRow]:
        return await self._pool.read(lambda db: queries.changed(db, since, limit))

    async def latest(self, *, upto: int, limit: int) -> list[SessionRow]:
        return await self._pool.read(lambda db: queries.latest(db, upto, limit))

    async def in_scope(self, scope: SessionScope, session_ids: Sequence[str]) -> list[str]:
        return await self._pool.read(lambda db: text_index.in_scope(db, scope, session_ids))

    async def rows(self, session_ids: Sequence[str]) -> list[SessionRow]:
        return await self._pool.read(lambda db: queries.rows(db, session_ids))

    async def pending_types(self, session_ids: Sequence[str]) -> list[tuple[str, str]]:
        return await self._pool.read(lambda db: queries.pending_types(db, session_ids))

    async def note_activity(self, *notes: ActivityNote) -> None:
        await self._pool.run(lambda db: queries.note_activity(db, notes))

    async def first_pending(
        self, session_ids: Sequence[str], types: frozenset[str]
    ) -> dict[str, InboxItem]:
        found = await self._pool.read(lambda db: queries.first_pending(db, session_ids, types))
        return {id_: item for id_, item in found if self.provenance.is_own_item(id_, item)}

    async def read_many(
        self, event_ranges: Sequence[tuple[str, int, int]], *, types: frozenset[str], limit: int
    ) -> list[tuple[int, Row]]:
        return await self._pool.read(lambda db: queries.read_many(db, event_ranges, types, limit))

    async def runnable(self, *, limit: int = 100) -> list[str]:
        return await self._pool.read(lambda db: queries.runnable(db, limit))

    async def stale(self, *, updated_before: int, limit: int = 100) -> list[str]:
        return await self._pool.read(lambda db: queries.stale(db, updated_before, limit))

    async def expire(self, session_ids: Sequence[str], *, updated_before: int) -> list[str]:
        expired: list[str] = []
        for session_id in session_ids:
            if await self._run_retrying_conflicts(partial(_expire, session_id, updated_before)):
                expired.append(session_id)
                self.wakeups.notify(session_id)
        return expired

    async def delete(self, session_id: str) -> None:
        await self._run_retrying_conflicts(lambda db: queries.delete(db, session_id))
        self.wakeups.notify(session_id)

    async def append(self, append: Append) -> None:
        is_plain = not append.redacted_bodies and not append.removed_blobs
        work = queries.append if is_plain else _append_redaction
        with CancelScope(shield=True):  # also while it waits for a connection
            await self._pool.run(lambda db: work(db, append))
        self.wakeups.notify(append.lease.session_id, is_inbox=False)

    async def read(self, event_range: EventRange) -> list[Row]:
        return await self._pool.read(lambda db: queries.read(db, event_range))

    async def submit(self, session_id: str, item: InboxItem) -> InboxItem:
        stored = await self._run_retrying_conflicts(lambda db: queries.submit(db, session_id, item))
        self.wakeups.notify(session_id)
        return stored

    async def pending(
        self,
        session_id: str,
        *,
        after: int = 0,
        types: frozenset[str] | None = None,
        limit: int = 1000,
    ) -> list[InboxItem]:
        items = await self._pool.read(
            lambda db: queries.pending(db, session_id, after, types, limit)
        )
        return [item for item in items if self.provenance.is_own_item(session_id, item)]

    async def inbox(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[InboxItem]:
        return await self._pool.read(lambda db: queries.inbox(db, session_id, after, limit))

    async def adopt(self, session_id: str, head: Head, items: Sequence[InboxItem]) -> None:
        mac = self.provenance.log_mac(session_id, head)
        await self._pool.run(lambda db: queries.adopt(db, session_id, head, mac, items))

    async def acquire(
        self,
        session_id: str,
        *,
        owner: str,
        seconds: float,
        instead_of: tuple[str, int] | None = None,
    ) -> Lease:
        return await self._pool.run(
            lambda db: queries.acquire(db, session_id, owner, seconds, instead_of)
        )

    async def renew(self, lease: Lease) -> None:
        await self._pool.run(lambda db: queries.renew(db, lease))

    async def release(self, lease: Lease) -> None:
        await self._pool.run(lambda db: queries.release(db, lease))

    async def put_blob(self, session_id: str, digest: str, content: bytes) -> None:
        await self._run_retrying_conflicts(
            lambda db: queries.put_blob(db, session_id, digest, content)
        )

    async def blob(self, digest: str) -> bytes:
        return await self._pool.read(lambda db: queries.blob(db, digest))

    async def blobs(self, session_id: str) -> list[str]:
        return await self._pool.read(lambda db: queries.blobs(db, session_id))

    async def unindexed(self, session_id: str | None, *, limit: int) -> list[tuple[str, Row]]:
        return await self._pool.read(lambda db: text_index.unindexed(db, session_id, limit))

    async def index(
        self, indexed_texts: Sequence[IndexedText], upto: Sequence[tuple[str, int]]
    ) -> None:
        await self._run_retrying_conflicts(lambda db: text_index.index(db, indexed_texts, upto))

    async def search(
        self,
        words: Sequence[str],
        *,
        event_ranges: Sequence[EventRange],
        limit: int,
        is_loose: bool = False,
        scope: SessionScope | None = None,
    ) -> list[LogSearchHit]:
        normalized = [text_index.normalize_words(word) for word in words]
        query = text_index.match_query(normalized, is_loose=is_loose)
        return await self._pool.read(
            lambda db: text_index.search(db, query, event_ranges, scope, limit)
        )

    def watch(self, session_id: str, *, is_inbox_only: bool = False) -> Watch:
        return self.signals.watch(session_id, is_inbox_only=is_inbox_only)

    async def _run_retrying_conflicts(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Retry after a conflict with a concurrent write, which the next attempt then sees."""

        async def attempt(db: Connection) -> T:
            for _ in range(_MAX_ATTEMPTS):
                try:
                    return await work(db)
                except (
                    errors.UniqueViolation,
                    errors.ForeignKeyViolation,
                    errors.DeadlockDetected,
                ):
                    continue
            raise StoreUnavailable(
                f"{self.address}: other writers kept changing the same rows; try again"
            )

        return await self._pool.run(attempt)

    async def close(self) -> None:
        with CancelScope(shield=True):
            with suppress(StoreFailed):  # other processes notice by polling
                await self.wakeups.send()
            await self._pool.close()


async def _expire(session_id: str, updated_before: int, db: Connection) -> bool:
    return await queries.expire(db, session_id, updated_before)


@asynccontextmanager
async def open_postgres(
    url: str, *, key: bytes = PROCESS_KEY, max_connections: int = 10
) -> AsyncGenerator[PostgresStore, None]:
    """Open the database at `url`, and create or migrate our tables in it if necessary.

    Following sessions takes one more connection than `max_connections`.

    Raises:
        InvalidInput: not a PostgreSQL URL.
        StoreMismatch, StoreReadOnly, StoreUnavailable: the message says why it is unusable.
    """
    address = Address.of(url)
    pool = Pool(address, size=max_connections)
    pool.add(await prepare(address))
    store = PostgresStore(pool, Provenance(key))
    try:
        async with run_in_background(
            store.wakeups.announce, store.wakeups.listen, store.wakeups.poll
        ):
            yield store
    finally:
        await store.close()


async def _append_redaction(db: Connection, append: Append) -> None:
    """The old row versions are removed when the database is vacuumed."""
    async with db.transaction():
        await queries.append(db, append)
        for seq, body in append.redacted_bodies:
            values = {"body": body, "session_id": append.lease.session_id, "seq": seq}
            for statement in statements.REDACT:
                await db.execute(statement, values)
        await db.execute(statements.REMOVE_BLOB_USES, [list(append.removed_blobs)])
        await db.execute(statements.REMOVE_BLOBS, [list(append.removed_blobs)])
