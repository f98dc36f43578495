"""The queries of the SQLite store, as plain functions over a connection.

A function that writes runs inside the caller's transaction. If it raises a `LogError`, it has not
written anything.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mainspring.core.errors import (
    Conflict,
    Fenced,
    LeaseHeld,
    SessionExists,
    SessionHasForks,
    SessionNotFound,
)
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

# SQLite's own clock in seconds since 1970; `unixepoch('subsec')` would need 3.42
_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_SESSION = f"""
    select s.id, s.thread_id, s.created, s.updated, s.seq, s.hash, p.id, s.parent_seq, s.epoch,
           case when s.lease_until > {_NOW} then s.owner end, s.activity, s.mac, s.status
      from session s left join session p on p.key = s.parent_key
"""
_ROW = "seq, id, thread_id, time, version, type, body, prev, sender"
_KEY = "(select key from session where id = ?)"
_ROWS_AT_ONCE = 20
"""Rows that one statement inserts: a turn has fewer, and SQLite takes 32,766 values."""
_MOVE = (  # without `returning`, which would cost more than the update
    f"update session set seq = ?, hash = ?, updated = ?, activity = ?, mac = ?,"
    f" status = coalesce(?, status), lease_until = {_NOW} + ?"
    " where id = ? and seq = ? and hash = ? and epoch = ?"
)
_ITEM = "event_id, client_id, thread_id, time, version, type, body, sender, position, seq, mac"
_ITEM_OF_SESSION = ", ".join(f"i.{column}" for column in _ITEM.split(", "))
SEQ_BITS = 32
"""The low bits of a rowid in `words`; the high bits are the session's key."""
_STALE = (
    f"s.updated < ? and s.lease_until <= {_NOW} and not exists"
    " (select 1 from inbox i where i.session_key = s.key and i.seq is null)"
)


def key_of(db: sqlite3.Connection, session_id: str) -> int:
    row = db.execute("select key from session where id = ?", (session_id,)).fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    return int(row[0])


def create(
    db: sqlite3.Connection,
    session: SessionRow,
    rows: Sequence[Row],
    blobs: Mapping[str, bytes],
    inbox: Sequence[InboxItem],
) -> None:
    parent = None if session.parent_id is None else key_of(db, session.parent_id)
    if db.execute("select 1 from session where id = ?", (session.id,)).fetchone():
        raise SessionExists(session.id)
    db.execute(
        "insert into session(id, thread_id, created, updated, seq, hash, parent_key, parent_seq,"
        " indexed, activity, mac, status) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session.id,
            session.thread_id,
            session.created,
            session.updated,
            *session.head,
            parent,
            session.parent_seq,
            session.parent_seq,
            session.activity,
            session.mac,
            session.status,
        ),
    )
    _insert(db, session.id, rows)
    for digest, content in blobs.items():
        put_blob(db, session.id, digest, content)
    for item in inbox:
        submit(db, session.id, item)


def session(db: sqlite3.Connection, session_id: str) -> SessionRow:
    row = db.execute(f"{_SESSION} where s.id = ?", (session_id,)).fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    return session_row(row)


def sessions(db: sqlite3.Connection, before: SessionRow | None, limit: int) -> list[SessionRow]:
    cursor = (2**62, "") if before is None else (before.created, before.id)
    rows = db.execute(
        f"{_SESSION} where (s.created, s.id) < (?, ?) order by s.created desc, s.id desc limit ?",
        (*cursor, limit),
    )
    return [session_row(item) for item in rows]


def changed(db: sqlite3.Connection, since: int, limit: int) -> list[SessionRow]:
    # no index, which every append would have to change; a scan of 10,000 sessions takes 2 ms
    rows = db.execute(
        f"{_SESSION} where s.updated >= ? order by s.updated, s.id limit ?", (since, limit)
    )
    return [session_row(item) for item in rows]


def latest(db: sqlite3.Connection, upto: int, limit: int) -> list[SessionRow]:
    rows = db.execute(  # no index, as for `changed`
        f"{_SESSION} where s.updated <= ? order by s.updated desc, s.id desc limit ?", (upto, limit)
    )
    return [session_row(item) for item in rows]


def rows(db: sqlite3.Connection, session_ids: Sequence[str]) -> list[SessionRow]:
    found = db.execute(
        f"{_SESSION} where s.id in (select value from json_each(?))", (json_list(session_ids),)
    )
    return [session_row(item) for item in found]


