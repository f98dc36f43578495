"""Records in the SQLite file of the log; `log/records.py` documents the methods."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar, assert_never

from mainspring.core.errors import AlreadyExists, InvalidInput, NotFound, StaleVersion
from mainspring.log.filtered_pages import SqlDialect, filter_counts, filtered_ids, filtered_records
from mainspring.log.provenance import Provenance
from mainspring.log.records import (
    SESSION_KIND,
    STATUS_FILTER,
    FilterValues,
    Put,
    RecordChange,
    RecordQuery,
    RecordRow,
    RecordWithContent,
    Remove,
    Replace,
)
from mainspring.log.sql_rows import (
    RECORD_COLUMNS,
    is_storable_text,
    next_row,
    prefix_end,
    record_conditions,
    record_page,
    record_row,
    record_values,
    require_changes_storable,
    require_storable,
)

T = TypeVar("T")

_PLACEHOLDERS = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?"
_MAX_AMOUNT = 2**63 - 1  # SQLite's largest integer
_DIALECT = SqlDialect("record", "record_filter", "?")
LONG_BYTES = 1 << 18
"""Larger content is written in a thread."""


class RunRead(Protocol):
    def __call__(self, work: Callable[[sqlite3.Connection], T]) -> Awaitable[T]: ...


class RunWrite(Protocol):
    def __call__(
        self, work: Callable[[sqlite3.Connection], T], *, is_long: bool = False
    ) -> Awaitable[T]: ...


class SqliteRecords:
    """The store passes in how to read and write: records share its connections and commits."""

    def __init__(
        self, read_inline: RunRead, run_read: RunRead, run_write: RunWrite, provenance: Provenance
    ) -> None:
        self._read_inline = read_inline
        self._run_read = run_read
        self._run_write = run_write
        self._provenance = provenance

    async def get(self, kind: str, id_: str) -> RecordRow:
        row = (
            await self._read_inline(lambda db: _find(db, kind, id_))
            if is_storable_text(id_)
            else None
        )
        if row is None:
            raise NotFound(kind, id_)
        return self._provenance.own_record(row)

    async def named(self, kind: str, name: str, *, tenant: str, parent: str = "") -> RecordRow:
        row = None
        if is_storable_text(name) and is_storable_text(parent):
            row = await self._read_inline(lambda db: _find_by_name(db, tenant, kind, parent, name))
        if row is None:
            raise NotFound(kind, name)
        return self._provenance.own_record(row)

    async def list(self, query: RecordQuery) -> list[RecordRow]:
        if query.filters:
            rows = await self._run_read(lambda db: _filtered(db, query))
        else:
            tail, values = record_page(query, "?")
            statement = f"select {RECORD_COLUMNS} from record {tail}"
            rows = await self._run_read(lambda db: _records(db.execute(statement, values)))
        return [self._provenance.own_record(row) for row in rows]

    async def without_filters(self, kind: str, *, after: str, limit: int) -> list[RecordRow]:
        statement = f"""
            select {RECORD_COLUMNS} from record r where kind = ? and id > ? and not exists (
              select 1 from record_filter f where f.kind = r.kind and f.id = r.id)
             order by id limit ?
        """
        return await self._run_read(
            lambda db: _records(db.execute(statement, (kind, after, limit)))
        )

    async def add_filters(self, *changes: tuple[RecordRow, FilterValues]) -> None:
        await self._run_write(lambda db: _add_filters(db, changes))

    async def ids(self, query: RecordQuery) -> list[tuple[int, str]]:
        if query.filters:
            return await self._run_read(lambda db: _filtered_ids(db, query))
        tail, values = record_page(query, "?")
        statement = f"select created, id from record {tail}"
        return await self._run_read(lambda db: db.execute(statement, values).fetchall())

    async def count(self, query: RecordQuery) -> int:
        conditions = record_conditions(query)
        statement = f"select count(*) from record where {conditions.where('?')}"
        row = await self._run_read(lambda db: db.execute(statement, conditions.values).fetchone())
        return int(row[0])

    async def write(self, *changes: RecordChange) -> tuple[RecordRow, ...]:
        require_changes_storable(changes)
        size = sum(
            len(change.content or b"") for change in changes if not isinstance(change, Remove)
        )
        provenance = self._provenance
        return await self._run_write(
            lambda db: _write(db, provenance, changes), is_long=size > LONG_BYTES
        )

    async def content(self, kind: str, id_: str) -> bytes:
        content = self._provenance.own_content(await self.whole(kind, id_)).content
        if content is None:
            raise NotFound(kind, id_)
        return content

    async def whole(self, kind: str, id_: str) -> RecordWithContent:
        record = (
            await self._run_read(lambda db: _find_with_content(db, kind, id_))
            if is_storable_text(id_)
            else None
        )
        if record is None:
            raise NotFound(kind, id_)
        return record

    async def everything(
        self, *, after: RecordRow | None = None, limit: int = 100
    ) -> list[RecordRow]:
        position = ("", "") if after is None else (after.kind, after.id)
        return await self._run_read(
            lambda db: _records(
                db.execute(
                    f"select {RECORD_COLUMNS} from record where (kind, id) > (?, ?)"
                    " order by kind, id limit ?",
                    (*position, limit),
                )
            )
        )

    async def tally(self, counters: Sequence[tuple[str, int]]) -> list[int]:
        require_storable(value for counter in counters for value in counter)
        if any(amount for _, amount in counters):
            return await self._run_write(lambda db: _tally(db, counters))
        return await self._read_inline(lambda db: [_amount(db, name) for name, _ in counters])

    async def tallies(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        return await self._run_read(
            lambda db: db.execute(
                "select name, amount from tally where name > ? order by name limit ?",
                (after, limit),
            ).fetchall()
        )

    async def forget_tallies(self, prefix: str) -> None:
        require_storable([prefix])
        end = prefix_end(prefix)
        await self._run_write(
            lambda db: db.execute(
                "delete from tally where name >= ? and (? is null or name < ?)", (prefix, end, end)
            )
        )


def _records(rows: sqlite3.Cursor) -> list[RecordRow]:
    return [record_row(item) for item in rows]


def _rarest(db: sqlite3.Connection, query: RecordQuery) -> int:
    """The index of the filter with the fewest records."""
    if len(query.filters) == 1:
        return 0
    counted = filter_counts(query, _DIALECT)
    counts = db.execute(counted.text, counted.values).fetchone()
    return counts.index(min(counts))


def _filtered(db: sqlite3.Connection, query: RecordQuery) -> list[RecordRow]:
    page = filtered_records(query, _DIALECT, _rarest(db, query))
    return _records(db.execute(page.text, page.values))


def _filtered_ids(db: sqlite3.Connection, query: RecordQuery) -> list[tuple[int, str]]:
    page = filtered_ids(query, _DIALECT, _rarest(db, query))
    return db.execute(page.text, page.values).fetchall()


def _add_filters(db: sqlite3.Connection, changes: Sequence[tuple[RecordRow, FilterValues]]) -> None:
    for row, filters in changes:
        current = _find(db, row.kind, row.id)
        has_some = "select 1 from record_filter where kind = ? and id = ? limit 1"
        is_new = db.execute(has_some, (row.kind, row.id)).fetchone() is None
        if current is not None and current.rev == row.rev and is_new:
            _insert_filters(db, row, filters)


def _insert_filters(db: sqlite3.Connection, row: RecordRow, filters: FilterValues) -> None:
    insert = "insert into record_filter(kind, id, name, value, tenant, is_archived, created)"
    columns = (row.tenant, row.is_archived, row.created)
    db.executemany(
        f"{insert} values (?, ?, ?, ?, ?, ?, ?)",
        [(row.kind, row.id, name, value, *columns) for name, value in dict.fromkeys(filters)],
    )
    if row.kind == SESSION_KIND:
        db.execute(
            f"{insert} select ?, ?, ?,"
            " coalesce((select status from listed_status where id = ?), 'idle'), ?, ?, ?"
            " where not exists"
            " (select 1 from record_filter where kind = ? and id = ? and name = ?)",
            (
                *(row.kind, row.id, STATUS_FILTER, row.id, *columns),
                *(row.kind, row.id, STATUS_FILTER),
            ),
        )


def _write(
    db: sqlite3.Connection, provenance: Provenance, record_changes: Sequence[RecordChange]
) -> tuple[RecordRow, ...]:
    """If a change is refused, none is written, and the transaction's other jobs are unaffected."""
    if len(record_changes) == 1:  # it checks before it writes, so it needs no savepoint
        row = _apply(db, provenance, record_changes[0])
        return () if row is None else (row,)
    db.execute("savepoint changes")
    try:
        rows = [_apply(db, provenance, change) for change in record_changes]
    except BaseException:
        db.execute("rollback to changes")
        raise
    finally:
        db.execute("release changes")
    return tuple(row for row in rows if row is not None)


