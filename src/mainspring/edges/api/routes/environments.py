"""`/v1/environments`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.service.resources.environments import (
    CreateEnvironment,
    Environment,
    Environments,
    UpdateEnvironment,
)
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery


class ListEnvironments(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None
    include_archived: bool = False


class DeletedEnvironment(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["environment_deleted"] = "environment_deleted"


@dataclass(frozen=True, slots=True)
class EnvironmentRoutes:
    environments: Environments

    def routes(self) -> tuple[Route, ...]:
        one = "/v1/environments/{environment_id}"
        return (
            Route(
                method="POST",
                path="/v1/environments",
                handle=self.create,
                summary="Make an environment",
                body=CreateEnvironment,
                response_type=Environment,
                role="operator",
            ),
            Route(
                method="GET",
                path="/v1/environments",
                handle=self.list,
                summary="List environments",
                query=ListEnvironments,
                response_type=Page[Environment],
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Look at an environment",
                response_type=Environment,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Change an environment",
                body=UpdateEnvironment,
                response_type=Environment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/archive",
                handle=self.archive,
                summary="Have no new sessions in an environment",
                response_type=Environment,
                role="operator",
            ),
            Route(
                method="DELETE",
                path=one,
                handle=self.delete,
                summary="Delete an environment",
                response_type=DeletedEnvironment,
                role="operator",
            ),
        )

    async def create(self, api_call: ApiCall[Empty, CreateEnvironment]) -> Environment:
        return await self.environments.create(api_call.tenant, api_call.body)

    async def list(self, api_call: ApiCall[ListEnvironments, Empty]) -> Page[Environment]:
        query = api_call.query
        return await self.environments.page(
            api_call.tenant,
            ListQuery(limit=query.limit, page=query.page, include_archived=query.include_archived),
        )

    async def get(self, api_call: ApiCall[Empty, Empty]) -> Environment:
        return await self.environments.get(api_call.tenant, api_call["environment_id"])

    async def update(self, api_call: ApiCall[Empty, UpdateEnvironment]) -> Environment:
        return await self.environments.update(
            api_call.tenant, api_call["environment_id"], api_call.body
        )

    async def archive(self, api_call: ApiCall[Empty, Empty]) -> Environment:
        return await self.environments.archive(api_call.tenant, api_call["environment_id"])

    async def delete(self, api_call: ApiCall[Empty, Empty]) -> DeletedEnvironment:
        await self.environments.delete(api_call.tenant, api_call["environment_id"])
        return DeletedEnvironment(id=api_call["environment_id"])