def pending_types(db: sqlite3.Connection, session_ids: Sequence[str]) -> list[tuple[str, str]]:
    return db.execute(
        "select distinct s.id, i.type from session s join inbox i on i.session_key = s.key"
        " where i.seq is null and s.id in (select value from json_each(?))",
        (json_list(session_ids),),
    ).fetchall()


def note_activity(db: sqlite3.Connection, notes: Sequence[ActivityNote]) -> None:
    db.executemany(
        "update session set activity = ?, status = ? where id = ? and seq = ?",
        [(note.activity, note.status, note.session_id, note.seq) for note in notes],
    )


def first_pending(
    db: sqlite3.Connection, session_ids: Sequence[str], types: frozenset[str]
) -> list[tuple[str, InboxItem]]:
    found = db.execute(
        f"""
        select s.id, {_ITEM_OF_SESSION} from session s join inbox i on i.session_key = s.key
         where s.id in (select value from json_each(?)) and i.seq is null
           and i.position = (
             select min(position) from inbox
              where session_key = s.key and seq is null
                and type in (select value from json_each(?)))
        """,
        (json_list(session_ids), json_list(sorted(types))),
    )
    return [(session_id, InboxItem._make(item)) for session_id, *item in found]


def read_many(
    db: sqlite3.Connection,
    event_ranges: Sequence[tuple[str, int, int]],
    types: frozenset[str],
    limit: int,
) -> list[tuple[int, Row]]:
    columns = ", ".join(f"e.{column}" for column in _ROW.split(", "))
    found = db.execute(
        f"""
        select r.key, {columns}
          from json_each(?) r
         cross join session s on s.id = r.value ->> 0
         cross join event e on e.session_key = s.key and e.seq in (
               select seq from event
                where session_key = s.key and seq > r.value ->> 1 and seq <= r.value ->> 2
                  and type in (select value from json_each(?))
                order by seq limit ?)
         order by r.key, e.seq
        """,
        (msgspec.json.encode(event_ranges).decode(), json_list(sorted(types)), limit),
    )
    return [(index, Row._make(row)) for index, *row in found]


def json_list(texts: Sequence[str]) -> str:
    return msgspec.json.encode(texts).decode()


def runnable(db: sqlite3.Connection, limit: int) -> list[str]:
    rows = db.execute(  # a union, because `or` would scan all sessions
        f"""
        select id from session
         where key in (
               select key from session where owner is not null
               union select session_key from inbox where seq is null)
           and lease_until <= {_NOW}
         order by updated limit ?
        """,
        (limit,),
    )
    return [session_id for (session_id,) in rows]


def stale(db: sqlite3.Connection, updated_before: int, limit: int) -> list[str]:
    rows = db.execute(
        f"select id from session s where {_STALE} order by updated limit ?",
        (updated_before, limit),
    )
    return [session_id for (session_id,) in rows]


def expire(db: sqlite3.Connection, session_id: str, updated_before: int) -> bool:
    row = db.execute(
        f"select key from session s where id = ? and {_STALE}"
        " and not exists (select 1 from session f where f.parent_key = s.key)",
        (session_id, updated_before),
    ).fetchone()
    if row is not None:
        _delete(db, row[0])
    return row is not None


def heads(db: sqlite3.Connection, session_ids: Sequence[str]) -> dict[str, SessionHeads]:
    heads_by_id: dict[str, SessionHeads] = {}
    for session_id in session_ids:
        row = db.execute("select seq, inbox_head from session where id = ?", (session_id,))
        if (head := row.fetchone()) is not None:
            heads_by_id[session_id] = SessionHeads._make(head)
    return heads_by_id


def delete(db: sqlite3.Connection, session_id: str) -> bool:
    """Delete a session; returns whether any of its events were indexed."""
    key = key_of(db, session_id)
    forks = db.execute("select id from session where parent_key = ? order by key", (key,))
    if names := tuple(name for (name,) in forks):
        raise SessionHasForks(session_id, names)
    return _delete(db, key)