def _apply(
    db: sqlite3.Connection, provenance: Provenance, record_change: RecordChange
) -> RecordRow | None:
    match record_change:
        case Put():
            return _put(db, record_change, next_row(record_change, provenance))
        case Replace():
            return _replace(db, record_change, next_row(record_change, provenance))
        case Remove():
            return _remove(db, record_change)
        case _:
            assert_never(record_change)


def _put(db: sqlite3.Connection, put: Put, new: RecordRow) -> RecordRow:
    try:
        db.execute(
            f"insert into record({RECORD_COLUMNS}) values ({_PLACEHOLDERS})", record_values(new)
        )
    except sqlite3.IntegrityError:  # nothing was written; the transaction goes on
        if _find(db, new.kind, new.id) is not None:
            raise AlreadyExists(f"{new.kind} {new.id}: there is one already") from None
        _require_free_name(db, new)
        raise
    _store_content(db, new, put.content)
    if put.filters is not None:
        _insert_filters(db, new, put.filters)
    return new


def _replace(db: sqlite3.Connection, change: Replace, row: RecordRow) -> RecordRow:
    _require_current(db, change.row)
    _require_free_name(db, row)
    db.execute(
        f"update record set ({RECORD_COLUMNS}) = ({_PLACEHOLDERS}) where kind = ? and id = ?",
        (*record_values(row), row.kind, row.id),
    )
    _store_content(db, row, change.content)
    if change.filters is not None:
        key = (row.kind, row.id, STATUS_FILTER)
        db.execute("delete from record_filter where kind = ? and id = ? and name <> ?", key)
        db.execute(
            "update record_filter set is_archived = ? where kind = ? and id = ? and name = ?",
            (row.is_archived, *key),
        )
        _insert_filters(db, row, change.filters)
    return row


