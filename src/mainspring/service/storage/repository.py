"""Repositories: all entities of one kind, typed, each under its tenant; deleting the children of
an entity; the port that seals secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Protocol, TypeVar

import msgspec

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import InvalidInput, NotFound, StaleVersion, StoreCorrupt
from mainspring.log.records import Put, RecordQuery, RecordRow, Records, Remove, Replace
from mainspring.service.storage.pagination import Page, decode_cursor, encode_cursor

_LOG = logging.getLogger("mainspring.records")
_TRIES = 8
SESSION_KIND = "session"
"""The kind of session records: jobs find the tenant of a session by it."""


class Entity(Protocol):
    """What a repository stores: a struct with an id."""

    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Entity)


@dataclass(frozen=True, slots=True)
class IndexColumns:
    """The columns by which an entity is found; see `RecordRow`."""

    parent: str = ""
    name: str | None = None
    label: str = ""
    due: datetime | None = None
    is_archived: bool = False
    created: datetime | None = None
    """The creation time that lists filter by; the time of `put` unless given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Filters and page of a list, without the tenant."""

    limit: int = 20
    page: str | None = None
    parent: str | None = None
    label: str | None = None
    name_from: str | None = None
    include_archived: bool = False
    created_from: datetime | None = None
    created_upto: datetime | None = None
    is_ascending: bool = False


class Repository(Generic[T]):
    def __init__(
        self,
        records: Records,
        kind: str,
        type_: type[T],
        *,
        columns: Callable[[T], IndexColumns] = lambda _: IndexColumns(),
        clock: Clock = clocks.now,
    ) -> None:
        self.records = records
        self.kind = kind
        self._columns = columns
        self._clock = clock
        self._decoder = msgspec.json.Decoder(type_)

    async def put(self, tenant: str, thing: T, *, content: bytes | None = None) -> T:
        """Raises: AlreadyThere."""
        await self.records.write(self.put_change(tenant, thing, content=content))
        return thing

    async def get(self, tenant: str, id_: str) -> T:
        """Raises: NotFound, also for entities of other tenants."""
        return self.read(await self.record(tenant, id_))

    async def named(self, tenant: str, name: str, *, parent: str = "") -> T:
        """Raises: NotFound."""
        return self.read(await self.records.named(self.kind, name, tenant=tenant, parent=parent))

    async def update(self, tenant: str, id_: str, change: Callable[[T], T]) -> T:
        """Apply `change` to the current entity; retried if somebody else changed it.

        Raises: NotFound, and what `change` raises.
        """
        for _ in range(_TRIES):
            record = await self.record(tenant, id_)
            thing = change(self.read(record))
            try:
                await self.records.write(self.replace_change(record, thing))
            except StaleVersion:
                continue
            return thing
        raise StaleVersion(f"{self.kind} {id_}: others kept changing it; try again")

    async def remove(self, tenant: str, id_: str) -> None:
        """Raises: NotFound."""
        for _ in range(_TRIES):
            try:
                await self.records.write(Remove(record_row=await self.record(tenant, id_)))
            except StaleVersion:
                continue
            return
        raise StaleVersion(f"{self.kind} {id_}: others kept changing it; try again")

    async def page(self, tenant: str, list_query: ListQuery) -> Page[T]:
        """Raises: InvalidInput: a cursor of another list."""
        found = await self.records.list(
            RecordQuery(
                kind=self.kind,
                tenant=tenant,
                parent=list_query.parent,
                label=list_query.label,
                name_from=list_query.name_from,
                is_archived=None if list_query.include_archived else False,
                created_from=_micros(list_query.created_from),
                created_upto=_micros(list_query.created_upto),
                after=None
                if list_query.page is None
                else self._cursor_record(tenant, list_query.page),
                order="asc" if list_query.is_ascending else "desc",
                limit=list_query.limit + 1,
            )
        )
        shown = found[: list_query.limit]
        next_page = None
        if len(found) > list_query.limit:
            last = shown[-1]
            next_page = encode_cursor(last.created, last.id, last.name or "")
        return Page(data=[self.read(record) for record in shown], next_page=next_page)

    async def due(self, upto: datetime, *, limit: int = 100) -> list[tuple[RecordRow, T]]:
        """Entities of all tenants that are due by then, the longest due first. Unreadable records
        are skipped: they must not block the others."""
        found = await self.records.list(
            RecordQuery(kind=self.kind, due_upto=to_micros(upto), limit=limit)
        )
        due: list[tuple[RecordRow, T]] = []
        for record in found:
            try:
                due.append((record, self.read(record)))
            except StoreCorrupt as error:
                _LOG.error("%s", error)
        return due

    async def record(self, tenant: str, id_: str) -> RecordRow:
        """Raises: NotFound."""
        record = await self.records.get(self.kind, id_)
        if record.tenant != tenant:
            raise NotFound(self.kind, id_)
        return record

    def read(self, row: RecordRow) -> T:
        """Raises: StoreCorrupt: the record cannot be decoded."""
        try:
            return self._decoder.decode(row.body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unreadable_record(row) from error

    def put_change(self, tenant: str, thing: T, *, content: bytes | None = None) -> Put:
        """The change that `put` makes, to combine several changes in one write."""
        moment = to_micros(self._columns(thing).created or self._clock())
        empty = RecordRow(
            tenant=tenant, kind=self.kind, id=thing.id, created=moment, updated=moment, body=b""
        )
        return Put(record_row=self._with_entity(empty, thing), content=content)

    def replace_change(self, row: RecordRow, thing: T, *, content: bytes | None = None) -> Replace:
        return Replace(record_row=self._with_entity(row, thing), content=content)

    def _with_entity(self, row: RecordRow, thing: T) -> RecordRow:
        columns = self._columns(thing)
        return replace(
            row,
            body=msgspec.json.encode(thing),
            updated=to_micros(self._clock()),
            parent=columns.parent,
            name=columns.name,
            label=columns.label,
            due=_micros(columns.due),
            is_archived=columns.is_archived,
        )

    def _cursor_record(self, tenant: str, cursor: str) -> RecordRow:
        match decode_cursor(cursor):
            case [int(created), str(id_), str(name)]:
                return RecordRow(
                    tenant=tenant,
                    kind=self.kind,
                    id=id_,
                    name=name,
                    created=created,
                    updated=created,
                    body=b"",
                )
            case _:
                raise InvalidInput("page: not a cursor of this list")


def unreadable_record(row: RecordRow) -> StoreCorrupt:
    """The message does not contain the body, which may be anything."""
    return StoreCorrupt(
        f"the record {row.kind} {row.id} cannot be read; it was "
        "damaged, or written by a"
        " newer Mainspring"
    )


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


_BATCH = 200


async def delete_children(records: Records, kind: str, *, tenant: str, parent: str) -> list[str]:
    """Returns the deleted ids. Children that appear in the meantime are deleted too."""
    gone: list[str] = []
    wanted = RecordQuery(kind=kind, tenant=tenant, parent=parent, limit=_BATCH)
    while found := await records.list(wanted):
        try:
            await records.write(*(Remove(record_row=item) for item in found))
        except (StaleVersion, NotFound):  # somebody changed one: list them again
            continue
        gone += (item.id for item in found)
    return gone


class Seal(Protocol):
    def seal(self, plain: bytes, context: str) -> bytes:
        """`context` names the owner of the secret; unsealing needs the same context."""
        ...

    def unseal(self, sealed: bytes, context: str) -> bytes:
        """Raises: StoreCorrupt: another key or context, or the sealed bytes were changed."""
        ...
