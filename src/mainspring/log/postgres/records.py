"""Records in the log's PostgreSQL database; `log/records.py` documents the methods.

A change is one statement and one round trip. A refused change needs a second one, to find out why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, LiteralString, Protocol, TypeVar, assert_never

from psycopg import errors

from mainspring.core.errors import (
    AlreadyExists,
    NotFound,
    ServiceError,
    StaleVersion,
    StoreUnavailable,
)
from mainspring.log.filtered_pages import SqlDialect, filter_counts, filtered_ids, filtered_records
from mainspring.log.postgres.connect import Connection
from mainspring.log.postgres.queries import ResultRows, fetch_all
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

_MAX_ATTEMPTS = 8  # after conflicts with concurrent writes

_VALUES: Final = "%s, %s, %s, %s, %s, %b, %s, %s, %s, %s, %s, %s, %b, %b"
_WITH_CONTENT: Final = """
    insert into mainspring.record_content(kind, id, content)
    select kind, id, %b::bytea from written
    on conflict (kind, id) do update set content = excluded.content
    returning id
"""
_PUT: Final = f"""
    insert into mainspring.record({RECORD_COLUMNS}) values ({_VALUES})
    on conflict do nothing returning kind, id
"""
_REPLACE: Final = f"""
    update mainspring.record set ({RECORD_COLUMNS}) = row({_VALUES})
     where kind = %s and id = %s and rev = %s returning kind, id
"""
_INSERT_FILTERS: Final = f"""
    insert into mainspring.record_filter(kind, id, name, value, tenant, is_archived, created)
    select r.kind, r.id, f.name, f.value, r.tenant, r.is_archived, r.created
      from mainspring.record r cross join lateral (
           select name, value from unnest(%(names)b::text[], %(values)b::text[]) f(name, value)
           union
           select '{STATUS_FILTER}', coalesce(
             (select status from mainspring.listed_status s where s.id = r.id), 'idle')
            where r.kind = '{SESSION_KIND}' and not exists (
              select from mainspring.record_filter s
               where s.kind = r.kind and s.id = r.id and s.name = '{STATUS_FILTER}')) f
     where r.kind = %(kind)s and r.id = %(id)s and r.rev = %(rev)s
"""
# A scalar query, looked up for one record at a time: without statistics, `not exists` would read
# all filters for each step.
_HAS_NO_FILTER: Final = """
    not coalesce((select true from mainspring.record_filter f
                   where f.id = r.id and f.kind = r.kind limit 1), false)
"""
_ADD_FILTERS: Final = f"""
    with changed as (
      select r.kind, r.id, r.tenant, r.is_archived, r.created
        from unnest(%(kinds)b::text[], %(ids)b::text[], %(revs)b::bigint[]) c(kind, id, rev)
        join mainspring.record r using (kind, id, rev)
       where {_HAS_NO_FILTER}
    )
    insert into mainspring.record_filter(kind, id, name, value, tenant, is_archived, created)
    select c.kind, c.id, f.name, f.value, c.tenant, c.is_archived, c.created
      from changed c join unnest(%(owners)b::text[], %(names)b::text[], %(values)b::text[])
           f(id, name, value) using (id)
    union all
    select c.kind, c.id, '{STATUS_FILTER}', coalesce(
             (select status from mainspring.listed_status s where s.id = c.id), 'idle'),
           c.tenant, c.is_archived, c.created
      from changed c where c.kind = '{SESSION_KIND}'
    on conflict do nothing
"""
_REMOVE_FILTERS: Final = f"""
    delete from mainspring.record_filter where kind = %s and id = %s and name <> '{STATUS_FILTER}'
"""
# In place: an event that changes the status meanwhile waits, and finds the row again.
_ARCHIVE_STATUS: Final = f"""
    update mainspring.record_filter set is_archived = %s
     where kind = %s and id = %s and name = '{STATUS_FILTER}'