def _delete(db: sqlite3.Connection, key: int) -> bool:
    hashes = db.execute("select hash from blob_use where session_key = ?", (key,)).fetchall()
    db.execute("delete from blob_use where session_key = ?", (key,))
    db.executemany(
        "delete from blob where hash = ? and not exists (select 1 from blob_use where hash = ?)",
        [(hash_, hash_) for (hash_,) in hashes],
    )
    words = db.execute(
        "delete from words where rowid between ? and ?",
        (key << SEQ_BITS, (key + 1) << SEQ_BITS),
    )
    db.execute("delete from inbox where session_key = ?", (key,))
    db.execute("delete from event where session_key = ?", (key,))
    db.execute("delete from session where key = ?", (key,))
    return words.rowcount > 0


def append(db: sqlite3.Connection, append: Append) -> None:
    lease = append.lease
    cursor = db.execute(
        _MOVE,
        (
            *append.head,
            append.rows[-1].time,
            append.activity,
            append.mac,
            append.status,
            lease.seconds,
            lease.session_id,
            *append.expected,
            lease.epoch,
        ),
    )
    if not cursor.rowcount:
        raise _refusal(db, append)
    _insert(db, lease.session_id, append.rows)
    if append.folded_items:
        db.executemany(
            f"update inbox set seq = ? where session_key = {_KEY} and position = ?",
            [(folded.seq, lease.session_id, folded.position) for folded in append.folded_items],
        )
    if append.redacted_bodies or append.removed_blobs:
        _redact(db, key_of(db, lease.session_id), append)


def _insert(db: sqlite3.Connection, session_id: str, rows: Sequence[Row]) -> None:
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[start : start + _ROWS_AT_ONCE]
        values = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(part))
        db.execute(
            f"insert into event(session_key, {_ROW})"
            f" select s.key, v.* from session s, (values {values}) v where s.id = ?",
            (*(value for row in part for value in row), session_id),
        )


def _redact(db: sqlite3.Connection, key: int, append: Append) -> None:
    bodies = [(body, key, seq) for seq, body in append.redacted_bodies]
    for table in ("event", "inbox"):
        db.executemany(f"update {table} set body = ? where session_key = ? and seq = ?", bodies)
    db.executemany(
        "delete from words where rowid = ?",
        [(key << SEQ_BITS | seq,) for seq, _ in append.redacted_bodies],
    )
    first = min((seq for seq, _ in append.redacted_bodies), default=0)
    db.execute(  # the remaining text is indexed again
        "update session set indexed = min(indexed, ?) where key = ? and ? > 0",
        (first - 1, key, first),
    )
    hashes = [(digest,) for digest in append.removed_blobs]
    db.executemany("delete from blob_use where hash = ?", hashes)
    db.executemany("delete from blob where hash = ?", hashes)


def _refusal(db: sqlite3.Connection, append: Append) -> Fenced | Conflict | SessionNotFound:
    lease = append.lease
    row = db.execute("select seq, epoch from session where id = ?", (lease.session_id,)).fetchone()
    if row is None:
        return SessionNotFound(lease.session_id)
    seq, epoch = row
    if epoch != lease.epoch:
        return Fenced(lease.session_id, epoch=lease.epoch, current=epoch)
    return Conflict(lease.session_id, expected=append.expected.seq, actual=seq)


def read(db: sqlite3.Connection, event_range: EventRange) -> list[Row]:
    where = [f"session_key = {_KEY}", "seq > ?", "seq <= ?"]
    values: list[Any] = [event_range.session_id, event_range.after, event_range.upto]
    for column, allowed in (("type", event_range.types), ("thread_id", event_range.threads)):
        if allowed is not None:
            where.append(f"{column} in ({', '.join('?' * len(allowed))})")
            values += sorted(allowed)
    order = "desc" if event_range.backwards else "asc"
    rows = db.execute(
        f"select {_ROW} from event where {' and '.join(where)} order by seq {order} limit ?",
        [*values, event_range.limit],
    )
    return list(map(Row._make, rows))


def submit(db: sqlite3.Connection, session_id: str, item: InboxItem) -> InboxItem:
    row = db.execute(
        f"select s.key, {_ITEM_OF_SESSION} from session s"
        " left join inbox i on i.session_key = s.key and i.client_id = ? where s.id = ?",
        (item.client_id, session_id),
    ).fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    key, *stored = row
    if stored[0] is not None:
        return InboxItem._make(stored)
    [(position,)] = db.execute(
        "update session set inbox_head = inbox_head + 1, updated = max(updated, ?)"
        " where key = ? returning inbox_head",
        (item.time, key),
    ).fetchall()
    inserted = db.execute(
        f"insert into inbox(session_key, {_ITEM})"
        f" values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning {_ITEM}",
        (key, *item._replace(position=position)),
    ).fetchall()
    return InboxItem._make(inserted[0])