def _remove(db: sqlite3.Connection, change: Remove) -> None:
    key = (change.row.kind, change.row.id)
    _require_current(db, change.row)
    db.execute("delete from record where kind = ? and id = ?", key)
    db.execute("delete from record_content where kind = ? and id = ?", key)
    db.execute("delete from record_filter where kind = ? and id = ?", key)


def _require_current(db: sqlite3.Connection, row: RecordRow) -> None:
    current = _find(db, row.kind, row.id)
    if current is None:
        raise NotFound(row.kind, row.id)
    if current.rev != row.rev:
        raise StaleVersion(f"{row.kind} {row.id} has changed meanwhile")


def _require_free_name(db: sqlite3.Connection, new: RecordRow) -> None:
    if new.name is None:
        return
    namesake = _find_by_name(db, new.tenant, new.kind, new.parent, new.name)
    if namesake is not None and namesake.id != new.id:
        raise AlreadyExists(f"{new.kind} {new.name!r}: there is one already")


def _store_content(db: sqlite3.Connection, row: RecordRow, content: bytes | None) -> None:
    if content is not None:
        db.execute(
            "insert or replace into record_content(kind, id, content) values (?, ?, ?)",
            (row.kind, row.id, content),
        )


def _find(db: sqlite3.Connection, kind: str, id_: str) -> RecordRow | None:
    row = db.execute(
        f"select {RECORD_COLUMNS} from record where kind = ? and id = ?", (kind, id_)
    ).fetchone()
    return None if row is None else record_row(row)


def _find_by_name(
    db: sqlite3.Connection, tenant: str, kind: str, parent: str, name: str
) -> RecordRow | None:
    row = db.execute(
        f"select {RECORD_COLUMNS} from record where tenant = ? and kind = ? and "
        "parent = ? and name = ?",
        (tenant, kind, parent, name),
    ).fetchone()
    return None if row is None else record_row(row)


def _find_with_content(db: sqlite3.Connection, kind: str, id_: str) -> RecordWithContent | None:
    row = db.execute(
        f"select {RECORD_COLUMNS}, content from record left join record_content using (kind, id)"
        " where kind = ? and id = ?",
        (kind, id_),
    ).fetchone()
    return None if row is None else RecordWithContent(row=record_row(row), content=row[-1])


def _tally(db: sqlite3.Connection, counters: Sequence[tuple[str, int]]) -> list[int]:
    for name, amount in counters:
        total = _amount(db, name) + amount
        if abs(total) > _MAX_AMOUNT:  # not a `ServiceError`: the whole transaction is rolled back
            raise InvalidInput(f"counter {name} would overflow")
        if amount:
            db.execute("insert or replace into tally(name, amount) values (?, ?)", (name, total))
    return [_amount(db, name) for name, _ in counters]


def _amount(db: sqlite3.Connection, name: str) -> int:
    row = db.execute("select amount from tally where name = ?", (name,)).fetchone()
    return 0 if row is None else int(row[0])
