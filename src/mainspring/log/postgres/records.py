"""Records in the log's PostgreSQL database: see `log/records.py` for what each method promises.

One change is one statement, and so one round trip; a refusal costs a second one, to find out why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, LiteralString, Protocol, TypeVar, assert_never

from psycopg import errors

from mainspring.core.errors import AlreadyThere, NotFound, ServiceError, Stale, StoreUnavailable
from mainspring.log.columns import RECORD, record, record_values
from mainspring.log.postgres.connect import Connection
from mainspring.log.postgres.queries import Found, ask
from mainspring.log.records import Change, Put, Record, Remove, Replace, Wanted, Whole
from mainspring.log.wanted import (
    beyond,
    conditions,
    is_text,
    page,
    require_changes_keepable,
    require_keepable,
)

T = TypeVar("T")

_TRIES = 8

_VALUES: Final = "%s, %s, %s, %s, %s, %b, %s, %s, %s, %s, %s, %s"
_WITH_CONTENT: Final = """
    insert into mainspring.record_content(kind, id, content)
    select kind, id, %b::bytea from written
    on conflict (kind, id) do update set content = excluded.content
    returning id
"""
_PUT: Final = f"""
    insert into mainspring.record({RECORD}) values ({_VALUES})
    on conflict do nothing returning kind, id
"""
_REPLACE: Final = f"""
    update mainspring.record set ({RECORD}) = row({_VALUES})
     where kind = %s and id = %s and rev = %s returning kind, id
"""
_PUT_WITH_CONTENT: Final = f"with written as ({_PUT}) {_WITH_CONTENT}"
_REPLACE_WITH_CONTENT: Final = f"with written as ({_REPLACE}) {_WITH_CONTENT}"
_REMOVE: Final = """
    with gone as (
      delete from mainspring.record where kind = %s and id = %s and rev = %s returning kind, id
    ),
    emptied as (
      delete from mainspring.record_content c using gone where (c.kind, c.id) = (gone.kind, gone.id)
    )
    select id from gone
"""
_GET: Final = f"select {RECORD} from mainspring.record where kind = %s and id = %s"
_NAMED: Final = f"""
    select {RECORD} from mainspring.record
     where tenant = %s and kind = %s and parent = %s and name = %s
"""
_WHOLE: Final = f"""
    select {RECORD}, content
      from mainspring.record left join mainspring.record_content using (kind, id)
     where kind = %s and id = %s
"""
_EVERYTHING: Final = f"""
    select {RECORD} from mainspring.record where (kind, id) > (%s, %s) order by kind, id limit %s
