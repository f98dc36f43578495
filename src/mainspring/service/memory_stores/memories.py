"""Memories: texts at paths of a memory store. Every change is written together with its version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import (
    AlreadyExists,
    InvalidInput,
    MemoryChanged,
    NotFound,
    PathTaken,
    StaleVersion,
)
from mainspring.log.records import Put, RecordQuery, RecordRow, Records, Remove, Replace
from mainspring.service.memory_stores.memory_records import (
    LAST_CHARACTER,
    MAX_SEGMENTS,
    MEMORY_KIND,
    VERSION_KIND,
    CreateMemory,
    MemoryActor,
    MemoryObject,
    MemoryOperation,
    MemoryPrefix,
    MemoryView,
    UpdateMemory,
    check_path,
    check_prefix,
    content_digest,
    encode_content,
    folder_at_depth,
    memory_repository,
    parent_folders,
    version_of,
    version_repository,
)
from mainspring.service.memory_stores.memory_stores import MemoryStores
from mainspring.service.storage.pagination import Page, cut_page, decode_cursor
from mainspring.service.storage.repository import row_at

MAX_MEMORIES = 10_000
"""The limit per store."""
MAX_FULL_PAGE = 20  # memories with their contents
_TRIES = 64  # updates that others compete for
_BATCH, _LONG_BATCH = 100, 1_000  # memories read at once, with contents and without

T = TypeVar("T")


class MemoryListing(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None
    path_prefix: str = "/"
    depth: Annotated[int, Meta(ge=0, le=MAX_SEGMENTS)] = 0
    """0: all levels."""
    view: MemoryView = "basic"

    @property
    def most(self) -> int:
        return min(self.limit, MAX_FULL_PAGE) if self.view == "full" else self.limit


@dataclass(frozen=True, slots=True)
class _ListItem:
    """A memory, or a folder that represents the memories in it."""

    name: str
    """The list continues after this name."""
    row: RecordRow | None = None

    @property
    def position(self) -> tuple[str, str]:
        return self.name, "" if self.row is None else self.row.id


class Memories:
    def __init__(
        self,
        records: Records,
        stores: MemoryStores,
        *,
        max_memories: int = MAX_MEMORIES,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._records = records
        self._stores = stores
        self._max = max_memories
        self._repository = memory_repository(records, clock)
        self._versions = version_repository(records, clock)
        self._clock = clock
        self._new_id = new_id

    async def create(
        self,
        tenant: str,
        store_id: str,
        request: CreateMemory,
        actor: MemoryActor,
        *,
        view: MemoryView = "basic",
    ) -> MemoryObject:
        """Raises: NotFound; InvalidInput: a bad path, too large, an archived or full store;
        PathTaken."""
        path, content = check_path(request.path), encode_content(request.content)

        async def attempt() -> MemoryObject:
            store = await self._stores.writable(tenant, store_id)
            await self._require_room(tenant, store_id)
            await self._require_free(tenant, store_id, path)
            now = self._clock()
            memory_object = MemoryObject(
                id=self._new_id("mem"),
                memory_store_id=store_id,
                memory_version_id=self._new_id("memver"),
                path=path,
                content_sha256=content_digest(content),
                content_size_bytes=len(content),
                created_at=now,
                updated_at=now,
            )
            await self._records.write(
                Replace(row=store),
                self._repository.put_change(tenant, memory_object),
                self._version_change(tenant, memory_object, "created", actor, content),
            )
            return memory_object

        return _with_content(await _retry_on_conflict(attempt), content, view)

    async def get(
        self, tenant: str, store_id: str, memory_id: str, *, view: MemoryView = "full"
    ) -> MemoryObject:
        """Raises: NotFound."""

        async def attempt() -> MemoryObject:
            memory = await self._repository.get(tenant, memory_id, parent=store_id)
            if view == "basic":
                return memory
            return _with_content(memory, await self._content(memory), view)

        return await _retry_on_conflict(attempt)

    async def update(
        self,
        tenant: str,
        store_id: str,
        memory_id: str,
        request: UpdateMemory,
        actor: MemoryActor,
        *,
        view: MemoryView = "basic",
    ) -> MemoryObject:
        """An update that changes nothing writes nothing and causes no conflict.

        Raises: NotFound; InvalidInput; PathTaken; MemoryChanged: the precondition is false.
        """
        path = None if request.path is None else check_path(request.path)
        content = None if request.content is None else encode_content(request.content)

        async def attempt() -> tuple[MemoryObject, bytes]:
            store = await self._stores.writable(tenant, store_id)
            row = await self._repository.row(tenant, memory_id, parent=store_id)
            current = self._repository.read(row)
            changed = _apply_update(current, path, content)
            text = await self._content(current) if content is None else content
            if changed == current:
                return current, text
            is_moved = changed.path != current.path
            if request.precondition:
                _require_digest(current, request.precondition.content_sha256)
            if is_moved:
                await self._require_free(tenant, store_id, changed.path, besides=memory_id)
            changed = replace(
                changed, memory_version_id=self._new_id("memver"), updated_at=self._clock()
            )
            await self._records.write(
                *([Replace(row=store)] if is_moved else []),
                self._repository.replace_change(row, changed),
                self._version_change(tenant, changed, "modified", actor, text),
            )
            return changed, text

        return _with_content(*await _retry_on_conflict(attempt), view)

    async def delete(
        self,
        tenant: str,
        store_id: str,
        memory_id: str,
        actor: MemoryActor,
        *,
        expected_sha256: str | None = None,
    ) -> None:
        """Delete a memory; its versions stay. Allowed in an archived store, too.

        Raises: NotFound; MemoryChanged: it is not what was expected.
        """

        async def attempt() -> None:
            row = await self._repository.row(tenant, memory_id, parent=store_id)
            current = self._repository.read(row)
            if expected_sha256 is not None:
                _require_digest(current, expected_sha256)
            last = replace(
                current, memory_version_id=self._new_id("memver"), updated_at=self._clock()
            )
            await self._records.write(
                Remove(row=row), self._version_change(tenant, last, "deleted", actor)
            )

        await _retry_on_conflict(attempt)

    async def all(self, tenant: str, store_id: str) -> list[MemoryObject]:
        """All memories by path, without their texts.

        Raises: NotFound: the store.
        """
        await self._stores.get(tenant, store_id)
        rows: list[RecordRow] = []
        while batch := await self._records.list(
            _query(tenant, store_id, "/", rows[-1] if rows else None, _LONG_BATCH)
        ):
            rows += batch
        return [self._repository.read(row) for row in rows]

    async def page(
        self, tenant: str, store_id: str, listing: MemoryListing
    ) -> Page[MemoryObject | MemoryPrefix]:
        """A page of memories by path. Folders represent memories that are deeper than requested.

        Raises: NotFound: the store; InvalidInput.
        """
        await self._stores.get(tenant, store_id)
        items = await self._items(tenant, store_id, listing)
        page = cut_page(items, listing.most, lambda item: item.position)
        entries = [await self._list_entry(item, listing.view) for item in page.data]
        return Page(data=[item for item in entries if item], next_page=page.next_page)

    async def _items(self, tenant: str, store_id: str, listing: MemoryListing) -> list[_ListItem]:
        """The items of a page, and one more if there is one."""
        prefix = check_prefix(listing.path_prefix)
        cursor = listing.page
        name, id_ = ("", "") if cursor is None else decode_cursor(cursor, tuple[str, str])
        items: list[_ListItem] = []
        while batch := await self._after(tenant, store_id, prefix, name, id_):
            for row in batch:
                path = row.name or ""
                if path < name:  # in a folder that was already listed
                    continue
                folder = folder_at_depth(path, prefix, listing.depth)
                is_memory = folder is None
                items.append(
                    _ListItem(path, row) if is_memory else _ListItem(folder + LAST_CHARACTER)
                )
                name, id_ = items[-1].position
                if len(items) > listing.most:
                    return items
        return items

    async def _list_entry(
        self, item: _ListItem, view: MemoryView
    ) -> MemoryObject | MemoryPrefix | None:
        """The entry of an item; `None`: the memory was deleted since it was listed."""
        if item.row is None:
            return MemoryPrefix(path=item.name.removesuffix(LAST_CHARACTER))
        memory = self._repository.read(item.row)
        if view == "basic":
            return memory
        try:
            return await self.get(item.row.tenant, memory.memory_store_id, memory.id)
        except NotFound:
            return None

    async def _after(
        self, tenant: str, store_id: str, prefix: str, name: str, id_: str
    ) -> list[RecordRow]:
        after = row_at(0, id_, name) if name else None
        return await self._records.list(_query(tenant, store_id, prefix, after, _BATCH))

    async def _require_room(self, tenant: str, store_id: str) -> None:
        query = RecordQuery(kind=MEMORY_KIND, tenant=tenant, parent=store_id)
        if await self._records.count(query) >= self._max:
            raise InvalidInput(f"a memory store may have at most {self._max} memories; use another")

    async def _require_free(
        self, tenant: str, store_id: str, path: str, *, besides: str = ""
    ) -> None:
        """Check that a path is free: as in a file system, it is either a memory or a folder."""
        rows = await self._records.list(
            RecordQuery(
                kind=MEMORY_KIND, tenant=tenant, parent=store_id, name_from=f"{path}/", limit=2
            )
        )
        for other_path in (path, *parent_folders(path)):
            with suppress(NotFound):
                rows.append(
                    await self._records.named(
                        MEMORY_KIND, other_path, tenant=tenant, parent=store_id
                    )
                )
        for row in rows:
            if row.id != besides:
                raise PathTaken(path, memory_id=row.id, taken=row.name or "")

    def _version_change(
        self,
        tenant: str,
        memory: MemoryObject,
        operation: MemoryOperation,
        actor: MemoryActor,
        content: bytes | None = None,
    ) -> Put:
        version = version_of(memory, operation, actor)
        return self._versions.put_change(tenant, version, content=content)

    async def _content(self, memory: MemoryObject) -> bytes:
        """Raises: StaleVersion: it was redacted or deleted since the memory was read."""
        try:
            content = await self._records.content(VERSION_KIND, memory.memory_version_id)
        except NotFound:
            content = b""
        if content_digest(content) != memory.content_sha256:
            raise StaleVersion(f"the memory {memory.id} has changed in the meantime")
        return content


def _query(
    tenant: str, store_id: str, prefix: str, after: RecordRow | None, limit: int
) -> RecordQuery:
    return RecordQuery(
        kind=MEMORY_KIND,
        tenant=tenant,
        parent=store_id,
        name_from=prefix,
        after=after,
        limit=limit,
    )


async def _retry_on_conflict(attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry whenever another process wrote in between."""
    for _ in range(_TRIES):
        try:
            return await attempt()
        except (MemoryChanged, PathTaken):
            raise
        except (StaleVersion, AlreadyExists):
            continue
    raise StaleVersion("other requests kept changing the memory store; try again")


def _with_content(memory: MemoryObject, content: bytes, view: MemoryView) -> MemoryObject:
    return memory if view == "basic" else replace(memory, content=content.decode())


def _apply_update(current: MemoryObject, path: str | None, content: bytes | None) -> MemoryObject:
    changed = current if path is None else replace(current, path=path)
    if content is None:
        return changed
    return replace(changed, content_sha256=content_digest(content), content_size_bytes=len(content))


def _require_digest(current: MemoryObject, expected: str) -> None:
    if current.content_sha256 != expected:
        raise MemoryChanged(
            f"the memory {current.id} has the content_sha256 {current.content_sha256},"
            f" not {expected}; read it again and retry"
        )
