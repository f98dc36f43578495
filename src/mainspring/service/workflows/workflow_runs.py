"""Runs of workflows: start, list, read, steer, answer, fork. A run is a session of an agent: a
worker runs its nodes as sessions of their own, with the agent, the environment and the workspace of
the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core import ids
from mainspring.core.envelope import event_types
from mainspring.core.errors import (
    AlreadyExists,
    InvalidInput,
    MainspringError,
    NotFound,
    SessionHasForks,
    StaleVersion,
)
from mainspring.core.events import WorkspaceSnapshotted
from mainspring.core.events.workflow import NodeAction
from mainspring.core.sender import Origin
from mainspring.log.lru_cache import LruCache
from mainspring.log.session_log import SessionLog
from mainspring.runtime.workflows.engine import (
    RunRequest,
    fork_run,
    run_files,
    start_run,
)
from mainspring.runtime.workflows.run_context import MAX_STEPS, PARALLEL
from mainspring.runtime.workflows.run_control import GateReply, control_event, find_gate
from mainspring.runtime.workflows.run_files import RunFiles
from mainspring.runtime.workflows.run_state import RunState, RunStatus, require_run
from mainspring.runtime.workflows.run_view import (
    NodeView,
    RunView,
    gate_node,
    node_view,
    open_gates,
    pending_node,
    run_view,
)
from mainspring.runtime.workflows.subworkflows import resolve_inputs
from mainspring.service.access.principal import Principal
from mainspring.service.approvals.approval_record import approval_id
from mainspring.service.approvals.approvals import MAX_MESSAGE_CHARS, ApprovalAnswer, Approvals
from mainspring.service.resources.agent_multiagent import AgentParams
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.schedules.deployment_types import (
    EnvironmentIdParam,
    VaultIds,
    WorkflowAction,
)
from mainspring.service.schedules.session_starter import SessionStartRequest
from mainspring.service.sessions.resource_types import ResourceParams
from mainspring.service.sessions.session_agent import AgentChoice
from mainspring.service.sessions.session_params import CreateSession
from mainspring.service.sessions.session_record import (
    ListCostBudget,
    SessionCreator,
    SessionRecord,
    Title,
)
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.sessions.workflow_run_record import RUN_KIND, RunRecord, run_records
from mainspring.service.storage.metadata import Metadata
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery, all_pages
from mainspring.service.workflows.stored_workflows import Workflows

_OPEN: tuple[RunStatus, ...] = ("pending", "running", "paused")
_CACHED_RUNS = 64  # whose state is kept for the next look
_PAGE = 200  # runs read at once
_SHOWN_CHARS = 2_000
"""The part of a node's output in a run; its own resource has all of it."""
Arguments = Annotated[str, Meta(max_length=100_000)]
NodePath = Annotated[str, Meta(min_length=1, max_length=2_000)]


