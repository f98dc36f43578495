"""What the SQLite store says to the database. Plain functions over a connection.

A function that writes runs inside the caller's transaction and, when it refuses (`LogError`), has
not written anything yet.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from mainspring.core.errors import (
    Conflict,
    Fenced,
    LeaseHeld,
    SessionExists,
    SessionHasForks,
    SessionNotFound,
)
from mainspring.log.store import (
    Append,
    Head,
    Hit,
    InboxItem,
    Lease,
    Row,
    SessionRow,
    Span,
    Text,
)

# SQLite's own clock in seconds since 1970; `unixepoch('subsec')` would need 3.42
_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_SESSION = f"""
    select s.id, s.thread_id, s.created, s.updated, s.seq, s.hash, p.id, s.parent_seq, s.epoch,
           case when s.lease_until > {_NOW} then s.owner end
      from session s left join session p on p.key = s.parent_key
"""
_ROW = "seq, id, thread_id, time, version, type, body, prev"
_INSERT = (
    f"insert into event(session_key, {_ROW})"
    " select key, ?, ?, ?, ?, ?, ?, ?, ? from session where id = ?"
)
_MOVE = (  # without `returning`, which would cost more than all the rest
    f"update session set seq = ?, hash = ?, updated = ?, lease_until = {_NOW} + ?"
    " where id = ? and seq = ? and hash = ? and epoch = ?"
)
_ITEM = "event_id, client_id, thread_id, time, version, type, body, position, seq"
_SEQ_BITS = 32


def _session_row(found: tuple[Any, ...]) -> SessionRow:
    return SessionRow(
        id=found[0],
        thread_id=found[1],
        created=found[2],
        updated=found[3],
        head=Head(found[4], found[5]),
        parent_id=found[6],
        parent_seq=found[7],
        epoch=found[8],
        owner=found[9],
    )


def _item(found: tuple[Any, ...]) -> InboxItem:
    return InboxItem(
        event_id=found[0],
        client_id=found[1],
        thread_id=found[2],
        time=found[3],
        version=found[4],
        type=found[5],
        body=found[6],
        position=found[7],
        seq=found[8],
    )


def key_of(db: sqlite3.Connection, session_id: str) -> int:
    found = db.execute("select key from session where id = ?", (session_id,)).fetchone()
    if found is None:
        raise SessionNotFound(session_id)
    return int(found[0])


# --- sessions --------------------------------------------------------------------------------


def create(db: sqlite3.Connection, session: SessionRow, rows: Sequence[Row]) -> None:
    parent = None if session.parent_id is None else key_of(db, session.parent_id)
    if db.execute("select 1 from session where id = ?", (session.id,)).fetchone():
        raise SessionExists(session.id)
    db.execute(
        "insert into session(id, thread_id, created, updated, seq, hash, parent_key, parent_seq,"
        " indexed) values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session.id,
            session.thread_id,
            session.created,
            session.updated,
            *session.head,
            parent,
            session.parent_seq,
            session.parent_seq,
        ),
    )
    db.executemany(_INSERT, [(*row, session.id) for row in rows])


def session(db: sqlite3.Connection, session_id: str) -> SessionRow:
    found = db.execute(f"{_SESSION} where s.id = ?", (session_id,)).fetchone()
    if found is None:
        raise SessionNotFound(session_id)
    return _session_row(found)


def sessions(db: sqlite3.Connection, before: SessionRow | None, limit: int) -> list[SessionRow]:
    cursor = (2**62, "") if before is None else (before.created, before.id)
    found = db.execute(
        f"{_SESSION} where (s.created, s.id) < (?, ?) order by s.created desc, s.id desc limit ?",
        (*cursor, limit),
    )
    return [_session_row(each) for each in found]


def stale(db: sqlite3.Connection, updated_before: int, limit: int) -> list[str]:
    found = db.execute(
        f"select id from session where updated < ? and lease_until <= {_NOW}"
        " order by updated limit ?",
        (updated_before, limit),
    )
    return [session_id for (session_id,) in found]


def heads(db: sqlite3.Connection, session_ids: Sequence[str]) -> dict[str, int]:
    """Where the logs end, with what their inboxes got: grows with every append and submit."""
    found: dict[str, int] = {}
    for session_id in session_ids:
        row = db.execute(
            "select seq + inbox_head from session where id = ?", (session_id,)
        ).fetchone()
        if row is not None:
            found[session_id] = row[0]
    return found


def delete(db: sqlite3.Connection, session_id: str) -> None:
    key = key_of(db, session_id)
    forks = db.execute("select id from session where parent_key = ? order by key", (key,))
    if names := tuple(name for (name,) in forks):
        raise SessionHasForks(session_id, names)
    hashes = db.execute("select hash from blob_use where session_key = ?", (key,)).fetchall()
    db.execute("delete from blob_use where session_key = ?", (key,))
    db.executemany(
        "delete from blob where hash = ?1 and not exists (select 1 from blob_use where hash = ?1)",
        hashes,
    )
    words = db.execute(
        "delete from words where rowid between ? and ?",
        (key << _SEQ_BITS, (key + 1) << _SEQ_BITS),
    )
    if words.rowcount:  # FTS5 keeps deleted words in older segments until these are merged
        db.execute("insert into words(words) values ('optimize')")
    db.execute("delete from inbox where session_key = ?", (key,))
    db.execute("delete from event where session_key = ?", (key,))
    db.execute("delete from session where key = ?", (key,))


# --- events ----------------------------------------------------------------------------------


def append(db: sqlite3.Connection, append: Append) -> None:
    lease = append.lease
    moved = db.execute(
        _MOVE,
        (
            *append.head,
            append.rows[-1].time,
            lease.seconds,
            lease.session_id,
            *append.expected,
            lease.epoch,
        ),
    )
    if not moved.rowcount:
        raise _refusal(db, append)
    db.executemany(_INSERT, [(*row, lease.session_id) for row in append.rows])
    if append.folded:
        key = key_of(db, lease.session_id)
        db.executemany(
            "update inbox set seq = ? where session_key = ? and position = ?",
            [(folded.seq, key, folded.position) for folded in append.folded],
        )


def _refusal(db: sqlite3.Connection, append: Append) -> Fenced | Conflict | SessionNotFound:
    lease = append.lease
    found = db.execute(
        "select seq, epoch from session where id = ?", (lease.session_id,)
    ).fetchone()
    if found is None:
        return SessionNotFound(lease.session_id)
    seq, epoch = found
    if epoch != lease.epoch:
        return Fenced(lease.session_id, epoch=lease.epoch, current=epoch)
    return Conflict(lease.session_id, expected=append.expected.seq, actual=seq)


def read(db: sqlite3.Connection, span: Span) -> list[Row]:
    found = db.execute("select key from session where id = ?", (span.session_id,)).fetchone()
    if found is None:
        return []
    where = ["session_key = ?", "seq > ?", "seq <= ?"]
    values: list[Any] = [found[0], span.after, span.upto]
    for column, wanted in (("type", span.types), ("thread_id", span.threads)):
        if wanted is not None:
            where.append(f"{column} in ({', '.join('?' * len(wanted))})")
            values += sorted(wanted)
    order = "desc" if span.backwards else "asc"
    rows = db.execute(
        f"select {_ROW} from event where {' and '.join(where)} order by seq {order} limit ?",
        [*values, span.limit],
    )
    return list(map(Row._make, rows))


def submit(db: sqlite3.Connection, session_id: str, item: InboxItem) -> InboxItem:
    key = key_of(db, session_id)
    seen = db.execute(
        f"select {_ITEM} from inbox where session_key = ? and client_id = ?",
        (key, item.client_id),
    ).fetchone()
    if seen is not None:
        return _item(seen)
    [(position,)] = db.execute(
        "update session set inbox_head = inbox_head + 1 where key = ? returning inbox_head",
        (key,),
    ).fetchall()
    kept = db.execute(
        f"insert into inbox(session_key, {_ITEM})"
        f" values (?, ?, ?, ?, ?, ?, ?, ?, ?, null) returning {_ITEM}",
        (
            key,
            item.event_id,
            item.client_id,
            item.thread_id,
            item.time,
            item.version,
            item.type,
            item.body,
            position,
        ),
    ).fetchall()
    return _item(kept[0])


def pending(db: sqlite3.Connection, session_id: str, limit: int) -> list[InboxItem]:
    found = db.execute(
        f"select {_ITEM} from inbox where session_key = ? and seq is null"
        " order by position limit ?",
        (key_of(db, session_id), limit),
    )
    return [_item(each) for each in found]


# --- leases ----------------------------------------------------------------------------------


def acquire(
    db: sqlite3.Connection,
    session_id: str,
    owner: str,
    seconds: float,
    instead_of: tuple[str, int] | None,
) -> Lease:
    taken = db.execute(
        f"update session set epoch = epoch + 1, owner = ?, lease_until = {_NOW} + ?"
        f" where id = ? and (owner is null or lease_until <= {_NOW} or (owner, epoch) = (?, ?))"
        " returning epoch",
        (owner, seconds, session_id, *(instead_of or (None, None))),
    ).fetchall()
    if taken:
        return Lease(session_id=session_id, owner=owner, epoch=taken[0][0], seconds=seconds)
    held = db.execute(
        f"select owner, epoch, lease_until - {_NOW} from session where id = ?", (session_id,)
    ).fetchone()
    if held is None:
        raise SessionNotFound(session_id)
    raise LeaseHeld(session_id, owner=held[0], epoch=held[1], seconds=max(0.0, held[2]))


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


# --- blobs and words -------------------------------------------------------------------------


def put_blob(db: sqlite3.Connection, session_id: str, digest: str, content: bytes) -> None:
    key = key_of(db, session_id)
    db.execute("insert or ignore into blob(hash, content) values (?, ?)", (digest, content))
    db.execute("insert or ignore into blob_use(session_key, hash) values (?, ?)", (key, digest))


def blobs(db: sqlite3.Connection, session_id: str) -> list[str]:
    found = db.execute(
        "select hash from blob_use where session_key = ? order by hash", (key_of(db, session_id),)
    )
    return [digest for (digest,) in found]


def unindexed(db: sqlite3.Connection, session_id: str | None, limit: int) -> list[tuple[str, Row]]:
    only = "" if session_id is None else "and s.id = ?"
    found = db.execute(
        "select s.id, e.seq, e.id, e.thread_id, e.time, e.version, e.type, e.body, e.prev"
        " from session s join event e on e.session_key = s.key and e.seq > s.indexed"
        f" where s.indexed < s.seq {only} order by s.key, e.seq limit ?",
        (*(() if session_id is None else (session_id,)), limit),
    )
    return [(each[0], Row._make(each[1:])) for each in found]


def index(db: sqlite3.Connection, texts: Sequence[Text], upto: Sequence[tuple[str, int]]) -> None:
    keys = {session_id: key_of(db, session_id) for session_id, _ in upto}
    # another process may have indexed the same events meanwhile: replacing is idempotent
    db.executemany(
        "insert or replace into words(rowid, text) values (?, ?)",
        [(keys[each.session_id] << _SEQ_BITS | each.seq, each.text) for each in texts],
    )
    db.executemany(
        "update session set indexed = max(indexed, ?) where id = ?",
        [(seq, session_id) for session_id, seq in upto],
    )


def search(
    db: sqlite3.Connection, words: Sequence[str], spans: Sequence[Span], limit: int
) -> list[Hit]:
    where = ["words match ?"]
    values: list[Any] = [" ".join('"' + word.replace('"', '""') + '"' for word in words)]
    ranges: list[str] = []
    for span in spans:
        key = key_of(db, span.session_id)
        ranges.append("rowid between ? and ?")
        upto = min(span.upto, (1 << _SEQ_BITS) - 1)
        values += [key << _SEQ_BITS | span.after + 1, key << _SEQ_BITS | upto]
    if ranges:
        where.append(f"({' or '.join(ranges)})")
    found = db.execute(
        "select s.id, found.id & 4294967295, found.snippet from ("
        "  select rowid id, rank, snippet(words, 0, '', '', '…', 24) snippet from words"
        f"  where {' and '.join(where)} order by rank limit ?"
        ") found join session s on s.key = found.id >> 32 order by found.rank",
        [*values, limit],
    )
    return [Hit(session_id=each[0], seq=each[1], snippet=each[2]) for each in found]