"""
# In the order of names, so that of two that add to the same ones none waits for the other's.
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


class Work(Protocol):
    def __call__(self, work: Callable[[Connection], Awaitable[T]]) -> Awaitable[T]: ...


class PostgresRecords:
    """`read` and `write` are the store's; `write` tries again after a collision."""

    def __init__(self, read: Work, write: Work) -> None:
        self._read = read
        self._write = write

    async def get(self, kind: str, id_: str) -> Record:
        found = await self._one(_GET, [kind, id_]) if is_text(id_) else None
        if found is None:
            raise NotFound(kind, id_)
        return found

    async def named(self, kind: str, name: str, *, tenant: str, parent: str = "") -> Record:
        found = None
        if is_text(name) and is_text(parent):
            found = await self._one(_NAMED, [tenant, kind, parent, name])
        if found is None:
            raise NotFound(kind, name)
        return found

    async def list(self, wanted: Wanted) -> list[Record]:
        asked, values = page(wanted, "%s")
        found = await self._ask(f"select {RECORD} from mainspring.record {asked}", values)
        return [record(each) for each in found]

    async def count(self, wanted: Wanted) -> int:
        asked = conditions(wanted)
        [(number,)] = await self._ask(
            f"select count(*) from mainspring.record where {asked.where('%s')}", asked.values
        )
        return int(number)

    async def write(self, *changes: Change) -> tuple[Record, ...]:
        require_changes_keepable(changes)
        return await self._write(lambda db: _write_all(db, changes))

    async def content(self, kind: str, id_: str) -> bytes:
        content = (await self.whole(kind, id_)).content
        if content is None:
            raise NotFound(kind, id_)
        return content

    async def whole(self, kind: str, id_: str) -> Whole:
        found = await self._ask(_WHOLE, [kind, id_]) if is_text(id_) else None
        if not found:
            raise NotFound(kind, id_)
        return Whole(record=record(found[0]), content=found[0][-1])

    async def everything(self, *, after: Record | None = None, limit: int = 100) -> list[Record]:
        seen = ("", "") if after is None else (after.kind, after.id)
        return [record(each) for each in await self._ask(_EVERYTHING, [*seen, limit])]

    async def tally(self, counters: Sequence[tuple[str, int]]) -> list[int]:
        sums: dict[str, int] = {}
        for name, amount in counters:
            sums[name] = sums.get(name, 0) + amount
        require_keepable([*sums, *sums.values()])
        asked = {"names": list(sums), "amounts": list(sums.values())}
        reached = dict(await self._write(lambda db: ask(db, _TALLY, asked)))
        return [reached[name] for name, _ in counters]

    async def tallies(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        return [(name, amount) for name, amount in await self._ask(_TALLIES, [after, limit])]

    async def forget_tallies(self, prefix: str) -> None:
        require_keepable([prefix])
        asked = {"begin": prefix, "end": beyond(prefix)}
        await self._write(lambda db: db.asking.execute(_FORGET, asked, prepare=True))

    async def _one(self, statement: LiteralString, values: Sequence[Any]) -> Record | None:
        found = await self._ask(statement, values)
        return record(found[0]) if found else None

    async def _ask(self, statement: LiteralString, values: Sequence[Any]) -> Found:
        return await self._read(lambda db: ask(db, statement, values))


async def _write_all(db: Connection, changes: Sequence[Change]) -> tuple[Record, ...]:
    if len(changes) == 1:
        kept = await _apply(db, changes[0])
        return () if kept is None else (kept,)
    async with db.transaction():
        written = [await _apply(db, change) for change in changes]
    return tuple(kept for kept in written if kept is not None)


async def _apply(db: Connection, change: Change) -> Record | None:
    for _ in range(_TRIES):
        if await _is_applied(db, change):
            return None if isinstance(change, Remove) else _next(change.record)
        if (refusal := await _refusal(db, change)) is not None:
            raise refusal
    raise StoreUnavailable(f"others kept writing {change.record.id}; try again")


async def _is_applied(db: Connection, change: Change) -> bool:
    known = change.record
    match change:
        case Put(content=content):
            statement = _PUT if content is None else _PUT_WITH_CONTENT
            values = record_values(_next(known))
        case Replace(content=content):
            statement = _REPLACE if content is None else _REPLACE_WITH_CONTENT
            values = (*record_values(_next(known)), known.kind, known.id, known.rev)
        case Remove():
            statement, content = _REMOVE, None
            values = (known.kind, known.id, known.rev)
        case _:
            assert_never(change)
    try:
        written = await ask(db, statement, values if content is None else (*values, content))
    except errors.UniqueViolation as error:  # only a change of name gets here
        raise _taken(known) from error
    return bool(written)


async def _refusal(db: Connection, change: Change) -> ServiceError | None:
    """`None` if what was in the way is gone by now."""
    known = change.record
    found = await ask(db, _GET, [known.kind, known.id])
    if not isinstance(change, Put):
        if not found:
            return NotFound(known.kind, known.id)
        return Stale(f"{known.kind} {known.id} has changed meanwhile")
    if found:
        return AlreadyThere(f"{known.kind} {known.id}: there is one already")
    namesakes = [known.tenant, known.kind, known.parent, known.name]
    return _taken(known) if await ask(db, _NAMED, namesakes) else None


def _taken(known: Record) -> AlreadyThere:
    return AlreadyThere(f"{known.kind} {known.name!r}: there is one already")


def _next(known: Record) -> Record:
    return replace(known, rev=known.rev + 1)