class StartRun(Struct, frozen=True, kw_only=True):
    workflow: Annotated[str, Meta(min_length=1, max_length=200)]
    """Its name or its id."""
    agent: AgentChoice
    """The agent of its nodes, which have no more rights and tools than it."""
    environment_id: EnvironmentIdParam
    arguments: Arguments = ""
    """What the workflow reads as `$ARGUMENTS`."""
    inputs: dict[str, object] = {}
    key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """The same key again is the same run."""
    base_branch: Annotated[str, Meta(max_length=300)] | None = None
    """The value of `$BASE_BRANCH`."""
    budget: ListCostBudget | None = None
    """For all of its sessions together."""
    max_steps: Annotated[int, Meta(ge=1, le=100_000)] = MAX_STEPS
    """How many nodes it may start."""
    parallel: Annotated[int, Meta(ge=1, le=100)] = PARALLEL
    """How many agents and programs it may run at the same time."""
    max_open_runs: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Refuse to start while so many runs of the workflow have not ended."""
    title: Title | None = None
    metadata: Metadata = {}
    vault_ids: VaultIds = ()
    resources: Annotated[tuple[ResourceParams, ...], Meta(max_length=500)] = ()


class SteerRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    action: NodeAction
    node: NodePath | None = None
    """For `retry` and `skip`: a node of the workflow."""
    reason: Annotated[str, Meta(max_length=1_000)] | None = None


class RespondToRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    decision: Annotated[str, Meta(min_length=1, max_length=200)]
    """`approve`, `reject`, or a decision that the gate names."""
    node: NodePath | None = None
    """The gate; may be left out if only one waits."""
    text: Annotated[str, Meta(min_length=1, max_length=MAX_MESSAGE_CHARS)] | None = None


class ForkRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at: NodePath
    """The node to begin again with, in the workspace as it was then."""


class RunLine(Struct, frozen=True, kw_only=True):
    """A run in a list."""

    id: str
    workflow: str
    title: str | None
    agent_id: str
    status: RunStatus
    created_at: datetime
    updated_at: datetime | None
    cost_usd: str
    nodes: dict[str, int]
    """How many nodes have each status, those of groups and children included."""
    node_count: int
    """The nodes of the workflow, also those that have not started."""
    waiting: tuple[str, ...]
    """The gates that wait for an answer."""
    error: str | None
    key: str | None
    type: Literal["workflow_run"] = "workflow_run"


class NodeAttempts(Struct, frozen=True, kw_only=True):
    """A node with its whole output, and its earlier attempts."""

    node: NodeView
    earlier: tuple[NodeView, ...]


@dataclass(frozen=True, slots=True)
class WorkflowRuns:
    sessions: Sessions
    approvals: Approvals
    workflows: Workflows
    _states: LruCache[str, tuple[int, RunState, RunFiles]] = field(
        default_factory=lambda: LruCache(_CACHED_RUNS)
    )

    async def start(
        self,
        principal: Principal,
        request: StartRun,
        *,
        origin: Origin,
        deployment_id: str | None = None,
    ) -> RunView:
        """Start a run: a worker runs it soon. With the same key, the same run is returned.

        Raises: NotFound. InvalidInput. StaleVersion: too many runs of the workflow are open.
        """
        tenant = principal.tenant
        files = await self.workflows.run_files(tenant, request.workflow)
        run_id = ids.new_id(ids.SESSION)
        if request.key is not None:
            run_id = ids.stable_id(ids.SESSION, "workflow", tenant, files.main, request.key)
            if await run_records(self.sessions.repository.records).find(tenant, run_id):
                return await self.get(principal, run_id)
        await self._check_open_runs(tenant, files.main, request.max_open_runs)
        record = await self._new_record(principal, request, run_id, files)
        record = replace(record, origin=origin, deployment_id=deployment_id)
        started = RunRequest(
            files=files,
            arguments=request.arguments,
            inputs=request.inputs,
            run_key=request.key,
            base_branch=request.base_branch,
            origin=origin,
            run_id=run_id,
        )
        await start_run(self.sessions.log, started, principal.sender)
        run = RunRecord(
            id=run_id,
            workflow=files.main,
            created_at=record.created_at,
            max_steps=request.max_steps,
            parallel=request.parallel,
            max_cost_usd=None
            if request.budget is None
            else str(Decimal(request.budget.max_list_cost.amount) / 100),
            key=request.key,
        )
        repository = self.sessions.repository
        with suppress(AlreadyExists):  # an earlier request was interrupted
            await repository.put(tenant, record)
        with suppress(AlreadyExists):
            await run_records(repository.records).put(tenant, run)
        await self._steer(principal, record, "resume", client_id="start")
        return await self.get(principal, run_id)

    async def start_planned(
        self, principal: Principal, request: SessionStartRequest, action: WorkflowAction
    ) -> str:
        """A `WorkflowStarter`."""
        start = StartRun(
            workflow=action.workflow,
            agent=AgentParams(id=request.agent.id, version=request.agent.version),
            environment_id=request.environment_id,
            arguments=action.arguments,
            inputs=action.inputs,
            key=request.key,
            budget=request.budget,
            max_open_runs=action.max_open_runs,
            title=request.title,
            metadata=request.metadata,
            vault_ids=request.vault_ids,
            resources=request.resources,
        )
        started = await self.start(
            principal, start, origin=request.origin, deployment_id=request.deployment_id
        )
        return started.id

    async def check(self, tenant: str, workflow: str, inputs: Mapping[str, object]) -> None:
        """Raises: NotFound. InvalidInput: it cannot be started with these inputs."""
        files = await self.workflows.run_files(tenant, workflow)
        resolve_inputs(files.workflow(files.main), inputs)

    async def _new_record(
        self, principal: Principal, request: StartRun, run_id: str, files: RunFiles
    ) -> SessionRecord:
        record = await self.sessions.new_record(
            principal,
            CreateSession(
                agent=request.agent,
                environment_id=request.environment_id,
                title=request.title or f"workflow {files.main}",
                metadata=request.metadata,
                vault_ids=request.vault_ids,
                resources=request.resources,
                budget=request.budget,
            ),
        )
        if not isinstance(record.environment, CloudConfig):
            raise InvalidInput("environment_id: workflows cannot run in a self-hosted environment")
        return replace(record, id=run_id, workflow_run_id=run_id)

    async def _check_open_runs(self, tenant: str, workflow: str, most: int | None) -> None:
        if most is None:
            return
        query = ListQuery(parent=workflow, label=_OPEN, limit=most)
        page = await run_records(self.sessions.repository.records).page(tenant, query)
        if len(page.data) >= most:
            raise StaleVersion(
                f"{len(page.data)} runs of {workflow} have not ended; the limit is {most}"
            )

    async def delete(self, principal: Principal, run_id: str) -> None:
        """Delete a run with the sessions of its nodes, unless a fork still needs them.

        Raises: NotFound. StaleVersion: it is running. SessionHasForks.
        """
        await self._load(principal, run_id)
        repository = self.sessions.repository
        nodes = await all_pages(
            partial(repository.page, principal.tenant), ListQuery(parent=run_id, limit=_PAGE)
        )
        await self.sessions.delete(principal, run_id)
        for node in nodes:
            with suppress(SessionHasForks):
                await self.sessions.delete(principal, node.id)
        await run_records(repository.records).remove(principal.tenant, run_id)

    async def page(self, principal: Principal, query: ListQuery) -> Page[RunLine]:
        page = await run_records(self.sessions.repository.records).page(principal.tenant, query)
        lines: list[RunLine] = []
        for run in page.data:
            with suppress(NotFound):  # of another agent than that of the key, or just deleted
                lines.append(await self._line(principal, run))
        return Page(data=lines, next_page=page.next_page)

    async def get(self, principal: Principal, run_id: str) -> RunView:
        """Raises: NotFound. InvalidInput: the session is not a run."""
        state, files = await self._load(principal, run_id)
        changed = False
        with suppress(MainspringError):
            current = await self.workflows.run_files(principal.tenant, files.main)
            changed = current.hash != files.hash
        workflow = files.workflow(files.main)
        return run_view(state, run_id, workflow, changed=changed, output_chars=_SHOWN_CHARS)

    async def node(self, principal: Principal, run_id: str, path: str) -> NodeAttempts:
        """A node by its path. Raises: NotFound: there is none, or it is within a node and has not
        started."""
        state, files = await self._load(principal, run_id)
        if (current := state.nodes.get(path)) is None:
            node = files.workflow(files.main).node(path)
            if node is None:
                raise NotFound("node", path)
            return NodeAttempts(node=pending_node(node), earlier=())
        text = current.output
        if current.output_blob is not None:
            text = (await self.sessions.log.blob(current.output_blob)).decode("utf-8", "replace")
        earlier = [node_view(item, item.status) for item in state.earlier if item.path == path]
        return NodeAttempts(
            node=replace(node_view(current, current.status), output=text), earlier=tuple(earlier)
        )

    async def steer(self, principal: Principal, run_id: str, request: SteerRun) -> RunView:
        """Raises: NotFound. InvalidInput."""
        record = await self.sessions.record(principal, run_id)
        await self._steer(principal, record, request.action, request.node, request.reason)
        return await self.get(principal, run_id)

    async def _steer(
        self,
        principal: Principal,
        record: SessionRecord,
        action: NodeAction,
        node: str | None = None,
        text: str | None = None,
        *,
        client_id: str | None = None,
    ) -> None:
        event = await control_event(self.sessions.log, record.id, action, node=node, text=text)
        await self.sessions.submit(principal, record, event, client_ids=(client_id,))

    async def respond(self, principal: Principal, run_id: str, request: RespondToRun) -> RunView:
        """Answer a gate, as any approval: the policy says who may.

        Raises: NotFound. InvalidInput. Forbidden. StaleVersion: another answer came first.
        """
        state, _ = await self._load(principal, run_id)
        reply = GateReply(decision=request.decision, node=request.node, text=request.text)
        gate, answer = find_gate(state, run_id, reply)
        await self.approvals.keeper.catch_up(principal.tenant, run_id)
        await self.approvals.answer(
            principal,
            approval_id(run_id, gate.id, gate.asked),
            ApprovalAnswer(result=answer.decision, message=answer.text, choice=answer.choice),
        )
        return await self.get(principal, run_id)

    async def fork(self, principal: Principal, run_id: str, request: ForkRun) -> RunView:
        """A run with the history of another one, which a worker continues at once.

        Raises: NotFound. InvalidInput: the node has not started, or an agent has started the run.
        """
        state, _ = await self._load(principal, run_id)
        record = await self.sessions.record(principal, run_id)
        if record.started_by is not None:
            raise InvalidInput(f"run {run_id} works in the workspace of its session's agent")
        runs = run_records(self.sessions.repository.records)
        run = await runs.get(principal.tenant, run_id)
        now, fork_id = self.sessions.clock(), ids.new_id(ids.SESSION)
        fork = replace(
            record,
            id=fork_id,
            workflow_run_id=fork_id,
            created_at=now,
            updated_at=now,
            created_by=SessionCreator.of(principal),
            deployment_id=None,
            origin=Origin(type="api", id=principal.key_id),
            archived_at=None,
        )
        await self.sessions.repository.put(principal.tenant, fork)
        try:
            await fork_run(self.sessions.log, run_id, request.at, principal.sender, fork_id)
        except MainspringError:
            await self.sessions.repository.remove(principal.tenant, fork_id)
            raise
        source, seq = await _files_before(self.sessions.log, state, request.at)
        new = replace(
            run,
            id=fork_id,
            created_at=now,
            status="pending",
            key=None,
            fork_source=source,
            fork_seq=seq,
        )
        await runs.put(principal.tenant, new)
        await self._steer(principal, fork, "resume", client_id="start")
        return await self.get(principal, fork_id)

    async def _load(self, principal: Principal, run_id: str) -> tuple[RunState, RunFiles]:
        row = await self.sessions.row(principal, run_id)
        cached = self._states.get(run_id)
        if cached is not None and cached[0] == row.head.seq:
            return cached[1], cached[2]
        log = self.sessions.log
        record = await run_records(self.sessions.repository.records).find(principal.tenant, run_id)
        if record is None:
            raise NotFound(RUN_KIND, run_id)
        state = require_run(await log.read(run_id), run_id)
        files = await run_files(log, state) if cached is None else cached[2]
        self._states.put(run_id, (row.head.seq, state, files))
        return state, files

    async def _line(self, principal: Principal, run: RunRecord) -> RunLine:
        state, files = await self._load(principal, run.id)
        record = await self.sessions.record(principal, run.id)
        counts: dict[str, int] = {}
        for node in state.nodes.values():
            counts[node.status] = counts.get(node.status, 0) + 1
        result = state.result
        return RunLine(
            id=run.id,
            workflow=run.workflow,
            title=record.title,
            agent_id=record.agent.id,
            status=state.status,
            created_at=run.created_at,
            updated_at=state.updated_at,
            cost_usd=str(state.cost_usd),
            nodes=counts,
            node_count=len(files.workflow(files.main).nodes),
            waiting=tuple(gate_node(item, run.id) for item in open_gates(state, run.id)),
            error=None if result is None or result.error is None else result.error.message,
            key=run.key,
        )


async def _files_before(log: SessionLog, state: RunState, path: str) -> tuple[str | None, int]:
    """Where the workspace is stored as it was when a node began: in the node's own session, else in
    the newest one before it; the session, and after which of its events."""
    nodes = sorted((*state.earlier, *state.nodes.values()), key=lambda item: item.started_at)
    own = [item for item in nodes if item.path == path or item.path.startswith(f"{path}/")]
    before = [item for item in nodes if item.started_at < own[0].started_at] if own else []
    candidates = [*((item, False) for item in own[:1]), *((item, True) for item in before[::-1])]
    for node, is_earlier in candidates:
        if node.session_id is None:
            continue
        snapshots = await log.read(node.session_id, types=event_types(WorkspaceSnapshotted))
        if snapshots:
            return node.session_id, snapshots[-1].seq if is_earlier else 0
    return None, 0
