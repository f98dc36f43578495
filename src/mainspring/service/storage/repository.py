"""Repositories: all entities of one kind, typed, each under its tenant; deleting the children of
an entity; notifications of changes; the port that seals secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import AlreadyExists, NotFound, ServiceError, StaleVersion, StoreCorrupt
from mainspring.log.lru_cache import LruCache
from mainspring.log.records import (
    FilterValues,
    Put,
    RecordChange,
    RecordQuery,
    RecordRow,
    Records,
    Remove,
    Replace,
)
from mainspring.service.storage.pagination import Page, cut_page, decode_cursor

_LOG = logging.getLogger("mainspring.records")
_TRIES = 64  # updates of a record that others write, too


class Entity(Protocol):
    """The entity type of a repository: a struct with an id."""

    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Entity)
R = TypeVar("R")


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
    filters: FilterValues | None = None
    """What lists can be filtered by, beside these columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Filters and page of a list, without the tenant."""

    limit: int = 20
    page: str | None = None
    parent: str | None = None
    label: str | tuple[str, ...] | None = None
    """One label, or several."""
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
        cache_bytes: int = 0,
        clock: Clock = clocks.now,
    ) -> None:
        """`cache_bytes`: of how many bytes of records `read` keeps the decoded entities, so that an
        unchanged record is decoded once. The entities are shared: callers must not change them."""
        self.records = records
        self.kind = kind
        self._columns = columns
        self._clock = clock
        self._decoder = msgspec.json.Decoder(type_)
        self._decoded: LruCache[str, tuple[bytes, T]] = LruCache(
            cache_bytes, size_of=lambda entry: len(entry[0])
        )

    async def put(self, tenant: str, entity: T, *, content: bytes | None = None) -> T:
        """Raises: AlreadyExists."""
        await self.records.write(self.put_change(tenant, entity, content=content))
        return entity

    async def save(self, tenant: str, entity: T) -> T:
        """Put an entity, or replace the one with the same id."""
        try:
            return await self.put(tenant, entity)
        except AlreadyExists:
            return await self.update(tenant, entity.id, lambda _: entity)

    async def get(self, tenant: str, id_: str, *, parent: str | None = None) -> T:
        """Raises: NotFound, also for entities of other tenants or of another parent."""
        return self.read(await self.row(tenant, id_, parent=parent))

    async def find(self, tenant: str, id_: str) -> T | None:
        try:
            return await self.get(tenant, id_)
        except NotFound:
            return None

    async def named(self, tenant: str, name: str, *, parent: str = "") -> T:
        """Raises: NotFound."""
        return self.read(await self.records.named(self.kind, name, tenant=tenant, parent=parent))

    async def update(
        self, tenant: str, id_: str, change: Callable[[T], T], *, parent: str | None = None
    ) -> T:
        """Apply `change` to the current entity; retried if another process changed it.

        Raises: NotFound, and what `change` raises.
        """

        async def prepare() -> tuple[T, list[Replace]]:
            row = await self.row(tenant, id_, parent=parent)
            entity = change(self.read(row))
            return entity, [self.replace_change(row, entity)]

        return await self.transact(id_, prepare)

    async def remove(self, tenant: str, id_: str) -> None:
        """Raises: NotFound."""

        async def prepare() -> tuple[None, list[Remove]]:
            return None, [Remove(row=await self.row(tenant, id_))]

        await self.transact(id_, prepare)

    async def transact(
        self,
        id_: str,
        prepare: Callable[[], Awaitable[tuple[R, Sequence[RecordChange]]]],
        *,
        conflicts: tuple[type[ServiceError], ...] = (StaleVersion,),
    ) -> R:
        """Write the changes that `prepare` returns, all or nothing, and return its result. If
        another process wrote in between, prepare them again.

        Raises: StaleVersion: other requests kept changing it; and what `prepare` raises.
        """
        for _ in range(_TRIES):
            result, changes = await prepare()
            try:
                if changes:
                    await self.records.write(*changes)
            except conflicts:
                continue
            return result
        kind = self.kind.replace("_", " ")
        raise StaleVersion(f"{kind} {id_}: other requests kept changing it; try again")

    async def page(self, tenant: str, query: ListQuery) -> Page[T]:
        """Raises: InvalidInput: a cursor of another list."""
        labels = query.label if isinstance(query.label, tuple) else (query.label,)
        base_query = RecordQuery(
            kind=self.kind,
            tenant=tenant,
            parent=query.parent,
            name_from=query.name_from,
            is_archived=None if query.include_archived else False,
            created_from=optional_micros(query.created_from),
            created_upto=optional_micros(query.created_upto),
            after=None
            if query.page is None
            else row_at(*decode_cursor(query.page, tuple[int, str, str])),
            order="asc" if query.is_ascending else "desc",
            limit=query.limit + 1,
        )
        rows: list[RecordRow] = []
        for label in labels:
            rows += await self.records.list(replace(base_query, label=label))
        if len(labels) > 1:
            rows.sort(key=lambda row: (row.created, row.id), reverse=not query.is_ascending)
        page = cut_page(rows, query.limit, lambda row: (row.created, row.id, row.name or ""))
        return page.map(self.read)

    async def due(self, upto: datetime, *, limit: int = 100) -> list[tuple[RecordRow, T]]:
        """Entities of all tenants that are due by then, the longest due first. Unreadable records
        are skipped: they must not block the others."""
        due: list[tuple[RecordRow, T]] = []
        query = RecordQuery(kind=self.kind, due_upto=to_micros(upto), limit=limit)
        for row in await self.records.list(query):
            try:
                due.append((row, self.read(row)))
            except StoreCorrupt as error:
                _LOG.error("%s", error)
        return due

    async def remove_due(self, upto: datetime, *, limit: int = 100) -> int:
        """Remove due entities; returns how many."""
        due = await self.due(upto, limit=limit)
        return sum([await self.remove_row(row) for row, _ in due])

    async def remove_row(self, row: RecordRow) -> bool:
        """Remove a record; returns whether it still existed unchanged."""
        try:
            await self.records.write(Remove(row=row))
        except (StaleVersion, NotFound):
            return False
        return True

    async def row(self, tenant: str, id_: str, *, parent: str | None = None) -> RecordRow:
        """Raises: NotFound."""
        row = await self.records.get(self.kind, id_)
        if row.tenant != tenant or parent not in (None, row.parent):
            raise NotFound(self.kind, id_)
        return row

    def read(self, row: RecordRow) -> T:
        """Raises: StoreCorrupt: the record cannot be decoded."""
        cached = self._decoded.get(row.id)
        if cached is not None and cached[0] == row.body:
            return cached[1]
        try:
            entity = self._decoder.decode(row.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise unreadable_record(row) from error
        self._decoded.put(row.id, (row.body, entity))
        return entity

    def put_change(self, tenant: str, entity: T, *, content: bytes | None = None) -> Put:
        """The change that `put` makes, to combine several changes in one write."""
        moment = to_micros(self._columns(entity).created or self._clock())
        row = RecordRow(
            tenant=tenant, kind=self.kind, id=entity.id, created=moment, updated=moment, body=b""
        )
        filters = self._columns(entity).filters
        return Put(row=self._with_entity(row, entity), content=content, filters=filters)

    def replace_change(self, row: RecordRow, entity: T, *, content: bytes | None = None) -> Replace:
        columns = self._columns(entity)
        before = None if columns.filters is None else self._columns(self.read(row))
        is_same = before is not None and (before.filters, before.is_archived) == (
            columns.filters,
            columns.is_archived,
        )
        return Replace(
            row=self._with_entity(row, entity),
            content=content,
            filters=None if is_same else columns.filters,
        )

    def save_change(self, tenant: str, row: RecordRow | None, entity: T) -> Put | Replace:
        """The change that puts an entity, or replaces that of `row`."""
        return self.put_change(tenant, entity) if row is None else self.replace_change(row, entity)

    def _with_entity(self, row: RecordRow, entity: T) -> RecordRow:
        columns = self._columns(entity)
        return replace(
            row,
            body=msgspec.json.encode(entity),
            updated=to_micros(self._clock()),
            parent=columns.parent,
            name=columns.name,
            label=columns.label,
            due=optional_micros(columns.due),
            is_archived=columns.is_archived,
        )


async def all_pages(fetch: Callable[[ListQuery], Awaitable[Page[R]]], query: ListQuery) -> list[R]:
    """The items of all pages."""
    items: list[R] = []
    while True:
        page = await fetch(query)
        items += page.data
        if page.next_page is None:
            return items
        query = replace(query, page=page.next_page)


def row_at(created: int, id_: str, name: str | None = None) -> RecordRow:
    """A position in a list of records, to continue after it."""
    return RecordRow(
        tenant="", kind="", id=id_, name=name, created=created, updated=created, body=b""
    )


def unreadable_record(row: RecordRow) -> StoreCorrupt:
    """The error for a record that cannot be decoded. It does not contain the body, which may be
    anything."""
    return StoreCorrupt(
        f"the record {row.kind} {row.id} cannot be read; it was damaged, or written by a newer"
        " Mainspring"
    )


def optional_micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


_BATCH = 200  # records read at once


async def delete_children(records: Records, kind: str, *, tenant: str, parent: str) -> list[str]:
    """Delete all children of a parent; returns their ids. Children that appear meanwhile are
    deleted, too."""
    deleted: list[str] = []
    query = RecordQuery(kind=kind, tenant=tenant, parent=parent, limit=_BATCH)
    while rows := await records.list(query):
        try:
            await records.write(*(Remove(row=row) for row in rows))
        except (StaleVersion, NotFound):  # one was changed: list them again
            continue
        deleted += (row.id for row in rows)
    return deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    tenant: str
    type: str
    """The event type of webhooks: `vault.archived`."""
    id: str
    """The id of the resource."""
    vault_id: str | None = None
    """The vault, if it is about a credential."""


Notify: TypeAlias = Callable[[Notification], Awaitable[None]]


async def ignore_notification(_notification: Notification) -> None:
    pass
