"""`/v1/memory_stores`, the memories in them and their versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, ShortPageQuery, Timestamp, list_query, route
from mainspring.service.memory_stores.memories import Memories, MemoryListing
from mainspring.service.memory_stores.memory_records import (
    ContentDigest,
    CreateMemory,
    MemoryObject,
    MemoryPrefix,
    MemoryVersion,
    MemoryView,
    UpdateMemory,
    actor_of,
)
from mainspring.service.memory_stores.memory_search import (
    MemoryMatch,
    MemorySearch,
    SearchMemories,
)
from mainspring.service.memory_stores.memory_stores import (
    CreateMemoryStore,
    MemoryStore,
    MemoryStores,
    UpdateMemoryStore,
)
from mainspring.service.memory_stores.memory_versions import MemoryVersions, VersionListing
from mainspring.service.storage.pagination import Page


class ListMemoryStores(ShortPageQuery, frozen=True, kw_only=True):
    include_archived: bool = False
    created_at_gte: Timestamp | None = None
    created_at_lte: Timestamp | None = None


class BasicView(Struct, frozen=True, kw_only=True):
    view: MemoryView = "basic"


class FullView(Struct, frozen=True, kw_only=True):
    view: MemoryView = "full"


class DeleteMemory(Struct, frozen=True, kw_only=True):
    expected_content_sha256: ContentDigest | None = None


class DeletedMemoryStore(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["memory_store_deleted"] = "memory_store_deleted"


class DeletedMemory(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["memory_deleted"] = "memory_deleted"


@dataclass(frozen=True, slots=True)
class MemoryStoreRoutes:
    stores: MemoryStores

    @route("POST /v1/memory_stores", "Create a memory store")
    async def create(self, call: ApiCall[Empty, CreateMemoryStore]) -> MemoryStore:
        return await self.stores.create(call.tenant, call.body)

    @route("GET /v1/memory_stores", "List memory stores")
    async def list(self, call: ApiCall[ListMemoryStores, Empty]) -> Page[MemoryStore]:
        return await self.stores.page(call.tenant, list_query(call.query))

    @route("GET /v1/memory_stores/{memory_store_id}", "Get a memory store")
    async def get(self, call: ApiCall[Empty, Empty]) -> MemoryStore:
        return await self.stores.get(call.tenant, call["memory_store_id"])

    @route("POST /v1/memory_stores/{memory_store_id}", "Update a memory store")
    async def update(self, call: ApiCall[Empty, UpdateMemoryStore]) -> MemoryStore:
        return await self.stores.update(call.tenant, call["memory_store_id"], call.body)

    @route(
        "POST /v1/memory_stores/{memory_store_id}/archive",
        "Archive a memory store: it becomes read-only",
    )
    async def archive(self, call: ApiCall[Empty, Empty]) -> MemoryStore:
        return await self.stores.archive(call.tenant, call["memory_store_id"])

    @route(
        "DELETE /v1/memory_stores/{memory_store_id}",
        "Delete a memory store with its memories and their versions",
    )
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedMemoryStore:
        await self.stores.delete(call.tenant, call["memory_store_id"])
        return DeletedMemoryStore(id=call["memory_store_id"])


@dataclass(frozen=True, slots=True)
class MemoryRoutes:
    memories: Memories
    versions: MemoryVersions
    search: MemorySearch

    @route(
        "GET /v1/mainspring/memory_stores/{memory_store_id}/search",
        "Search the memories of a store",
    )
    async def find(self, call: ApiCall[SearchMemories, Empty]) -> Page[MemoryMatch]:
        matches = await self.search.search(call.tenant, call["memory_store_id"], call.query)
        return Page(data=matches, next_page=None)

    @route(
        "POST /v1/memory_stores/{memory_store_id}/memories",
        "Create a memory",
        role="user",
        for_worker_keys=True,
    )
    async def create(self, call: ApiCall[BasicView, CreateMemory]) -> MemoryObject:
        return await self.memories.create(
            call.tenant,
            call["memory_store_id"],
            call.body,
            actor_of(call.who),
            view=call.query.view,
        )

    @route(
        "GET /v1/memory_stores/{memory_store_id}/memories",
        "List memories, and prefixes for those below the requested depth",
        for_worker_keys=True,
    )
    async def list(self, call: ApiCall[MemoryListing, Empty]) -> Page[MemoryObject | MemoryPrefix]:
        return await self.memories.page(call.tenant, call["memory_store_id"], call.query)

    @route(
        "GET /v1/memory_stores/{memory_store_id}/memories/{memory_id}",
        "Get a memory",
        for_worker_keys=True,
    )
    async def get(self, call: ApiCall[FullView, Empty]) -> MemoryObject:
        return await self.memories.get(
            call.tenant,
            call["memory_store_id"],
            call["memory_id"],
            view=call.query.view,
        )

    @route(
        "POST /v1/memory_stores/{memory_store_id}/memories/{memory_id}",
        "Update the content or the path of a memory",
        role="user",
        for_worker_keys=True,
    )
    async def update(self, call: ApiCall[BasicView, UpdateMemory]) -> MemoryObject:
        return await self.memories.update(
            call.tenant,
            call["memory_store_id"],
            call["memory_id"],
            call.body,
            actor_of(call.who),
            view=call.query.view,
        )

    @route(
        "DELETE /v1/memory_stores/{memory_store_id}/memories/{memory_id}",
        "Delete a memory; its versions stay",
        role="user",
        for_worker_keys=True,
    )
    async def delete(self, call: ApiCall[DeleteMemory, Empty]) -> DeletedMemory:
        await self.memories.delete(
            call.tenant,
            call["memory_store_id"],
            call["memory_id"],
            actor_of(call.who),
            expected_sha256=call.query.expected_content_sha256,
        )
        return DeletedMemory(id=call["memory_id"])

    @route(
        "GET /v1/memory_stores/{memory_store_id}/memory_versions", "List the changes of memories"
    )
    async def list_versions(self, call: ApiCall[VersionListing, Empty]) -> Page[MemoryVersion]:
        return await self.versions.page(call.tenant, call["memory_store_id"], call.query)

    @route(
        "GET /v1/memory_stores/{memory_store_id}/memory_versions/{memory_version_id}",
        "Get a version of a memory",
    )
    async def get_version(self, call: ApiCall[FullView, Empty]) -> MemoryVersion:
        return await self.versions.get(
            call.tenant,
            call["memory_store_id"],
            call["memory_version_id"],
            view=call.query.view,
        )

    @route(
        "POST /v1/memory_stores/{memory_store_id}/memory_versions/{memory_version_id}/redact",
        "Permanently remove the content of a past version",
    )
    async def redact(self, call: ApiCall[Empty, Empty]) -> MemoryVersion:
        return await self.versions.redact(
            call.tenant,
            call["memory_store_id"],
            call["memory_version_id"],
            actor_of(call.who),
        )
