"""`/v1/deployments` and `/v1/deployment_runs`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.ids import AgentId, DeploymentId
from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.service.schedules.deployment_runner import DeploymentRunner
from mainspring.service.schedules.deployment_runs import (
    DeploymentRuns,
    RunListing,
    just_after,
    just_before,
)
from mainspring.service.schedules.deployment_types import (
    CreateDeployment,
    Deployment,
    DeploymentRun,
    UpdateDeployment,
)
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery

Timestamp = Annotated[datetime, Meta(tz=True)]


class ListDeployments(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None
    agent_id: AgentId | None = None
    status: Literal["active", "paused"] | None = None
    include_archived: bool = False
    created_at_gte: Timestamp | None = None
    created_at_lte: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class DeploymentRoutes:
    deployments: Deployments
    deployment_runner: DeploymentRunner

    def routes(self) -> tuple[Route, ...]:
        one = "/v1/deployments/{deployment_id}"
        return (
            Route(
                method="POST",
                path="/v1/deployments",
                handle=self.create,
                summary="Make a deployment",
                body=CreateDeployment,
                response_type=Deployment,
                role="operator",
            ),
            Route(
                method="GET",
                path="/v1/deployments",
                handle=self.list,
                summary="List deployments",
                query=ListDeployments,
                response_type=Page[Deployment],
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Look at a deployment",
                response_type=Deployment,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Change a deployment",
                body=UpdateDeployment,
                response_type=Deployment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/archive",
                handle=self.archive,
                summary="End a deployment for good",
                response_type=Deployment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/pause",
                handle=self.pause,
                summary="Have a deployment not run by itself",
                response_type=Deployment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/unpause",
                handle=self.unpause,
                summary="Have a deployment run by itself again",
                response_type=Deployment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/run",
                handle=self.run,
                summary="Run a deployment now",
                response_type=DeploymentRun,
                role="user",
            ),
        )

    async def create(self, api_call: ApiCall[Empty, CreateDeployment]) -> Deployment:
        return await self.deployments.create(api_call.tenant, api_call.body)

    async def list(self, api_call: ApiCall[ListDeployments, Empty]) -> Page[Deployment]:
        query = api_call.query
        if query.status is not None and query.include_archived:
            raise InvalidInput("status: cannot be combined with include_archived")
        return await self.deployments.page(
            api_call.tenant,
            ListQuery(
                limit=query.limit,
                page=query.page,
                parent=query.agent_id,
                label=query.status,
                include_archived=query.include_archived,
                created_from=query.created_at_gte,
                created_upto=query.created_at_lte,
            ),
        )

    async def get(self, api_call: ApiCall[Empty, Empty]) -> Deployment:
        return await self.deployments.get(api_call.tenant, api_call["deployment_id"])

    async def update(self, api_call: ApiCall[Empty, UpdateDeployment]) -> Deployment:
        return await self.deployments.update(
            api_call.tenant, api_call["deployment_id"], api_call.body
        )

    async def archive(self, api_call: ApiCall[Empty, Empty]) -> Deployment:
        return await self.deployments.archive(api_call.tenant, api_call["deployment_id"])

    async def pause(self, api_call: ApiCall[Empty, Empty]) -> Deployment:
        return await self.deployments.pause(api_call.tenant, api_call["deployment_id"])

    async def unpause(self, api_call: ApiCall[Empty, Empty]) -> Deployment:
        return await self.deployments.unpause(api_call.tenant, api_call["deployment_id"])

    async def run(self, api_call: ApiCall[Empty, Empty]) -> DeploymentRun:
        return await self.deployment_runner.run_now(api_call.tenant, api_call["deployment_id"])


RunTimestamp = Annotated[datetime, Meta(tz=True)]


class ListRuns(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None
    deployment_id: DeploymentId | None = None
    has_error: bool | None = None
    trigger_type: Literal["schedule", "manual"] | None = None
    created_at_gt: RunTimestamp | None = None
    created_at_gte: RunTimestamp | None = None
    created_at_lt: RunTimestamp | None = None
    created_at_lte: RunTimestamp | None = None


@dataclass(frozen=True, slots=True)
class DeploymentRunRoutes:
    runs: DeploymentRuns

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path="/v1/deployment_runs",
                handle=self.list,
                summary="List runs of deployments",
                query=ListRuns,
                response_type=Page[DeploymentRun],
            ),
            Route(
                method="GET",
                path="/v1/deployment_runs/{deployment_run_id}",
                handle=self.get,
                summary="Look at a run of a deployment",
                response_type=DeploymentRun,
            ),
        )

    async def list(self, api_call: ApiCall[ListRuns, Empty]) -> Page[DeploymentRun]:
        query = api_call.query
        lower = [query.created_at_gte, query.created_at_gt and just_after(query.created_at_gt)]
        upper = [query.created_at_lte, query.created_at_lt and just_before(query.created_at_lt)]
        return await self.runs.page(
            api_call.tenant,
            RunListing(
                limit=query.limit,
                page=query.page,
                deployment_id=query.deployment_id,
                has_error=query.has_error,
                trigger_type=query.trigger_type,
                created_from=max((item for item in lower if item), default=None),
                created_upto=min((item for item in upper if item), default=None),
            ),
        )

    async def get(self, api_call: ApiCall[Empty, Empty]) -> DeploymentRun:
        return await self.runs.get(api_call.tenant, api_call["deployment_run_id"])
