"""`/v1/mainspring/workflows` and `/v1/mainspring/workflow_runs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from msgspec import Struct

from mainspring.core.ids import SessionId
from mainspring.core.sender import Origin
from mainspring.edges.api.route import (
    ApiCall,
    Empty,
    RouteOptions,
    ShortPageQuery,
    list_query,
    route,
)
from mainspring.runtime.workflows.run_state import RunStatus
from mainspring.runtime.workflows.run_view import RunView
from mainspring.runtime.workflows.validation import WorkflowReport
from mainspring.service.storage.pagination import Page
from mainspring.service.workflows.stored_workflows import PutWorkflow, WorkflowObject, Workflows
from mainspring.service.workflows.workflow_runs import (
    ForkRun,
    NodeAttempts,
    NodePath,
    RespondToRun,
    RunLine,
    StartRun,
    SteerRun,
    WorkflowRuns,
)


class ListWorkflows(ShortPageQuery, frozen=True, kw_only=True):
    include_archived: bool = False


class ListWorkflowRuns(ShortPageQuery, frozen=True, kw_only=True):
    workflow: str | None = None
    session_id: SessionId | None = None
    """Only the runs that the agent of this session has started."""
    statuses: tuple[RunStatus, ...] = ()


class NodeQuery(Struct, frozen=True, kw_only=True):
    node: NodePath


class DeletedRun(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["workflow_run_deleted"] = "workflow_run_deleted"


class CheckedWorkflows(Struct, frozen=True, kw_only=True):
    data: list[WorkflowReport]


@dataclass(frozen=True, slots=True)
class WorkflowRoutes:
    workflows: Workflows

    @route("POST /v1/mainspring/workflows", "Store a workflow, or a new version of it")
    async def put(self, call: ApiCall[Empty, PutWorkflow]) -> WorkflowObject:
        return await self.workflows.put(call.who, call.body)

    @route(
        "POST /v1/mainspring/workflows/validate",
        "Check workflows: order, references, fields without an effect",
        role="user",
    )
    async def validate(self, call: ApiCall[Empty, PutWorkflow]) -> CheckedWorkflows:
        return CheckedWorkflows(data=await self.workflows.check(call.body))

    @route("GET /v1/mainspring/workflows", "List workflows")
    async def list(self, call: ApiCall[ListWorkflows, Empty]) -> Page[WorkflowObject]:
        return await self.workflows.page(call.tenant, list_query(call.query))

    @route("GET /v1/mainspring/workflows/{workflow_id}", "Get a workflow")
    async def get(self, call: ApiCall[Empty, Empty]) -> WorkflowObject:
        return await self.workflows.get(call.tenant, call["workflow_id"])

    @route(
        "POST /v1/mainspring/workflows/{workflow_id}/archive",
        "Archive a workflow: it starts no more runs",
    )
    async def archive(self, call: ApiCall[Empty, Empty]) -> WorkflowObject:
        return await self.workflows.archive(call.tenant, call["workflow_id"])


@dataclass(frozen=True, slots=True)
class WorkflowRunRoutes:
    runs: WorkflowRuns
    route_options: ClassVar[RouteOptions] = {"for_agent_keys": True}

    @route("GET /v1/mainspring/workflow_runs", "List runs of workflows")
    async def list(self, call: ApiCall[ListWorkflowRuns, Empty]) -> Page[RunLine]:
        query = call.query
        parent = query.session_id or query.workflow
        listing = list_query(query, parent=parent, label=query.statuses or None)
        return await self.runs.page(call.who, listing)

    @route("POST /v1/mainspring/workflow_runs", "Start a run of a workflow", role="user")
    async def start(self, call: ApiCall[Empty, StartRun]) -> RunView:
        origin = Origin(type="api", id=call.who.key_id)
        return await self.runs.start(call.who, call.body, origin=origin)

    @route(
        "GET /v1/mainspring/workflow_runs/{workflow_run_id}",
        "Get a run: its nodes with status, time and cost, and the gates that wait",
    )
    async def get(self, call: ApiCall[Empty, Empty]) -> RunView:
        return await self.runs.get(call.who, call["workflow_run_id"])

    @route(
        "DELETE /v1/mainspring/workflow_runs/{workflow_run_id}",
        "Delete a run with the sessions of its nodes",
        role="user",
    )
    async def delete(self, call: ApiCall[Empty, Empty]) -> DeletedRun:
        await self.runs.delete(call.who, call["workflow_run_id"])
        return DeletedRun(id=call["workflow_run_id"])

    @route(
        "GET /v1/mainspring/workflow_runs/{workflow_run_id}/node",
        "Get a node of a run with its whole output, and its earlier attempts",
    )
    async def node(self, call: ApiCall[NodeQuery, Empty]) -> NodeAttempts:
        return await self.runs.node(call.who, call["workflow_run_id"], call.query.node)

    @route(
        "POST /v1/mainspring/workflow_runs/{workflow_run_id}/respond",
        "Answer a gate of a run",
        role="user",
    )
    async def respond(self, call: ApiCall[Empty, RespondToRun]) -> RunView:
        return await self.runs.respond(call.who, call["workflow_run_id"], call.body)

    @route(
        "POST /v1/mainspring/workflow_runs/{workflow_run_id}/steer",
        "Pause, resume or cancel a run; retry or skip one of its nodes",
        role="user",
    )
    async def steer(self, call: ApiCall[Empty, SteerRun]) -> RunView:
        return await self.runs.steer(call.who, call["workflow_run_id"], call.body)

    @route(
        "POST /v1/mainspring/workflow_runs/{workflow_run_id}/fork",
        "Start a run with the history of another one",
        role="user",
    )
    async def fork(self, call: ApiCall[Empty, ForkRun]) -> RunView:
        return await self.runs.fork(call.who, call["workflow_run_id"], call.body)
