"""`/v1/environments`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, PageQuery, list_query, route
from mainspring.service.resources.environments import (
    CreateEnvironment,
    Environment,
    Environments,
    UpdateEnvironment,
)
from mainspring.service.storage.pagination import Page


class ListEnvironments(PageQuery, frozen=True, kw_only=True):
    include_archived: bool = False


class DeletedEnvironment(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["environment_deleted"] = "environment_deleted"


@dataclass(frozen=True, slots=True)
class EnvironmentRoutes:
    environments: Environments

    @route("POST /v1/environments", "Create an environment")
    async def create(self, call: ApiCall[Empty, CreateEnvironment]) -> Environment:
        return await self.environments.create(call.tenant, call.body)

    @route("GET /v1/environments", "List environments")
    async def list(self, call: ApiCall[ListEnvironments, Empty]) -> Page[Environment]:
        return await self.environments.page(call.tenant, list_query(call.query))

    @route("GET /v1/environments/{environment_id}", "Get an environment")
    async def get(self, call: ApiCall[Empty, Empty]) -> Environment:
        return await self.environments.get(call.tenant, call["environment_id"])

    @route("POST /v1/environments/{environment_id}", "Update an environment")
    async def update(self, call: ApiCall[Empty, UpdateEnvironment]) -> Environment:
        return await self.environments.update(call.tenant, call["environment_id"], call.body)

    @route(
        "POST /v1/environments/{environment_id}/archive",
        "Archive an environment: no new session can use it",
    )
    async def archive(self, call: ApiCall[Empty, Empty]) -> Environment:
        return await self.environments.archive(call.tenant, call["environment_id"])

    @route("DELETE /v1/environments/{environment_id}", "Delete an environment")
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedEnvironment:
        await self.environments.delete(call.tenant, call["environment_id"])
        return DeletedEnvironment(id=call["environment_id"])
