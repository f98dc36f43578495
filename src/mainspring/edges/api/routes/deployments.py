"""`/v1/deployments` and `/v1/deployment_runs`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.ids import AgentId, DeploymentId
from mainspring.edges.api.resource import Resource, forward
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
                method="GET",
                path="/v1/deployments",
                handle=self.list,
                summary="List deployments",
                query=ListDeployments,
                response_type=Page[Deployment],
            ),
            *Resource(
                path=one,
                service=self.deployments,
                item=Deployment,
                create=CreateDeployment,
                update=UpdateDeployment,
                summaries={
                    "create": "Create a deployment",
                    "get": "Get a deployment",
                    "update": "Update a deployment",
                    "archive": "Archive a deployment: it never runs again",
                },
            ).routes(),
            Route(
                method="POST",
                path=f"{one}/pause",
                handle=forward(self.deployments.pause, one),
                summary="Pause a deployment: its schedule does not run it",
                response_type=Deployment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/unpause",
                handle=forward(self.deployments.unpause, one),
                summary="Resume the schedule of a deployment",
                response_type=Deployment,
                role="operator",
            ),
            Route(
                method="POST",
                path=f"{one}/run",
                handle=forward(self.deployment_runner.run_now, one),
                summary="Run a deployment now",
                response_type=DeploymentRun,
                role="user",
            ),
        )

    async def list(self, call: ApiCall[ListDeployments, Empty]) -> Page[Deployment]:
        query = call.query
        if query.status is not None and query.include_archived:
            raise InvalidInput("status: cannot be combined with include_archived")
        return await self.deployments.page(
            call.tenant,
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


class ListRuns(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None
    deployment_id: DeploymentId | None = None
    has_error: bool | None = None
    trigger_type: Literal["schedule", "manual"] | None = None
    created_at_gt: Timestamp | None = None
    created_at_gte: Timestamp | None = None
    created_at_lt: Timestamp | None = None
    created_at_lte: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class DeploymentRunRoutes:
    runs: DeploymentRuns

    def routes(self) -> tuple[Route, ...]:
        one = "/v1/deployment_runs/{deployment_run_id}"
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
                path=one,
                handle=forward(self.runs.get, one),
                summary="Get a run of a deployment",
                response_type=DeploymentRun,
            ),
        )

    async def list(self, call: ApiCall[ListRuns, Empty]) -> Page[DeploymentRun]:
        query = call.query
        lower = [query.created_at_gte, query.created_at_gt and just_after(query.created_at_gt)]
        upper = [query.created_at_lte, query.created_at_lt and just_before(query.created_at_lt)]
        return await self.runs.page(
            call.tenant,
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
