"""Memory stores: named containers of memories that sessions can use."""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.log.records import RecordRow, Records, Remove
from mainspring.service.memory_stores.memory_records import MEMORY_KIND, VERSION_KIND
from mainspring.service.storage.metadata import Metadata, MetadataPatch, copy_fields, patch_metadata
from mainspring.service.storage.repository import (
    IndexColumns,
    Notification,
    Notify,
    Repository,
    delete_children,
    ignore_notification,
)

ForgetStore = Callable[[str, str], Awaitable[None]]
"""Removes everything of a tenant's store from the index."""
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Description = Annotated[str, Meta(max_length=1024)]


class MemoryStore(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    created_at: datetime
    updated_at: datetime
    description: str = ""
    metadata: Metadata = {}
    archived_at: datetime | None = None
    type: Literal["memory_store"] = "memory_store"


class CreateMemoryStore(Struct, frozen=True, kw_only=True):
    name: Name
    description: Description = ""
    metadata: Metadata = {}


class UpdateMemoryStore(Struct, frozen=True, kw_only=True):
    name: Name | None = None
    description: Description | None = None
    metadata: MetadataPatch | UnsetType | None = UNSET


async def _forget_nothing(_tenant: str, _store_id: str) -> None:
    pass


class MemoryStores:
    def __init__(
        self,
        records: Records,
        *,
        notify: Notify = ignore_notification,
        forget: ForgetStore = _forget_nothing,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._repository = Repository(
            records, "memory_store", MemoryStore, columns=_index_columns, clock=clock
        )
        self.get = self._repository.get
        self.page = self._repository.page
        self._notify = notify
        self.forget = forget
        self._clock = clock
        self._new_id = new_id

    async def create(
        self, tenant: str, request: CreateMemoryStore, *, store_id: str | None = None
    ) -> MemoryStore:
        """`store_id`: chosen by a caller that must not create it twice.

        Raises: AlreadyExists.
        """
        now = self._clock()
        _check_name(request.name)
        store = copy_fields(
            MemoryStore,
            request,
            id=store_id or self._new_id("memstore"),
            created_at=now,
            updated_at=now,
        )
        await self._repository.put(tenant, store)
        await self._notify_change(tenant, store.id, "created")
        return store

    async def update(self, tenant: str, store_id: str, request: UpdateMemoryStore) -> MemoryStore:
        """Raises: InvalidInput: it is archived."""

        def change(current: MemoryStore) -> MemoryStore:
            _require_active(current)
            return replace(
                current,
                name=current.name if request.name is None else _check_name(request.name),
                description=current.description
                if request.description is None
                else request.description,
                metadata=patch_metadata(current.metadata, request.metadata),
                updated_at=self._clock(),
            )

        return await self._repository.update(tenant, store_id, change)

    async def archive(self, tenant: str, store_id: str) -> MemoryStore:
        """Archive a store permanently: it becomes read-only, and no new session can use it."""
        is_new = False

        def change(current: MemoryStore) -> MemoryStore:
            nonlocal is_new
            is_new = current.archived_at is None
            now = self._clock()
            return replace(current, archived_at=now, updated_at=now) if is_new else current

        archived = await self._repository.update(tenant, store_id, change)
        if is_new:
            await self._notify_change(tenant, store_id, "archived")
        return archived

    async def delete(self, tenant: str, store_id: str) -> None:
        """Delete a store with its memories and all their versions. After a crash, repeat it to
        finish."""
        records = self._repository.records

        async def prepare() -> tuple[None, list[Remove]]:
            row = await self._repository.row(tenant, store_id)
            # memories first: while there is one, it may still get versions
            for kind in (MEMORY_KIND, VERSION_KIND):
                await delete_children(records, kind, tenant=tenant, parent=store_id)
            return None, [Remove(row=row)]  # fails if it got a memory meanwhile

        await self.forget(tenant, store_id)  # before: a crash may prevent the second one
        await self._repository.transact(store_id, prepare)
        await self.forget(tenant, store_id)  # what a search indexed meanwhile
        await self._notify_change(tenant, store_id, "deleted")

    async def active(self, tenant: str, store_id: str) -> MemoryStore:
        """The store, for a new session that uses it.

        Raises: NotFound; InvalidInput: it is archived.
        """
        store = await self._repository.get(tenant, store_id)
        _require_active(store)
        return store

    async def writable(self, tenant: str, store_id: str) -> RecordRow:
        """The record of the store. Written together with a new path, it ensures that no other path
        was added, and that the store was neither archived nor deleted, in the meantime.

        Raises: NotFound; InvalidInput: it is archived.
        """
        row = await self._repository.row(tenant, store_id)
        _require_active(self._repository.read(row))
        return row

    async def _notify_change(self, tenant: str, store_id: str, action: str) -> None:
        await self._notify(Notification(tenant=tenant, type=f"memory_store.{action}", id=store_id))


def _require_active(store: MemoryStore) -> None:
    """Raises: InvalidInput."""
    if store.archived_at is not None:
        raise InvalidInput(f"the memory store {store.id} is archived: it can only be read")


def _check_name(name: str) -> str:
    if any(unicodedata.category(item) == "Cc" for item in name):
        raise InvalidInput("name: must not contain control characters")
    return name


def _index_columns(store: MemoryStore) -> IndexColumns:
    return IndexColumns(is_archived=store.archived_at is not None, created=store.created_at)
