"""A drawer: all things of one kind, typed, each under its tenant."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Protocol, TypeVar

import msgspec

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import InvalidInput, NotFound, Stale, StoreCorrupt
from mainspring.log.records import Put, Record, Records, Remove, Replace, Wanted
from mainspring.service.keeping.page import Page, cursor_of, place_of

_LOG = logging.getLogger("mainspring.records")
_TRIES = 8


class Thing(Protocol):
    """What a drawer keeps: a struct with an id."""

    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Thing)


@dataclass(frozen=True, slots=True)
class Tabs:
    """The columns by which a thing is found; see `Record`."""

    parent: str = ""
    name: str | None = None
    label: str = ""
    due: datetime | None = None
    is_archived: bool = False
    created: datetime | None = None
    """When it says that it was made, for lists to filter by; when it is put, unless given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a list is asked for, without whose it is."""

    limit: int = 20
    page: str | None = None
    parent: str | None = None
    label: str | None = None
    name_from: str | None = None
    include_archived: bool = False
    created_from: datetime | None = None
    created_upto: datetime | None = None
    is_ascending: bool = False


class Drawer(Generic[T]):
    def __init__(
        self,
        records: Records,
        kind: str,
        type_: type[T],
        *,
        tabs: Callable[[T], Tabs] = lambda _: Tabs(),
        clock: Clock = clocks.now,
    ) -> None:
        self.records = records
        self.kind = kind
        self._tabs = tabs
        self._clock = clock
        self._decoder = msgspec.json.Decoder(type_)

    async def put(self, tenant: str, thing: T, *, content: bytes | None = None) -> T:
        """Raises: AlreadyThere."""
        await self.records.write(self.putting(tenant, thing, content=content))
        return thing

    async def get(self, tenant: str, id_: str) -> T:
        """Raises: NotFound, also for what is another tenant's."""
        return self.read(await self.record(tenant, id_))

    async def named(self, tenant: str, name: str, *, parent: str = "") -> T:
        """Raises: NotFound."""
        return self.read(await self.records.named(self.kind, name, tenant=tenant, parent=parent))

    async def update(self, tenant: str, id_: str, change: Callable[[T], T]) -> T:
        """Change it by a function of what it is, whoever else changes it meanwhile.

        Raises: NotFound, and what `change` raises.
        """
        for _ in range(_TRIES):
            record = await self.record(tenant, id_)
            thing = change(self.read(record))
            try:
                await self.records.write(self.replacing(record, thing))
            except Stale:
                continue
            return thing
        raise Stale(f"{self.kind} {id_}: others kept changing it; try again")

    async def remove(self, tenant: str, id_: str) -> None:
        """Raises: NotFound."""
        for _ in range(_TRIES):
            try:
                await self.records.write(Remove(record=await self.record(tenant, id_)))
            except Stale:
                continue
            return
        raise Stale(f"{self.kind} {id_}: others kept changing it; try again")

    async def page(self, tenant: str, listing: Listing) -> Page[T]:
        """Raises: InvalidInput: a cursor of another list."""
        found = await self.records.list(
            Wanted(
                kind=self.kind,
                tenant=tenant,
                parent=listing.parent,
                label=listing.label,
                name_from=listing.name_from,
                is_archived=None if listing.include_archived else False,
                created_from=_micros(listing.created_from),
                created_upto=_micros(listing.created_upto),
                after=None if listing.page is None else self._seen(tenant, listing.page),
                order="asc" if listing.is_ascending else "desc",
                limit=listing.limit + 1,
            )
        )
        shown = found[: listing.limit]
        next_page = None
        if len(found) > listing.limit:
            last = shown[-1]
            next_page = cursor_of(last.created, last.id, last.name or "")
        return Page(data=[self.read(record) for record in shown], next_page=next_page)

    async def due(self, upto: datetime, *, limit: int = 100) -> list[tuple[Record, T]]:
        """Of all tenants, what something is to be done about by then, the longest due first. What
        cannot be read is passed over: it must not hold up everybody else's."""
        found = await self.records.list(
            Wanted(kind=self.kind, due_upto=to_micros(upto), limit=limit)
        )
        due: list[tuple[Record, T]] = []
        for record in found:
            try:
                due.append((record, self.read(record)))
            except StoreCorrupt as error:
                _LOG.error("%s", error)
        return due

    async def record(self, tenant: str, id_: str) -> Record:
        """Raises: NotFound."""
        record = await self.records.get(self.kind, id_)
        if record.tenant != tenant:
            raise NotFound(self.kind, id_)
        return record

    def read(self, record: Record) -> T:
        """Raises: StoreCorrupt: it is not what it should be."""
        try:
            return self._decoder.decode(record.body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unreadable(record) from error

    def putting(self, tenant: str, thing: T, *, content: bytes | None = None) -> Put:
        """The change that `put` makes, for several of them in one write."""
        moment = to_micros(self._tabs(thing).created or self._clock())
        empty = Record(
            tenant=tenant, kind=self.kind, id=thing.id, created=moment, updated=moment, body=b""
        )
        return Put(record=self._filled(empty, thing), content=content)

    def replacing(self, record: Record, thing: T, *, content: bytes | None = None) -> Replace:
        return Replace(record=self._filled(record, thing), content=content)

    def _filled(self, record: Record, thing: T) -> Record:
        tabs = self._tabs(thing)
        return replace(
            record,
            body=msgspec.json.encode(thing),
            updated=to_micros(self._clock()),
            parent=tabs.parent,
            name=tabs.name,
            label=tabs.label,
            due=_micros(tabs.due),
            is_archived=tabs.is_archived,
        )

    def _seen(self, tenant: str, cursor: str) -> Record:
        match place_of(cursor):
            case [int(created), str(id_), str(name)]:
                return Record(
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


def unreadable(record: Record) -> StoreCorrupt:
    """What is in it is not told: it may be anything."""
    return StoreCorrupt(
        f"the record {record.kind} {record.id} cannot be read; it was damaged, or written by a"
        " newer Mainspring"
    )


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)
