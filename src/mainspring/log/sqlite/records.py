"""Records in the SQLite file of the log: see `log/records.py` for what each method promises."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, assert_never

from mainspring.core.errors import AlreadyThere, NotFound, Stale
from mainspring.log.records import Change, Put, Record, Remove, Replace, Wanted

T = TypeVar("T")

_COLUMNS = "tenant, kind, id, created, updated, body, parent, name, label, due, is_archived, rev"


class Read(Protocol):
    def __call__(self, work: Callable[[sqlite3.Connection], T]) -> Awaitable[T]: ...


class SqliteRecords:
    """`read` and `write` are the store's: records share its connections and its commits."""

    def __init__(self, read: Read, write: Read) -> None:
        self._read = read
        self._write = write

    async def get(self, kind: str, id_: str) -> Record:
        return await self._read(lambda db: _get(db, kind, id_))

    async def named(self, kind: str, name: str, *, tenant: str, parent: str = "") -> Record:
        found = await self._read(lambda db: _named(db, tenant, kind, parent, name))
        if found is None:
            raise NotFound(kind, name)
        return found

    async def list(self, wanted: Wanted) -> list[Record]:
        where, values = _conditions(wanted)
        column, order = _order(wanted)
        if wanted.after is not None:
            where += f" and ({column}, id) {'<' if order == 'desc' else '>'} (?, ?)"
            values = [*values, getattr(wanted.after, column), wanted.after.id]
        statement = (
            f"select {_COLUMNS} from record where {where}"
            f" order by {column} {order}, id {order} limit ?"
        )
        found = await self._read(
            lambda db: db.execute(statement, [*values, wanted.limit]).fetchall()
        )
        return [_record(each) for each in found]

    async def count(self, wanted: Wanted) -> int:
        where, values = _conditions(wanted)
        found = await self._read(
            lambda db: db.execute(f"select count(*) from record where {where}", values).fetchone()
        )
        return int(found[0])

    async def write(self, *changes: Change) -> tuple[Record, ...]:
        return await self._write(lambda db: _write(db, changes))

    async def content(self, kind: str, id_: str) -> bytes:
        found = await self._read(
            lambda db: db.execute(
                "select content from record_content where kind = ? and id = ?", (kind, id_)
            ).fetchone()
        )
        if found is None:
            raise NotFound(kind, id_)
        return bytes(found[0])

    async def tally(self, counters: Sequence[tuple[str, int]]) -> list[int]:
        if not any(amount for _, amount in counters):
            return await self._read(lambda db: [_amount(db, name) for name, _ in counters])
        return await self._write(lambda db: [_add(db, *each) for each in counters])

    async def forget_tallies(self, prefix: str) -> None:
        await self._write(
            lambda db: db.execute(
                "delete from tally where name >= ? and name < ?", (prefix, _beyond(prefix))
            )
        )


def _conditions(wanted: Wanted) -> tuple[str, list[Any]]:
    given: list[tuple[str, Any]] = [
        ("kind = ?", wanted.kind),
        ("tenant = ?", wanted.tenant),
        ("parent = ?", wanted.parent),
        ("label = ?", wanted.label),
        ("is_archived = ?", wanted.is_archived),
        ("created >= ?", wanted.created_from),
        ("created <= ?", wanted.created_upto),
        ("due <= ?", wanted.due_upto),
    ]
    if wanted.name_from is not None:
        given += [("name >= ?", wanted.name_from), ("name < ?", _beyond(wanted.name_from))]
    used = [(text, value) for text, value in given if value is not None]
    return " and ".join(text for text, _ in used), [value for _, value in used]


def _order(wanted: Wanted) -> tuple[str, str]:
    if wanted.due_upto is not None:
        return "due", "asc"
    if wanted.name_from is not None:
        return "name", "asc"
    return "created", wanted.order


def _beyond(prefix: str) -> str:
    """What comes after every text that begins so: no text has this last character."""
    return prefix + "\U0010ffff"


def _write(db: sqlite3.Connection, changes: Sequence[Change]) -> tuple[Record, ...]:
    """Looks first and writes then: a refusal has written nothing."""
    for change in changes:
        _check(db, change)
    return tuple(record for change in changes if (record := _apply(db, change)) is not None)


def _check(db: sqlite3.Connection, change: Change) -> None:
    record = change.record
    found = _found(db, record.kind, record.id)
    if isinstance(change, Put):
        if found is not None:
            raise AlreadyThere(f"there is a {record.kind} {record.id} already")
    elif found is None:
        raise NotFound(record.kind, record.id)
    elif found.rev != record.rev:
        raise Stale(f"{record.kind} {record.id} has changed meanwhile")
    if record.name is not None and not isinstance(change, Remove):
        namesake = _named(db, record.tenant, record.kind, record.parent, record.name)
        if namesake is not None and namesake.id != record.id:
            raise AlreadyThere(f"there is a {record.kind} called {record.name!r} already")


def _apply(db: sqlite3.Connection, change: Change) -> Record | None:
    match change:
        case Remove(record=record):
            db.execute("delete from record where kind = ? and id = ?", (record.kind, record.id))
            db.execute(
                "delete from record_content where kind = ? and id = ?", (record.kind, record.id)
            )
            return None
        case Put(record=record, content=content) | Replace(record=record, content=content):
            kept = replace(record, rev=record.rev + 1)
            db.execute(
                f"insert or replace into record({_COLUMNS}) values (?,?,?,?,?,?,?,?,?,?,?,?)",
                _values(kept),
            )
            if content is not None:
                db.execute(
                    "insert or replace into record_content(kind, id, content) values (?, ?, ?)",
                    (record.kind, record.id, content),
                )
            return kept
        case _:
            assert_never(change)


def _get(db: sqlite3.Connection, kind: str, id_: str) -> Record:
    if (found := _found(db, kind, id_)) is None:
        raise NotFound(kind, id_)
    return found


def _found(db: sqlite3.Connection, kind: str, id_: str) -> Record | None:
    found = db.execute(
        f"select {_COLUMNS} from record where kind = ? and id = ?", (kind, id_)
    ).fetchone()
    return None if found is None else _record(found)


def _named(db: sqlite3.Connection, tenant: str, kind: str, parent: str, name: str) -> Record | None:
    found = db.execute(
        f"select {_COLUMNS} from record where tenant = ? and kind = ? and parent = ? and name = ?",
        (tenant, kind, parent, name),
    ).fetchone()
    return None if found is None else _record(found)


def _add(db: sqlite3.Connection, name: str, amount: int) -> int:
    if amount:
        db.execute(
            "insert into tally(name, amount) values (?, ?)"
            " on conflict(name) do update set amount = amount + excluded.amount",
            (name, amount),
        )
    return _amount(db, name)


def _amount(db: sqlite3.Connection, name: str) -> int:
    found = db.execute("select amount from tally where name = ?", (name,)).fetchone()
    return 0 if found is None else int(found[0])


def _values(record: Record) -> tuple[Any, ...]:
    return (
        record.tenant,
        record.kind,
        record.id,
        record.created,
        record.updated,
        record.body,
        record.parent,
        record.name,
        record.label,
        record.due,
        int(record.is_archived),
        record.rev,
    )


def _record(found: tuple[Any, ...]) -> Record:
    return Record(
        tenant=found[0],
        kind=found[1],
        id=found[2],
        created=found[3],
        updated=found[4],
        body=bytes(found[5]),
        parent=found[6],
        name=found[7],
        label=found[8],
        due=found[9],
        is_archived=bool(found[10]),
        rev=found[11],
    )
