"""`/v1/sessions/{session_id}/resources`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.keeping.page import Limit, Page
from mainspring.service.sessions.mounted import FileAsked, Resource
from mainspring.service.sessions.resources import SessionResources, UpdateResource


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
                summary="Give a file to a session",
                body=FileAsked,
                answer=Resource,
                role="user",
                for_agent_keys=True,
            ),
            Route(
                method="GET",
                path=all_,
                handle=self.list,
                summary="List the resources of a session",
                query=ListResources,
                answer=Page[Resource],
                for_agent_keys=True,
                for_worker_keys=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Look at a resource of a session",
                answer=Resource,
                for_agent_keys=True,
                for_worker_keys=True,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Give a repository another token",
                body=UpdateResource,
                answer=Resource,
                role="user",
                for_agent_keys=True,
            ),
            Route(
                method="DELETE",
                path=one,
                handle=self.delete,
                summary="Take a resource from a session",
                answer=DeletedResource,
                role="user",
                for_agent_keys=True,
            ),
        )

    async def add(self, call: Call[Nothing, FileAsked]) -> Resource:
        return await self.resources.add(call.who, call["session_id"], call.body)

    async def list(self, call: Call[ListResources, Nothing]) -> Page[Resource]:
        query = call.query
        return await self.resources.page(
            call.who, call["session_id"], limit=query.limit, page=query.page
        )

    async def get(self, call: Call[Nothing, Nothing]) -> Resource:
        return await self.resources.get(call.who, call["session_id"], call["resource_id"])

    async def update(self, call: Call[Nothing, UpdateResource]) -> Resource:
        return await self.resources.update(
            call.who, call["session_id"], call["resource_id"], call.body
        )

    async def delete(self, call: Call[Nothing, Nothing]) -> DeletedResource:
        await self.resources.delete(call.who, call["session_id"], call["resource_id"])
        return DeletedResource(id=call["resource_id"])