"""
_WITHOUT_FILTERS: Final = f"""
    select {RECORD_COLUMNS} from mainspring.record r
     where kind = %s and id > %s and {_HAS_NO_FILTER}
     order by id limit %s
"""
_DIALECT: Final = SqlDialect("mainspring.record", "mainspring.record_filter", "%s")
_PUT_WITH_CONTENT: Final = f"with written as ({_PUT}) {_WITH_CONTENT}"
_REPLACE_WITH_CONTENT: Final = f"with written as ({_REPLACE}) {_WITH_CONTENT}"
_REMOVE: Final = """
    with removed as (
      delete from mainspring.record where kind = %s and id = %s and rev = %s returning kind, id
    ),
    removed_content as (
      delete from mainspring.record_content c using removed r where (c.kind, c.id) = (r.kind, r.id)
    ),
    removed_filters as (
      delete from mainspring.record_filter f using removed r where (f.kind, f.id) = (r.kind, r.id)
    )
    select id from removed
"""
_GET: Final = f"select {RECORD_COLUMNS} from mainspring.record where kind = %s and id = %s"
_NAMED: Final = f"""
    select {RECORD_COLUMNS} from mainspring.record
     where tenant = %s and kind = %s and parent = %s and name = %s
"""
_WHOLE: Final = f"""
    select {RECORD_COLUMNS}, content
      from mainspring.record left join mainspring.record_content using (kind, id)
     where kind = %s and id = %s
"""
_EVERYTHING: Final = f"""
    select {RECORD_COLUMNS} from mainspring.record
     where (kind, id) > (%s, %s) order by kind, id limit %s
"""
# In order of names, so that two transactions that add to the same counters do not deadlock.
_TALLY: Final = """
    with asked as (
      select name, amount from unnest(%(names)b::text[], %(amounts)b::bigint[]) a(name, amount)
    ),
    added as (
      insert into mainspring.tally as t(name, amount)
      select name, amount from asked where amount <> 0 order by name collate "C"
      on conflict (name) do update set amount = t.amount + excluded.amount
      returning name, amount
    )
    select asked.name, coalesce(added.amount, t.amount, 0)
      from asked left join added using (name) left join mainspring.tally t using (name)
"""
_TALLIES: Final = "select name, amount from mainspring.tally where name > %s order by name limit %s"
_FORGET: Final = """
    delete from mainspring.tally
     where name >= %(begin)s and (%(end)s::text is null or name < %(end)s)
