"""`/v1/sessions/{session_id}/resources`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, route
from mainspring.service.sessions.resource_types import FileResourceParams, SessionResource
from mainspring.service.sessions.session_resources import SessionResources, UpdateResource
from mainspring.service.storage.pagination import Limit, Page


class ListResources(Struct, frozen=True, kw_only=True):
    limit: Limit | None = None
    page: str | None = None


class DeletedResource(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["session_resource_deleted"] = "session_resource_deleted"


@dataclass(frozen=True, slots=True)
class ResourceRoutes:
    resources: SessionResources

    @route("POST /v1/sessions/{session_id}/resources", "Attach a file to a session")
    async def add(self, call: ApiCall[Empty, FileResourceParams]) -> SessionResource:
        return await self.resources.add(call.who, call["session_id"], call.body)

    @route(
        "GET /v1/sessions/{session_id}/resources",
        "List the resources of a session",
        for_worker_keys=True,
    )
    async def list(self, call: ApiCall[ListResources, Empty]) -> Page[SessionResource]:
        query = call.query
        return await self.resources.page(
            call.who, call["session_id"], limit=query.limit, page=query.page
        )

    @route(
        "GET /v1/sessions/{session_id}/resources/{resource_id}",
        "Get a resource of a session",
        for_worker_keys=True,
    )
    async def get(self, call: ApiCall[Empty, Empty]) -> SessionResource:
        return await self.resources.get(call.who, call["session_id"], call["resource_id"])

    @route(
        "POST /v1/sessions/{session_id}/resources/{resource_id}",
        "Replace the token of a repository",
    )
    async def update(self, call: ApiCall[Empty, UpdateResource]) -> SessionResource:
        return await self.resources.update(
            call.who, call["session_id"], call["resource_id"], call.body
        )

    @route(
        "DELETE /v1/sessions/{session_id}/resources/{resource_id}",
        "Remove a resource from a session",
    )
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedResource:
        await self.resources.delete(call.who, call["session_id"], call["resource_id"])
        return DeletedResource(id=call["resource_id"])
