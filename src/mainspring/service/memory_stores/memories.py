"""Memories: texts at paths of a memory store. Every change is written together with the version
that records it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
from mainspring.service.storage.pagination import Page, decode_cursor, encode_cursor

MAX_MEMORIES = 10_000
"""Of a store."""
MAX_FULL_PAGE = 20
_TRIES = 64
_BATCH = 100

T = TypeVar("T")


class MemoryListing(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None
    path_prefix: str = "/"
    depth: Annotated[int, Meta(ge=0, le=MAX_SEGMENTS)] = 0
    """0: all there is below."""
    view: MemoryView = "basic"

    @property
    def most(self) -> int:
        return min(self.limit, MAX_FULL_PAGE) if self.view == "full" else self.limit


@dataclass(frozen=True, slots=True)
class _ListItem:
    """Of a list: a memory, or the folder that stands for some."""

    name: str
    """Where the list goes on after it."""
    record_row: RecordRow | None = None


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
            made = MemoryObject(
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
                Replace(record_row=store),
                self._repository.put_change(tenant, made),
                self._version_change(tenant, made, "created", actor, content),
            )
            return made

        return _with_content(await _retry_on_conflict(attempt), content, view)

    async def get(
        self, tenant: str, store_id: str, memory_id: str, *, view: MemoryView = "full"
    ) -> MemoryObject:
        """Raises: NotFound."""

        async def attempt() -> MemoryObject:
            memory = self._repository.read(await self._record(tenant, store_id, memory_id))
            return await self._with_view(memory, view)

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
        """What changes nothing writes nothing, and is no conflict either.

        Raises: NotFound; InvalidInput; PathTaken; MemoryChanged: the precondition does not hold.
        """
        path = None if request.path is None else check_path(request.path)
        content = None if request.content is None else encode_content(request.content)

        async def attempt() -> tuple[MemoryObject, bytes]:
            store = await self._stores.writable(tenant, store_id)
            record = await self._record(tenant, store_id, memory_id)
            current = self._repository.read(record)
            changed = _apply_update(current, path, content)
            text = await self._content(current) if content is None else content
            if changed == current:
                return current, text
            if request.precondition:
                _require_digest(current, request.precondition.content_sha256)
            if changed.path != current.path:
                await self._require_free(tenant, store_id, changed.path, besides=memory_id)
            changed = replace(
                changed, memory_version_id=self._new_id("memver"), updated_at=self._clock()
            )
            await self._records.write(
                *([Replace(record_row=store)] if changed.path != current.path else []),
                self._repository.replace_change(record, changed),
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
        """Its versions stay. Also in an archived store.

        Raises: NotFound; MemoryChanged: it is not what was expected.
        """

        async def attempt() -> None:
            record = await self._record(tenant, store_id, memory_id)
            current = self._repository.read(record)
            if expected_sha256 is not None:
                _require_digest(current, expected_sha256)
            last = replace(
                current, memory_version_id=self._new_id("memver"), updated_at=self._clock()
            )
            await self._records.write(
                Remove(record_row=record),
                self._version_change(tenant, last, "deleted", actor),
            )

        await _retry_on_conflict(attempt)

    async def page(
        self, tenant: str, store_id: str, listing: MemoryListing
    ) -> Page[MemoryObject | MemoryPrefix]:
        """By path. What is deeper than asked for is told by its folder.

        Raises: NotFound: the store; InvalidInput.
        """
        await self._stores.get(tenant, store_id)
        found = await self._items(tenant, store_id, listing)
        shown, next_page = found[: listing.most], None
        if len(found) > listing.most:
            last = shown[-1]
            next_page = encode_cursor(
                last.name, "" if last.record_row is None else last.record_row.id
            )
        items = [await self._list_entry(item, listing.view) for item in shown]
        return Page(data=[item for item in items if item is not None], next_page=next_page)

    async def _items(self, tenant: str, store_id: str, listing: MemoryListing) -> list[_ListItem]:
        """One more than are shown, if there is one."""
        prefix = check_prefix(listing.path_prefix)
        name, id_ = _decode_place(listing.page)
        items: list[_ListItem] = []
        while batch := await self._after(tenant, store_id, prefix, name, id_):
            for record in batch:
                path = record.name or ""
                if path < name:  # in the folder that was just told
                    continue
                folder = folder_at_depth(path, prefix, listing.depth)
                item = (
                    _ListItem(path, record)
                    if folder is None
                    else _ListItem(folder + LAST_CHARACTER)
                )
                items.append(item)
                name, id_ = item.name, record.id if folder is None else ""
                if len(items) > listing.most:
                    return items
        return items

    async def _list_entry(
        self, list_item: _ListItem, view: MemoryView
    ) -> MemoryObject | MemoryPrefix | None:
        """`None`: it was deleted since it was listed."""
        if list_item.record_row is None:
            return MemoryPrefix(path=list_item.name.removesuffix(LAST_CHARACTER))
        memory = self._repository.read(list_item.record_row)
        if view == "basic":
            return memory
        try:
            return await self.get(list_item.record_row.tenant, memory.memory_store_id, memory.id)
        except NotFound:
            return None

    async def _after(
        self, tenant: str, store_id: str, prefix: str, name: str, id_: str
    ) -> list[RecordRow]:
        after = RecordRow(
            tenant=tenant, kind=MEMORY_KIND, id=id_, name=name, created=0, updated=0, body=b""
        )
        return await self._records.list(
            RecordQuery(
                kind=MEMORY_KIND,
                tenant=tenant,
                parent=store_id,
                name_from=prefix,
                after=after if name else None,
                limit=_BATCH,
            )
        )

    async def _record(self, tenant: str, store_id: str, memory_id: str) -> RecordRow:
        record = await self._repository.record(tenant, memory_id)
        if record.parent != store_id:
            raise NotFound(MEMORY_KIND, memory_id)
        return record

    async def _require_room(self, tenant: str, store_id: str) -> None:
        wanted = RecordQuery(kind=MEMORY_KIND, tenant=tenant, parent=store_id)
        if await self._records.count(wanted) >= self._max:
            raise InvalidInput(f"a memory store has {self._max} memories at most; use another")

    async def _require_free(
        self, tenant: str, store_id: str, path: str, *, besides: str = ""
    ) -> None:
        """As in a file system: a path is either a memory or a folder of such."""
        within = RecordQuery(
            kind=MEMORY_KIND, tenant=tenant, parent=store_id, name_from=f"{path}/", limit=2
        )
        found = await self._records.list(within)
        for parent_folder in (path, *parent_folders(path)):
            try:
                found.append(
                    await self._records.named(
                        MEMORY_KIND, parent_folder, tenant=tenant, parent=store_id
                    )
                )
            except NotFound:
                continue
        for record in found:
            if record.id != besides:
                raise PathTaken(path, memory_id=record.id, taken=record.name or "")

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
        """Raises: Stale: it is past, and was redacted or deleted since the memory was read."""
        try:
            content = await self._records.content(VERSION_KIND, memory.memory_version_id)
        except NotFound:
            content = b""
        if content_digest(content) != memory.content_sha256:
            raise StaleVersion(f"the memory {memory.id} has changed meanwhile")
        return content

    async def _with_view(self, memory: MemoryObject, view: MemoryView) -> MemoryObject:
        if view == "basic":
            return memory
        return _with_content(memory, await self._content(memory), view)


async def _retry_on_conflict(attempt: Callable[[], Awaitable[T]]) -> T:
    """Again, from the start, whenever somebody else wrote in between."""
    for _ in range(_TRIES):
        try:
            return await attempt()
        except (MemoryChanged, PathTaken):
            raise
        except (StaleVersion, AlreadyExists):
            continue
    raise StaleVersion("others kept changing the memory store; try again")


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
            f" not {expected}; read it again, then try again"
        )


def _decode_place(cursor: str | None) -> tuple[str, str]:
    if cursor is None:
        return "", ""
    match decode_cursor(cursor):
        case [str(name), str(id_)]:
            return name, id_
        case _:
            raise InvalidInput("page: not a cursor of this list")
