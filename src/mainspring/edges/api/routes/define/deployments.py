"""`/v1/deployments` and `/v1/deployment_runs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mainspring.core.errors import InvalidInput
from mainspring.core.ids import AgentId, DeploymentId
from mainspring.edges.api.route import (
    ApiCall,
    Empty,
    PageQuery,
    ShortPageQuery,
    Timestamp,
    list_query,
    route,
)
from mainspring.service.schedules.deployment_runner import (
    DeploymentRunner,
    RunRepository,
    run_labels,
)
from mainspring.service.schedules.deployment_types import (
    CreateDeployment,
    Deployment,
    DeploymentRun,
    UpdateDeployment,
)
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.storage.pagination import Page


class ListDeployments(ShortPageQuery, frozen=True, kw_only=True):
    agent_id: AgentId | None = None
    status: Literal["active", "paused"] | None = None
    include_archived: bool = False
    created_at_gte: Timestamp | None = None
    created_at_lte: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class DeploymentRoutes:
    deployments: Deployments
    deployment_runner: DeploymentRunner

    @route("POST /v1/deployments", "Create a deployment")
    async def create(self, call: ApiCall[Empty, CreateDeployment]) -> Deployment:
        return await self.deployments.create(call.tenant, call.body)

    @route("GET /v1/deployments/{deployment_id}", "Get a deployment")
    async def get(self, call: ApiCall[Empty, Empty]) -> Deployment:
        return await self.deployments.get(call.tenant, call["deployment_id"])

    @route("POST /v1/deployments/{deployment_id}", "Update a deployment")
    async def update(self, call: ApiCall[Empty, UpdateDeployment]) -> Deployment:
        return await self.deployments.update(call.tenant, call["deployment_id"], call.body)

    @route(
        "POST /v1/deployments/{deployment_id}/archive", "Archive a deployment: it never runs again"
    )
    async def archive(self, call: ApiCall[Empty, Empty]) -> Deployment:
        return await self.deployments.archive(call.tenant, call["deployment_id"])

    @route(
        "POST /v1/deployments/{deployment_id}/pause",
        "Pause a deployment: its schedule does not run it",
    )
    async def pause(self, call: ApiCall[Empty, Empty]) -> Deployment:
        return await self.deployments.pause(call.tenant, call["deployment_id"])

    @route("POST /v1/deployments/{deployment_id}/unpause", "Resume the schedule of a deployment")
    async def unpause(self, call: ApiCall[Empty, Empty]) -> Deployment:
        return await self.deployments.unpause(call.tenant, call["deployment_id"])

    @route("POST /v1/deployments/{deployment_id}/run", "Run a deployment now", role="user")
    async def run(self, call: ApiCall[Empty, Empty]) -> DeploymentRun:
        return await self.deployment_runner.run_now(call.tenant, call["deployment_id"])

    @route("GET /v1/deployments", "List deployments")
    async def list(self, call: ApiCall[ListDeployments, Empty]) -> Page[Deployment]:
        query = call.query
        if query.status is not None and query.include_archived:
            raise InvalidInput("status: cannot be combined with include_archived")
        listing = list_query(query, parent=query.agent_id, label=query.status)
        return await self.deployments.page(call.tenant, listing)


class ListRuns(PageQuery, frozen=True, kw_only=True):
    deployment_id: DeploymentId | None = None
    has_error: bool | None = None
    trigger_type: Literal["schedule", "manual"] | None = None
    created_at_gt: Timestamp | None = None
    created_at_gte: Timestamp | None = None
    created_at_lt: Timestamp | None = None
    created_at_lte: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class DeploymentRunRoutes:
    runs: RunRepository

    @route("GET /v1/deployment_runs/{deployment_run_id}", "Get a run of a deployment")
    async def get(self, call: ApiCall[Empty, Empty]) -> DeploymentRun:
        return await self.runs.get(call.tenant, call["deployment_run_id"])

    @route("GET /v1/deployment_runs", "List runs of deployments")
    async def list(self, call: ApiCall[ListRuns, Empty]) -> Page[DeploymentRun]:
        query = call.query
        label = run_labels(has_error=query.has_error, trigger_type=query.trigger_type)
        listing = list_query(query, parent=query.deployment_id, label=label)
        return await self.runs.page(call.tenant, listing)
