"""`/v1/deployment_runs`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core.ids import DeploymentId
from mainspring.edges.api.route import Call, Nothing, Route
from mainspring.service.calendar.model import DeploymentRun
from mainspring.service.calendar.runs import DeploymentRuns, RunListing, after, before
from mainspring.service.keeping.page import Limit, Page

Moment = Annotated[datetime, Meta(tz=True)]


class ListRuns(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None
    deployment_id: DeploymentId | None = None
    has_error: bool | None = None
    trigger_type: Literal["schedule", "manual"] | None = None
    created_at_gt: Moment | None = None
    created_at_gte: Moment | None = None
    created_at_lt: Moment | None = None
    created_at_lte: Moment | None = None


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
                answer=Page[DeploymentRun],
            ),
            Route(
                method="GET",
                path="/v1/deployment_runs/{deployment_run_id}",
                handle=self.get,
                summary="Look at a run of a deployment",
                answer=DeploymentRun,
            ),
        )

    async def list(self, call: Call[ListRuns, Nothing]) -> Page[DeploymentRun]:
        query = call.query
        lower = [query.created_at_gte, query.created_at_gt and after(query.created_at_gt)]
        upper = [query.created_at_lte, query.created_at_lt and before(query.created_at_lt)]
        return await self.runs.page(
            call.tenant,
            RunListing(
                limit=query.limit,
                page=query.page,
                deployment_id=query.deployment_id,
                has_error=query.has_error,
                trigger_type=query.trigger_type,
                created_from=max((each for each in lower if each), default=None),
                created_upto=min((each for each in upper if each), default=None),
            ),
        )

    async def get(self, call: Call[Nothing, Nothing]) -> DeploymentRun:
        return await self.runs.get(call.tenant, call["deployment_run_id"])
