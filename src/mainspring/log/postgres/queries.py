"""The queries of the PostgreSQL store, as plain functions over a connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString, TypeAlias

from mainspring.core.errors import (
    BlobNotFound,
    Conflict,
    Fenced,
    LeaseHeld,
    SessionExists,
    SessionHasForks,
    SessionNotFound,
)
from mainspring.log.postgres import statements as sql
from mainspring.log.postgres.connect import Connection
from mainspring.log.sql_rows import session_row
from mainspring.log.store import (
    ActivityNote,
    Append,
    EventRange,
    Head,
    InboxItem,
    Lease,
    Row,
    SessionRow,
)
from mainspring.log.wakeup_signals import SessionHeads

ResultRows: TypeAlias = list[tuple[Any, ...]]
_ROW_FIELDS = len(Row._fields)


async def fetch_all(
    db: Connection, statement: LiteralString, values: Sequence[Any] | Mapping[str, Any]
) -> ResultRows:
    cursor = await db.shared_cursor.execute(statement, values, prepare=True, binary=True)
    return await cursor.fetchall()


def _columns(rows: Sequence[Row]) -> list[list[Any]]:
    return [[row[field] for row in rows] for field in range(_ROW_FIELDS)]


async def key_of(
    db: Connection, session_id: str, statement: LiteralString = sql.SESSION_KEY
) -> int:
    rows = await fetch_all(db, statement, [session_id])
    if not rows:
        raise SessionNotFound(session_id)
    return int(rows[0][0])


async def create(
    db: Connection,
    session: SessionRow,
    rows: Sequence[Row],
    blobs: Mapping[str, bytes],
    inbox: Sequence[InboxItem],
) -> None:
    if not (blobs or inbox):
        return await _create(db, session, rows)
    async with db.transaction():
        await _create(db, session, rows)
        for digest, content in blobs.items():
            await put_blob(db, session.id, digest, content)
        for item in inbox:
            await submit(db, session.id, item)


async def _create(db: Connection, session: SessionRow, rows: Sequence[Row]) -> None:
    names = ("seqs", "ids", "threads", "times", "versions", "types", "bodies", "prevs", "senders")
    key_rows = await fetch_all(
        db,
        sql.CREATE,
        {
            "id": session.id,
            "thread_id": session.thread_id,
            "created": session.created,
            "updated": session.updated,
            "seq": session.head.seq,
            "hash": session.head.hash,
            "parent_id": session.parent_id,
            "parent_seq": session.parent_seq,
            "activity": session.activity,
            "mac": session.mac,
            "status": session.status,
            **dict(zip(names, _columns(rows), strict=True)),
        },
    )
    if not key_rows:
        if session.parent_id is not None:
            await key_of(db, session.parent_id)
        raise SessionExists(session.id)


async def session(db: Connection, session_id: str) -> SessionRow:
    rows = await fetch_all(db, sql.SESSION, [session_id])
    if not rows:
        raise SessionNotFound(session_id)
    return session_row(rows[0])


async def sessions(db: Connection, before: SessionRow | None, limit: int) -> list[SessionRow]:
    cursor = (2**62, "") if before is None else (before.created, before.id)
    rows = await fetch_all(db, sql.SESSIONS, [*cursor, limit])
    return [session_row(item) for item in rows]


async def changed(db: Connection, since: int, limit: int) -> list[SessionRow]:
    return [session_row(row) for row in await fetch_all(db, sql.CHANGED, [since, limit])]


async def latest(db: Connection, upto: int, limit: int) -> list[SessionRow]:
    return [session_row(row) for row in await fetch_all(db, sql.LATEST, [upto, limit])]


async def rows(db: Connection, session_ids: Sequence[str]) -> list[SessionRow]:
    return [session_row(item) for item in await fetch_all(db, sql.ROWS, [list(session_ids)])]


async def pending_types(db: Connection, session_ids: Sequence[str]) -> list[tuple[str, str]]:
    rows = await fetch_all(db, sql.PENDING_TYPES, [list(session_ids)])
    return [(session_id, type_) for session_id, type_ in rows]


async def note_activity(db: Connection, notes: Sequence[ActivityNote]) -> None:
    columns = [[note[field] for note in notes] for field in range(len(ActivityNote._fields))]
    await db.shared_cursor.execute(sql.NOTE_ACTIVITY, columns, prepare=True)


async def first_pending(
    db: Connection, session_ids: Sequence[str], types: frozenset[str]
) -> list[tuple[str, InboxItem]]:
    found = await fetch_all(db, sql.FIRST_PENDING, [sorted(types), list(session_ids)])
    return [(session_id, InboxItem._make(item)) for session_id, *item in found]


async def read_many(
    db: Connection,
    event_ranges: Sequence[tuple[str, int, int]],
    types: frozenset[str],
    limit: int,
) -> list[tuple[int, Row]]:
    columns = [[item[field] for item in event_ranges] for field in range(3)]
    found = await fetch_all(db, sql.READ_MANY, [*columns, sorted(types), limit])
    return [(index, Row._make(row)) for index, *row in found]


async def stale(db: Connection, updated_before: int, limit: int) -> list[str]:
    return [session_id for (session_id,) in await fetch_all(db, sql.STALE, [updated_before, limit])]


async def runnable(db: Connection, limit: int) -> list[str]:
    return [session_id for (session_id,) in await fetch_all(db, sql.RUNNABLE, [limit])]


async def heads(db: Connection, session_ids: Sequence[str]) -> dict[str, SessionHeads]:
    rows = await fetch_all(db, sql.HEADS, [session_ids])
    return {session_id: SessionHeads(seq, inbox) for session_id, seq, inbox in rows}


async def delete(db: Connection, session_id: str) -> None:
    async with db.transaction():
        key = await key_of(db, session_id, sql.LOCK_SESSION)
        if forks := await fetch_all(db, sql.FORKS, [key]):
            raise SessionHasForks(session_id, tuple(name for (name,) in forks))
        await _delete(db, key)


async def expire(db: Connection, session_id: str, updated_before: int) -> bool:
    async with db.transaction():
        locked = await fetch_all(db, sql.LOCK_SESSION, [session_id])
        if not locked or not await fetch_all(db, sql.EXPIRED, [updated_before, locked[0][0]]):
            return False
        await _delete(db, locked[0][0])
        return True


async def _delete(db: Connection, key: int) -> None:
    hashes = [digest for (digest,) in await fetch_all(db, sql.DELETE_USES, [key])]
    await db.execute(sql.DELETE_BLOBS, [hashes])
    for statement in sql.DELETES:
        await db.execute(statement, [key])


async def append(db: Connection, append: Append) -> None:
    lease, rows = append.lease, append.rows
    values: list[Any] = [
        *append.head,
        rows[-1].time,
        append.activity,
        append.mac,
        append.status,
        lease.seconds,
        lease.session_id,
        *append.expected,
        lease.epoch,
    ]
    folded_items = append.folded_items
    if len(rows) <= sql.MAX_FEW_ROWS and len(folded_items) <= sql.MAX_FEW_ITEMS:
        statement = sql.append_few(len(rows), len(folded_items))
        values += [value for row in rows for value in row]
        values += [value for item in folded_items for value in item]
    else:
        statement = sql.APPEND_MANY
        positions = [folded.position for folded in folded_items]
        values += [*_columns(rows), positions, [folded.seq for folded in folded_items]]
    cursor = await db.shared_cursor.execute(statement, values, prepare=True)
    if not cursor.rowcount:
        raise await _refusal(db, append)


async def _refusal(db: Connection, append: Append) -> Fenced | Conflict | SessionNotFound:
    lease = append.lease
    rows = await fetch_all(db, sql.SEQ_AND_EPOCH, [lease.session_id])
    if not rows:
        return SessionNotFound(lease.session_id)
    seq, epoch = rows[0]
    if epoch != lease.epoch:
        return Fenced(lease.session_id, epoch=lease.epoch, current=epoch)
    return Conflict(lease.session_id, expected=append.expected.seq, actual=seq)


async def read(db: Connection, event_range: EventRange) -> list[Row]:
    values: dict[str, Any] = {
        "session_id": event_range.session_id,
        "after": event_range.after,
        "upto": event_range.upto,
        "limit": event_range.limit,
    }
    if event_range.types is None and event_range.threads is None:
        statement = sql.READ_BACKWARDS if event_range.backwards else sql.READ
    else:
        statement = sql.READ_FILTERED_BACKWARDS if event_range.backwards else sql.READ_FILTERED
        for name, allowed in (("types", event_range.types), ("threads", event_range.threads)):
            values[name] = None if allowed is None else sorted(allowed)
    return list(map(Row._make, await fetch_all(db, statement, values)))


async def submit(db: Connection, session_id: str, item: InboxItem) -> InboxItem:
    rows = await fetch_all(
        db,
        sql.SUBMIT,
        {"session_id": session_id, **item._asdict()},
    )
    if not rows:
        raise SessionNotFound(session_id)
    return InboxItem._make(rows[0])


async def pending(
    db: Connection, session_id: str, after: int, types: frozenset[str] | None, limit: int
) -> list[InboxItem]:
    values = {
        "key": await key_of(db, session_id),
        "after": after,
        "types": None if types is None else sorted(types),
        "limit": limit,
    }
    return list(map(InboxItem._make, await fetch_all(db, sql.PENDING, values)))


async def inbox(db: Connection, session_id: str, after: int, limit: int) -> list[InboxItem]:
    key = await key_of(db, session_id)
    return list(map(InboxItem._make, await fetch_all(db, sql.INBOX, [key, after, limit])))


async def adopt(
    db: Connection, session_id: str, head: Head, mac: bytes, items: Sequence[InboxItem]
) -> None:
    async with db.transaction():
        key = await key_of(db, session_id, sql.LOCK_SESSION)
        values = {"key": key, "mac": mac, "seq": head.seq, "hash": head.hash}
        if not await fetch_all(db, sql.ADOPT, values):
            actual = (await session(db, session_id)).head.seq
            raise Conflict(session_id, expected=head.seq, actual=actual)
        positions = [item.position for item in items]
        macs = [item.mac for item in items]
        await db.execute(sql.ADOPT_ITEMS, {"key": key, "positions": positions, "macs": macs})
        await db.execute(sql.DISCARD_ITEMS, {"key": key})


async def acquire(
    db: Connection,
    session_id: str,
    owner: str,
    seconds: float,
    instead_of: tuple[str, int] | None,
) -> Lease:
    holder, epoch = instead_of or (None, None)
    values = {
        "session_id": session_id,
        "owner": owner,
        "seconds": seconds,
        "holder": holder,
        "epoch": epoch,
    }
    rows = await fetch_all(db, sql.ACQUIRE, values)
    if not rows:
        lease_held = await _holder(db, session_id)
        if lease_held.seconds > 0:
            raise lease_held
        async with db.transaction():  # released in the meantime: lock the row and try again
            await key_of(db, session_id, sql.LOCK_SESSION)
            rows = await fetch_all(db, sql.ACQUIRE, values)
            if not rows:
                raise await _holder(db, session_id)
    return Lease(session_id=session_id, owner=owner, epoch=rows[0][0], seconds=seconds)


async def _holder(db: Connection, session_id: str) -> LeaseHeld:
    rows = await fetch_all(db, sql.HOLDER, [session_id])
    if not rows:
        raise SessionNotFound(session_id)
    owner, epoch, seconds = rows[0]
    return LeaseHeld(session_id, owner=owner or "nobody", epoch=epoch, seconds=max(0.0, seconds))


async def renew(db: Connection, lease: Lease) -> None:
    if not await fetch_all(db, sql.RENEW, [lease.seconds, lease.session_id, lease.epoch]):
        current = (await session(db, lease.session_id)).epoch
        raise Fenced(lease.session_id, epoch=lease.epoch, current=current)


async def release(db: Connection, lease: Lease) -> None:
    await db.shared_cursor.execute(sql.RELEASE, [lease.session_id, lease.epoch], prepare=True)


async def put_blob(db: Connection, session_id: str, digest: str, content: bytes) -> None:
    values = {"session_id": session_id, "hash": digest, "content": content}
    if not await fetch_all(db, sql.PUT_BLOB, values):
        raise SessionNotFound(session_id)


async def blob(db: Connection, digest: str) -> bytes:
    rows = await fetch_all(db, sql.BLOB, [digest])
    if not rows:
        raise BlobNotFound(digest)
    return bytes(rows[0][0])


async def blobs(db: Connection, session_id: str) -> list[str]:
    key = await key_of(db, session_id)
    return [digest for (digest,) in await fetch_all(db, sql.BLOBS, [key])]
