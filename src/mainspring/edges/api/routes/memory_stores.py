"""`/v1/memory_stores`, the memories in them and their versions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.edges.api.route import ApiCall, Empty, Route
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
from mainspring.service.memory_stores.memory_stores import (
    CreateMemoryStore,
    MemoryStore,
    MemoryStores,
    UpdateMemoryStore,
)
from mainspring.service.memory_stores.memory_versions import MemoryVersions, VersionListing
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery

_STORES = "/v1/memory_stores"
_STORE = f"{_STORES}/{{memory_store_id}}"
_MEMORIES = f"{_STORE}/memories"
_MEMORY = f"{_MEMORIES}/{{memory_id}}"
_VERSIONS = f"{_STORE}/memory_versions"
_VERSION = f"{_VERSIONS}/{{memory_version_id}}"

Timestamp = Annotated[datetime, Meta(tz=True)]


class ListMemoryStores(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None
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

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path=_STORES,
                handle=self.create,
                summary="Make a memory store",
                body=CreateMemoryStore,
                response_type=MemoryStore,
                role="operator",
            ),
            Route(
                method="GET",
                path=_STORES,
                handle=self.list,
                summary="List memory stores",
                query=ListMemoryStores,
                response_type=Page[MemoryStore],
            ),
            Route(
                method="GET",
                path=_STORE,
                handle=self.get,
                summary="Look at a memory store",
                response_type=MemoryStore,
            ),
            Route(
                method="POST",
                path=_STORE,
                handle=self.update,
                summary="Change a memory store",
                body=UpdateMemoryStore,
                response_type=MemoryStore,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{_STORE}/archive",
                handle=self.archive,
                summary="Make a memory store read-only for good",
                response_type=MemoryStore,
                role="operator",
            ),
            Route(
                method="DELETE",
                path=_STORE,
                handle=self.delete,
                summary="Delete a memory store with its memories and their versions",
                response_type=DeletedMemoryStore,
                role="operator",
            ),
        )

    async def create(self, api_call: ApiCall[Empty, CreateMemoryStore]) -> MemoryStore:
        return await self.stores.create(api_call.tenant, api_call.body)

    async def list(self, api_call: ApiCall[ListMemoryStores, Empty]) -> Page[MemoryStore]:
        query = api_call.query
        return await self.stores.page(
            api_call.tenant,
            ListQuery(
                limit=query.limit,
                page=query.page,
                include_archived=query.include_archived,
                created_from=query.created_at_gte,
                created_upto=query.created_at_lte,
            ),
        )

    async def get(self, api_call: ApiCall[Empty, Empty]) -> MemoryStore:
        return await self.stores.get(api_call.tenant, api_call["memory_store_id"])

    async def update(self, api_call: ApiCall[Empty, UpdateMemoryStore]) -> MemoryStore:
        return await self.stores.update(api_call.tenant, api_call["memory_store_id"], api_call.body)

    async def archive(self, api_call: ApiCall[Empty, Empty]) -> MemoryStore:
        return await self.stores.archive(api_call.tenant, api_call["memory_store_id"])

    async def delete(self, api_call: ApiCall[Empty, Empty]) -> DeletedMemoryStore:
        await self.stores.delete(api_call.tenant, api_call["memory_store_id"])
        return DeletedMemoryStore(id=api_call["memory_store_id"])


@dataclass(frozen=True, slots=True)
class MemoryRoutes:
    memories: Memories
    versions: MemoryVersions

    def routes(self) -> tuple[Route, ...]:
        return (*self._memory_routes(), *self._version_routes())

    def _memory_routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path=_MEMORIES,
                handle=self.create,
                summary="Make a memory",
                query=BasicView,
                body=CreateMemory,
                response_type=MemoryObject,
                role="user",
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=_MEMORIES,
                handle=self.list,
                summary="List memories, and folders of those that are deeper than asked for",
                query=MemoryListing,
                response_type=Page[MemoryObject | MemoryPrefix],
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=_MEMORY,
                handle=self.get,
                summary="Read a memory",
                query=FullView,
                response_type=MemoryObject,
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=_MEMORY,
                handle=self.update,
                summary="Change the content or the path of a memory",
                query=BasicView,
                body=UpdateMemory,
                response_type=MemoryObject,
                role="user",
                for_worker_keys=True,
            ),
            Route(
                method="DELETE",
                path=_MEMORY,
                handle=self.delete,
                summary="Delete a memory; its versions stay",
                query=DeleteMemory,
                response_type=DeletedMemory,
                role="user",
                for_worker_keys=True,
            ),
        )

    def _version_routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path=_VERSIONS,
                handle=self.list_versions,
                summary="List the changes of memories",
                query=VersionListing,
                response_type=Page[MemoryVersion],
            ),
            Route(
                method="GET",
                path=_VERSION,
                handle=self.get_version,
                summary="Look at a change of a memory",
                query=FullView,
                response_type=MemoryVersion,
            ),
            Route(
                method="POST",
                path=f"{_VERSION}/redact",
                handle=self.redact,
                summary="Forget the content of a past version for good",
                response_type=MemoryVersion,
                role="operator",
            ),
        )

    async def create(self, api_call: ApiCall[BasicView, CreateMemory]) -> MemoryObject:
        return await self.memories.create(
            api_call.tenant,
            api_call["memory_store_id"],
            api_call.body,
            actor_of(api_call.who),
            memory_view=api_call.query.view,
        )

    async def list(
        self, api_call: ApiCall[MemoryListing, Empty]
    ) -> Page[MemoryObject | MemoryPrefix]:
        return await self.memories.page(
            api_call.tenant, api_call["memory_store_id"], api_call.query
        )

    async def get(self, api_call: ApiCall[FullView, Empty]) -> MemoryObject:
        return await self.memories.get(
            api_call.tenant,
            api_call["memory_store_id"],
            api_call["memory_id"],
            memory_view=api_call.query.view,
        )

    async def update(self, api_call: ApiCall[BasicView, UpdateMemory]) -> MemoryObject:
        return await self.memories.update(
            api_call.tenant,
            api_call["memory_store_id"],
            api_call["memory_id"],
            api_call.body,
            actor_of(api_call.who),
            memory_view=api_call.query.view,
        )

    async def delete(self, api_call: ApiCall[DeleteMemory, Empty]) -> DeletedMemory:
        await self.memories.delete(
            api_call.tenant,
            api_call["memory_store_id"],
            api_call["memory_id"],
            actor_of(api_call.who),
            expected_sha256=api_call.query.expected_content_sha256,
        )
        return DeletedMemory(id=api_call["memory_id"])

    async def list_versions(self, api_call: ApiCall[VersionListing, Empty]) -> Page[MemoryVersion]:
        return await self.versions.page(
            api_call.tenant, api_call["memory_store_id"], api_call.query
        )

    async def get_version(self, api_call: ApiCall[FullView, Empty]) -> MemoryVersion:
        return await self.versions.get(
            api_call.tenant,
            api_call["memory_store_id"],
            api_call["memory_version_id"],
            memory_view=api_call.query.view,
        )

    async def redact(self, api_call: ApiCall[Empty, Empty]) -> MemoryVersion:
        return await self.versions.redact(
            api_call.tenant,
            api_call["memory_store_id"],
            api_call["memory_version_id"],
            actor_of(api_call.who),
        )
