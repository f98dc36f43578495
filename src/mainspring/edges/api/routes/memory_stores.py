"""`/v1/memory_stores`, the memories in them and their versions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.edges.api.resource import Resource
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

_STORE = "/v1/memory_stores/{memory_store_id}"
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


def memory_store_routes(stores: MemoryStores) -> tuple[Route, ...]:
    return Resource(
        path=_STORE,
        service=stores,
        item=MemoryStore,
        create=CreateMemoryStore,
        update=UpdateMemoryStore,
        query=ListMemoryStores,
        deleted=DeletedMemoryStore,
        summaries={
            "create": "Create a memory store",
            "list": "List memory stores",
            "get": "Get a memory store",
            "update": "Update a memory store",
            "archive": "Archive a memory store: it becomes read-only",
            "delete": "Delete a memory store with its memories and their versions",
        },
    ).routes()


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
                summary="Create a memory",
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
                summary="List memories, and prefixes for those below the requested depth",
                query=MemoryListing,
                response_type=Page[MemoryObject | MemoryPrefix],
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=_MEMORY,
                handle=self.get,
                summary="Get a memory",
                query=FullView,
                response_type=MemoryObject,
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=_MEMORY,
                handle=self.update,
                summary="Update the content or the path of a memory",
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
                summary="Get a version of a memory",
                query=FullView,
                response_type=MemoryVersion,
            ),
            Route(
                method="POST",
                path=f"{_VERSION}/redact",
                handle=self.redact,
                summary="Permanently remove the content of a past version",
                response_type=MemoryVersion,
                role="operator",
            ),
        )

    async def create(self, call: ApiCall[BasicView, CreateMemory]) -> MemoryObject:
        return await self.memories.create(
            call.tenant,
            call["memory_store_id"],
            call.body,
            actor_of(call.who),
            view=call.query.view,
        )

    async def list(self, call: ApiCall[MemoryListing, Empty]) -> Page[MemoryObject | MemoryPrefix]:
        return await self.memories.page(call.tenant, call["memory_store_id"], call.query)

    async def get(self, call: ApiCall[FullView, Empty]) -> MemoryObject:
        return await self.memories.get(
            call.tenant,
            call["memory_store_id"],
            call["memory_id"],
            view=call.query.view,
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

    async def delete(self, call: ApiCall[DeleteMemory, Empty]) -> DeletedMemory:
        await self.memories.delete(
            call.tenant,
            call["memory_store_id"],
            call["memory_id"],
            actor_of(call.who),
            expected_sha256=call.query.expected_content_sha256,
        )
        return DeletedMemory(id=call["memory_id"])

    async def list_versions(self, call: ApiCall[VersionListing, Empty]) -> Page[MemoryVersion]:
        return await self.versions.page(call.tenant, call["memory_store_id"], call.query)

    async def get_version(self, call: ApiCall[FullView, Empty]) -> MemoryVersion:
        return await self.versions.get(
            call.tenant,
            call["memory_store_id"],
            call["memory_version_id"],
            view=call.query.view,
        )

    async def redact(self, call: ApiCall[Empty, Empty]) -> MemoryVersion:
        return await self.versions.redact(
            call.tenant,
            call["memory_store_id"],
            call["memory_version_id"],
            actor_of(call.who),
        )