def pending(
    db: sqlite3.Connection, session_id: str, after: int, types: frozenset[str] | None, limit: int
) -> list[InboxItem]:
    where_type = "" if types is None else f"and i.type in ({', '.join('?' * len(types))})"
    rows = db.execute(
        f"select {_ITEM_OF_SESSION} from session s left join inbox i on i.session_key = s.key"
        f" and i.position > ? and i.seq is null {where_type}"
        " where s.id = ? order by i.position limit ?",
        (after, *sorted(types or ()), session_id, limit),
    ).fetchall()
    if not rows:
        raise SessionNotFound(session_id)
    return [InboxItem._make(row) for row in rows if row[0] is not None]


def inbox(db: sqlite3.Connection, session_id: str, after: int, limit: int) -> list[InboxItem]:
    rows = db.execute(
        f"select {_ITEM} from inbox where session_key = ? and position > ?"
        " order by position limit ?",
        (key_of(db, session_id), after, limit),
    )
    return list(map(InboxItem._make, rows))


def adopt(
    db: sqlite3.Connection, session_id: str, head: Head, mac: bytes, items: Sequence[InboxItem]
) -> None:
    key = key_of(db, session_id)
    moved = db.execute(
        "update session set mac = ? where key = ? and seq = ? and hash = ?", (mac, key, *head)
    )
    if not moved.rowcount:
        raise Conflict(session_id, expected=head.seq, actual=session(db, session_id).head.seq)
    db.executemany(
        "update inbox set mac = ? where session_key = ? and position = ?",
        [(item.mac, key, item.position) for item in items],
    )
    db.execute("delete from inbox where session_key = ? and seq is null and mac is null", (key,))


def acquire(
    db: sqlite3.Connection,
    session_id: str,
    owner: str,
    seconds: float,
    instead_of: tuple[str, int] | None,
) -> Lease:
    row = db.execute(
        f"update session set epoch = epoch + 1, owner = ?, lease_until = {_NOW} + ?"
        f" where id = ? and (owner is null or lease_until <= {_NOW} or (owner, epoch) = (?, ?))"
        " returning epoch",
        (owner, seconds, session_id, *(instead_of or (None, None))),
    ).fetchall()
    if row:
        return Lease(session_id=session_id, owner=owner, epoch=row[0][0], seconds=seconds)
    holder = db.execute(
        f"select owner, epoch, lease_until - {_NOW} from session where id = ?", (session_id,)
    ).fetchone()
    if holder is None:
        raise SessionNotFound(session_id)
    raise LeaseHeld(session_id, owner=holder[0], epoch=holder[1], seconds=max(0.0, holder[2]))


def renew(db: sqlite3.Connection, lease: Lease) -> None:
    renewed = db.execute(
        f"update session set lease_until = {_NOW} + ? where id = ? and epoch = ? returning key",
        (lease.seconds, lease.session_id, lease.epoch),
    ).fetchall()
    if not renewed:
        current = session(db, lease.session_id).epoch
        raise Fenced(lease.session_id, epoch=lease.epoch, current=current)


def release(db: sqlite3.Connection, lease: Lease) -> None:
    db.execute(
        "update session set epoch = epoch + 1, owner = null, lease_until = 0"
        " where id = ? and epoch = ?",
        (lease.session_id, lease.epoch),
    )


def put_blob(db: sqlite3.Connection, session_id: str, digest: str, content: bytes) -> None:
    used = db.execute(
        "insert or ignore into blob_use(session_key, hash) select key, ? from session where id = ?",
        (digest, session_id),
    )
    if not used.rowcount:
        key_of(db, session_id)  # raises if there is no such session
    db.execute("insert or ignore into blob(hash, content) values (?, ?)", (digest, content))


def blobs(db: sqlite3.Connection, session_id: str) -> list[str]:
    rows = db.execute(
        "select hash from blob_use where session_key = ? order by hash", (key_of(db, session_id),)
    )
    return [digest for (digest,) in rows]
