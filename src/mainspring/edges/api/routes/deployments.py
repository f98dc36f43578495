"""`/v1/deployments`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.ids import AgentId
from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.calendar.deployments import Deployments
from mainspring.service.calendar.firing import Firing
from mainspring.service.calendar.model import (
    CreateDeployment,
    Deployment,
    DeploymentRun,
    UpdateDeployment,
)
from mainspring.service.keeping.drawer import Listing
from mainspring.service.keeping.page import Page

Moment = Annotated[datetime, Meta(tz=True)]


class ListDeployments(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None
    agent_id: AgentId | None = None
    status: Literal["active", "paused"] | None = None
    include_archived: bool = False
    created_at_gte: Moment | None = None
    created_at_lte: Moment | None = None


@dataclass(frozen=True, slots=True)
class DeploymentRoutes:
    deployments: Deployments
    firing: Firing

    def routes(self) -> tuple[Route, ...]:
        one = "/v1/deployments/{deployment_id}"
        return (
            Route(
                method="POST",
                path="/v1/deployments",
                handle=self.create,
                summary="Make a deployment",
                body=CreateDeployment,
                answer=Deployment,
                role="operator",
            ),
            Route(
                method="GET",
                path="/v1/deployments",
                handle=self.list,
                summary="List deployments",
                query=ListDeployments,
                answer=Page[Deployment],
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Look at a deployment",
                answer=Deployment,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Change a deployment",
                body=UpdateDeployment,
                answer=Deployment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/archive",
                handle=self.archive,
                summary="End a deployment for good",
                answer=Deployment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/pause",
                handle=self.pause,
                summary="Have a deployment not run by itself",
                answer=Deployment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/unpause",
                handle=self.unpause,
                summary="Have a deployment run by itself again",
                answer=Deployment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/run",
                handle=self.run,
                summary="Run a deployment now",
                answer=DeploymentRun,
                role="user",
            ),
        )

    async def create(self, call: Call[Nothing, CreateDeployment]) -> Deployment:
        return await self.deployments.create(call.tenant, call.body)

    async def list(self, call: Call[ListDeployments, Nothing]) -> Page[Deployment]:
        query = call.query
        if query.status is not None and query.include_archived:
            raise InvalidInput("status: cannot be combined with include_archived")
        return await self.deployments.page(
            call.tenant,
            Listing(
                limit=query.limit,
                page=query.page,
                parent=query.agent_id,
                label=query.status,
                include_archived=query.include_archived,
                created_from=query.created_at_gte,
                created_upto=query.created_at_lte,
            ),
        )

    async def get(self, call: Call[Nothing, Nothing]) -> Deployment:
        return await self.deployments.get(call.tenant, call["deployment_id"])

    async def update(self, call: Call[Nothing, UpdateDeployment]) -> Deployment:
        return await self.deployments.update(call.tenant, call["deployment_id"], call.body)

    async def archive(self, call: Call[Nothing, Nothing]) -> Deployment:
        return await self.deployments.archive(call.tenant, call["deployment_id"])

    async def pause(self, call: Call[Nothing, Nothing]) -> Deployment:
        return await self.deployments.pause(call.tenant, call["deployment_id"])

    async def unpause(self, call: Call[Nothing, Nothing]) -> Deployment:
        return await self.deployments.unpause(call.tenant, call["deployment_id"])

    async def run(self, call: Call[Nothing, Nothing]) -> DeploymentRun:
        return await self.firing.run_now(call.tenant, call["deployment_id"])
