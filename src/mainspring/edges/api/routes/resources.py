"""`/v1/sessions/{session_id}/resources`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, Route
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

    def routes(self) -> tuple[Route, ...]:
        all_ = "/v1/sessions/{session_id}/resources"
        one = f"{all_}/{{resource_id}}"
        return (
            Route(
                method="POST",
                path=all_,
                handle=self.add,
                summary="Attach a file to a session",
                body=FileResourceParams,
                response_type=SessionResource,
                role="user",
                for_agent_keys=True,
            ),
            Route(
                method="GET",
                path=all_,
                handle=self.list,
                summary="List the resources of a session",
                query=ListResources,
                response_type=Page[SessionResource],
                for_agent_keys=True,
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Get a resource of a session",
                response_type=SessionResource,
                for_agent_keys=True,
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Replace the token of a repository",
                body=UpdateResource,
                response_type=SessionResource,
                role="user",
                for_agent_keys=True,
            ),
            Route(
                method="DELETE",
                path=one,
                handle=self.delete,
                summary="Remove a resource from a session",
                response_type=DeletedResource,
                role="user",
                for_agent_keys=True,
            ),
        )

    async def add(self, call: ApiCall[Empty, FileResourceParams]) -> SessionResource:
        return await self.resources.add(call.who, call["session_id"], call.body)

    async def list(self, call: ApiCall[ListResources, Empty]) -> Page[SessionResource]:
        query = call.query
        return await self.resources.page(
            call.who, call["session_id"], limit=query.limit, page=query.page
        )

    async def get(self, call: ApiCall[Empty, Empty]) -> SessionResource:
        return await self.resources.get(call.who, call["session_id"], call["resource_id"])

    async def update(self, call: ApiCall[Empty, UpdateResource]) -> SessionResource:
        return await self.resources.update(
            call.who, call["session_id"], call["resource_id"], call.body
        )

    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedResource:
        await self.resources.delete(call.who, call["session_id"], call["resource_id"])
        return DeletedResource(id=call["resource_id"])
