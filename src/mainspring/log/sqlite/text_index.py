"""The full-text index of the SQLite store. Plain functions over a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.log.sqlite.queries import SEQ_BITS, json_list, key_of
from mainspring.log.store import EventRange, IndexedText, LogSearchHit, Row, SessionScope

# The conditions of a scope: the first event names the sender and the agent; a fork is in its
# parent's scope.
_FIRST_EVENT = """
    (? is null or json_extract(e.body, '$.agent_name') = ?)
    and (? is null or json_extract(e.sender, '$.id') = ?)
    and coalesce(json_extract(e.body, '$.origin.type'), '') not in (select value from json_each(?))
"""
_SESSION = """
    s.id not in (select value from json_each(?))
    and (? or ? is (select r.tenant from record r where r.kind = 'session' and r.id = s.id))
"""
_ALLOWED = f"""
    with recursive allowed(key) as (
      select s.key from session s join event e on e.session_key = s.key and e.seq = 1
       where s.parent_key is null and {_FIRST_EVENT}
      union all
      select s.key from session s join allowed on s.parent_key = allowed.key
    )
    select s.key from session s join allowed using (key) where {_SESSION}
"""
_IN_SCOPE = f"""
    with recursive line(id, key, parent_key) as (
      select s.id, s.key, s.parent_key from session s
       where s.id in (select value from json_each(?))
      union all
      select line.id, p.key, p.parent_key from line join session p on p.key = line.parent_key
    )
    select s.id from line s join event e on e.session_key = s.key and e.seq = 1
     where s.parent_key is null and {_FIRST_EVENT} and {_SESSION}
"""


def unindexed(db: sqlite3.Connection, session_id: str | None, limit: int) -> list[tuple[str, Row]]:
    session_condition = "" if session_id is None else "and s.id = ?"
    rows = db.execute(
        "select s.id, e.seq, e.id, e.thread_id, e.time, e.version, e.type, e.body, e.prev, e.sender"
        " from session s join event e on e.session_key = s.key and e.seq > s.indexed"
        f" where s.indexed < s.seq {session_condition} order by s.key, e.seq limit ?",
        (*(() if session_id is None else (session_id,)), limit),
    )
    return [(item[0], Row._make(item[1:])) for item in rows]


def index(
    db: sqlite3.Connection, indexed_texts: Sequence[IndexedText], upto: Sequence[tuple[str, int]]
) -> None:
    keys = {session_id: key_of(db, session_id) for session_id, _ in upto}
    # another process may have indexed the same events meanwhile: replacing is idempotent
    db.executemany(
        "insert or replace into words(rowid, text) values (?, ?)",
        [
            (keys[indexed_text.session_id] << SEQ_BITS | indexed_text.seq, indexed_text.text)
            for indexed_text in indexed_texts
        ],
    )
    db.executemany(
        "update session set indexed = max(indexed, ?) where id = ?",
        [(seq, session_id) for session_id, seq in upto],
    )


def match_query(words: Sequence[str], *, is_loose: bool) -> str:
    quoted = ('"' + word.replace('"', '""') + '"' for word in words)
    return " OR ".join(f"{word}*" for word in quoted) if is_loose else " ".join(quoted)


def search(
    db: sqlite3.Connection,
    query: str,
    event_ranges: Sequence[EventRange],
    scope: SessionScope | None,
    limit: int,
) -> list[LogSearchHit]:
    where = ["words match ?"]
    values: list[Any] = [query]
    ranges: list[str] = []
    for event_range in event_ranges:
        key = key_of(db, event_range.session_id)
        ranges.append("rowid between ? and ?")
        upto = min(event_range.upto, (1 << SEQ_BITS) - 1)
        values += [key << SEQ_BITS | event_range.after + 1, key << SEQ_BITS | upto]
    if ranges:
        where.append(f"({' or '.join(ranges)})")
    if scope is not None:
        where.append(f"rowid >> {SEQ_BITS} in ({_ALLOWED})")
        values += _scope_values(scope)
    rows = db.execute(
        "select s.id, hit.id & 4294967295, hit.snippet from ("
        "  select rowid id, rank, snippet(words, 0, '', '', '…', 24) snippet from words"
        f"  where {' and '.join(where)} order by rank limit ?"
        ") hit join session s on s.key = hit.id >> 32 order by hit.rank",
        [*values, limit],
    )
    return [LogSearchHit(session_id=item[0], seq=item[1], snippet=item[2]) for item in rows]


def in_scope(db: sqlite3.Connection, scope: SessionScope, session_ids: Sequence[str]) -> list[str]:
    values = [json_list(session_ids), *_scope_values(scope)]
    return [session_id for (session_id,) in db.execute(_IN_SCOPE, values)]


def _scope_values(scope: SessionScope) -> list[Any]:
    origins = msgspec.json.encode(scope.without_origins).decode()
    sessions = msgspec.json.encode(scope.without_sessions).decode()
    first_event = [scope.agent, scope.agent, scope.user, scope.user, origins]
    return [*first_event, sessions, scope.any_tenant, scope.tenant]


def purge_deleted(db: sqlite3.Connection) -> None:
    """Merge the segments of the index: FTS5 keeps deleted words in old segments until then."""
    db.execute("insert into words(words) values ('optimize')")