"""


class RunQuery(Protocol):
    def __call__(self, work: Callable[[Connection], Awaitable[T]]) -> Awaitable[T]: ...


class PostgresRecords:
    """The store passes in `read` and `write`; `write` retries after a conflict."""

    def __init__(self, read: RunQuery, write: RunQuery, provenance: Provenance) -> None:
        self._read = read
        self._write = write
        self._provenance = provenance

    async def get(self, kind: str, id_: str) -> RecordRow:
        row = await self._fetch_one(_GET, [kind, id_]) if is_storable_text(id_) else None
        if row is None:
            raise NotFound(kind, id_)
        return self._provenance.own_record(row)

    async def named(self, kind: str, name: str, *, tenant: str, parent: str = "") -> RecordRow:
        row = None
        if is_storable_text(name) and is_storable_text(parent):
            row = await self._fetch_one(_NAMED, [tenant, kind, parent, name])
        if row is None:
            raise NotFound(kind, name)
        return self._provenance.own_record(row)

    async def list(self, query: RecordQuery) -> list[RecordRow]:
        if query.filters:
            rows = await self._read(lambda db: _filtered(db, query))
        else:
            clauses, values = record_page(query, "%s")
            rows = await self._fetch_all(
                f"select {RECORD_COLUMNS} from mainspring.record {clauses}", values
            )
        return [self._provenance.own_record(record_row(item)) for item in rows]

    async def without_filters(self, kind: str, *, after: str, limit: int) -> list[RecordRow]:
        rows = await self._fetch_all(_WITHOUT_FILTERS, [kind, after, limit])
        return [record_row(item) for item in rows]

    async def add_filters(self, *changes: tuple[RecordRow, FilterValues]) -> None:
        pairs = [(row.id, *pair) for row, filters in changes for pair in dict.fromkeys(filters)]
        values = {
            "kinds": [row.kind for row, _ in changes],
            "ids": [row.id for row, _ in changes],
            "revs": [row.rev for row, _ in changes],
            "owners": [pair[0] for pair in pairs],
            "names": [pair[1] for pair in pairs],
            "values": [pair[2] for pair in pairs],
        }
        await self._write(lambda db: db.shared_cursor.execute(_ADD_FILTERS, values, prepare=True))

    async def ids(self, query: RecordQuery) -> list[tuple[int, str]]:
        if query.filters:
            rows = await self._read(lambda db: _filtered_ids(db, query))
        else:
            clauses, values = record_page(query, "%s")
            statement: LiteralString = f"select created, id from mainspring.record {clauses}"
            rows = await self._fetch_all(statement, values)
        return [(created, id_) for created, id_ in rows]

    async def count(self, query: RecordQuery) -> int:
        terms = record_conditions(query)
        [(number,)] = await self._fetch_all(
            f"select count(*) from mainspring.record where {terms.where('%s')}",
            terms.values,
        )
        return int(number)

    async def write(self, *changes: RecordChange) -> tuple[RecordRow, ...]:
        require_changes_storable(changes)
        return await self._write(lambda db: _write_all(db, self._provenance, changes))

    async def content(self, kind: str, id_: str) -> bytes:
        content = self._provenance.own_content(await self.whole(kind, id_)).content
        if content is None:
            raise NotFound(kind, id_)
        return content

    async def whole(self, kind: str, id_: str) -> RecordWithContent:
        rows = await self._fetch_all(_WHOLE, [kind, id_]) if is_storable_text(id_) else None
        if not rows:
            raise NotFound(kind, id_)
        return RecordWithContent(row=record_row(rows[0]), content=rows[0][-1])

    async def everything(
        self, *, after: RecordRow | None = None, limit: int = 100
    ) -> list[RecordRow]:
        position = ("", "") if after is None else (after.kind, after.id)
        return [record_row(item) for item in await self._fetch_all(_EVERYTHING, [*position, limit])]

    async def tally(self, counters: Sequence[tuple[str, int]]) -> list[int]:
        sums: dict[str, int] = {}
        for name, amount in counters:
            sums[name] = sums.get(name, 0) + amount
        require_storable([*sums, *sums.values()])
        values = {"names": list(sums), "amounts": list(sums.values())}
        amounts = dict(await self._write(lambda db: fetch_all(db, _TALLY, values)))
        return [amounts[name] for name, _ in counters]

    async def tallies(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        return [(name, amount) for name, amount in await self._fetch_all(_TALLIES, [after, limit])]

    async def forget_tallies(self, prefix: str) -> None:
        require_storable([prefix])
        values = {"begin": prefix, "end": prefix_end(prefix)}
        await self._write(lambda db: db.shared_cursor.execute(_FORGET, values, prepare=True))

    async def _fetch_one(self, statement: LiteralString, values: Sequence[Any]) -> RecordRow | None:
        rows = await self._fetch_all(statement, values)
        return record_row(rows[0]) if rows else None

    async def _fetch_all(self, statement: LiteralString, values: Sequence[Any]) -> ResultRows:
        return await self._read(lambda db: fetch_all(db, statement, values))


async def _rarest(db: Connection, query: RecordQuery) -> int:
    """The index of the filter with the fewest records."""
    if len(query.filters) == 1:
        return 0
    counted = filter_counts(query, _DIALECT)
    [counts] = await fetch_all(db, counted.text, counted.values)
    return counts.index(min(counts))


async def _filtered(db: Connection, query: RecordQuery) -> ResultRows:
    page = filtered_records(query, _DIALECT, await _rarest(db, query))
    return await fetch_all(db, page.text, page.values)


async def _filtered_ids(db: Connection, query: RecordQuery) -> ResultRows:
    page = filtered_ids(query, _DIALECT, await _rarest(db, query))
    return await fetch_all(db, page.text, page.values)


async def _insert_filters(db: Connection, row: RecordRow, filters: FilterValues) -> None:
    pairs = list(dict.fromkeys(filters))
    values = {
        "names": [name for name, _ in pairs],
        "values": [value for _, value in pairs],
        "kind": row.kind,
        "id": row.id,
        "rev": row.rev,
    }
    await db.shared_cursor.execute(_INSERT_FILTERS, values, prepare=True)


async def _write_all(
    db: Connection, provenance: Provenance, record_changes: Sequence[RecordChange]
) -> tuple[RecordRow, ...]:
    first = record_changes[0] if len(record_changes) == 1 else None
    if first is not None and (isinstance(first, Remove) or first.filters is None):
        row = await _apply(db, provenance, first)
        return () if row is None else (row,)
    async with db.transaction():
        rows = [await _apply(db, provenance, change) for change in record_changes]
    return tuple(row for row in rows if row is not None)


async def _apply(
    db: Connection, provenance: Provenance, record_change: RecordChange
) -> RecordRow | None:
    new = None if isinstance(record_change, Remove) else next_row(record_change, provenance)
    for _ in range(_MAX_ATTEMPTS):
        if await _try_apply(db, record_change, new):
            await _apply_filters(db, record_change, new)
            return new
        if (refusal := await _refusal(db, record_change)) is not None:
            raise refusal
    raise StoreUnavailable(f"other writers kept changing {record_change.row.id}; try again")


async def _apply_filters(
    db: Connection, record_change: RecordChange, new: RecordRow | None
) -> None:
    if new is None or isinstance(record_change, Remove) or record_change.filters is None:
        return
    if isinstance(record_change, Replace):
        key = [new.kind, new.id]
        await db.shared_cursor.execute(_REMOVE_FILTERS, key, prepare=True)
        await db.shared_cursor.execute(_ARCHIVE_STATUS, [new.is_archived, *key], prepare=True)
    await _insert_filters(db, new, record_change.filters)


async def _try_apply(db: Connection, record_change: RecordChange, new: RecordRow | None) -> bool:
    row = record_change.row
    match record_change:
        case Put(content=content):
            statement = _PUT if content is None else _PUT_WITH_CONTENT
            values = record_values(new or row)
        case Replace(content=content):
            statement = _REPLACE if content is None else _REPLACE_WITH_CONTENT
            values = (*record_values(new or row), row.kind, row.id, row.rev)
        case Remove():
            statement, content = _REMOVE, None
            values = (row.kind, row.id, row.rev)
        case _:
            assert_never(record_change)
    try:
        rows = await fetch_all(db, statement, values if content is None else (*values, content))
    except errors.UniqueViolation as error:  # only a new name can cause this
        raise _name_taken(row) from error
    return bool(rows)


async def _refusal(db: Connection, record_change: RecordChange) -> ServiceError | None:
    """Why the change was refused; `None` if the conflicting record no longer exists."""
    row = record_change.row
    rows = await fetch_all(db, _GET, [row.kind, row.id])
    if not isinstance(record_change, Put):
        if not rows:
            return NotFound(row.kind, row.id)
        return StaleVersion(f"{row.kind} {row.id} has changed meanwhile")
    if rows:
        return AlreadyExists(f"{row.kind} {row.id}: there is one already")
    namesakes = [row.tenant, row.kind, row.parent, row.name]
    return _name_taken(row) if await fetch_all(db, _NAMED, namesakes) else None


def _name_taken(row: RecordRow) -> AlreadyExists:
    return AlreadyExists(f"{row.kind} {row.name!r}: there is one already")
