"""The workflows that an agent of the service starts itself: it writes a plan, which runs in the
background as any workflow, in the workspace of the agent's session and with no more rights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import clock, ids
from mainspring.core.errors import AlreadyExists, InvalidInput
from mainspring.core.events import (
    ClientPayload,
    ErrorDetail,
    WorkflowPhase,
    WorkflowResult,
    WorkflowRunControlled,
    WorkflowRunCreated,
    WorkflowRunFailed,
    WorkflowRunIdle,
    WorkflowRunRunning,
)
from mainspring.core.events.session import RetryStatus
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import ToolSpec
from mainspring.core.sender import Origin, Sender
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.log.records import Records
from mainspring.log.session_log import SessionLog
from mainspring.runtime.workflows.format.definition import Node, Workflow, all_nodes
from mainspring.runtime.workflows.run_budget import LimitLedger
from mainspring.runtime.workflows.run_files import RunFiles
from mainspring.service.sessions.dependencies import WakeSession
from mainspring.service.sessions.session_agent import (
    SessionAgent,
    SessionDelegation,
    callable_agents,
    workflow_agent,
    workflow_delegation,
)
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.workflow_run_record import RunRecord, run_records
from mainspring.service.storage.repository import ListQuery, Repository, all_pages

if TYPE_CHECKING:
    from mainspring.runtime.workflows import engine, run_state
    from mainspring.runtime.workflows.format import workflow_reader
else:
    engine = LazyModule("mainspring.runtime.workflows.engine")  # few agents start workflows
    workflow_reader = LazyModule("mainspring.runtime.workflows.format.workflow_reader")

MAX_OPEN_RUNS = 8
"""Runs of one session at the same time: each may have 20 agents at work."""
_MAX_PARTS = 20  # workflows of one plan: more is a library, not a plan
_TRAITS = Traits(in_doubt="retry", on_interrupt="block")
_PAGE = 100  # runs read at once
_WITH_AGENT = frozenset(("prompt", "loop"))
_OF_FILES = {"command": "commands", "include": "other workflows; put the nodes into the plan"}


class _Plan(Struct, frozen=True, kw_only=True):
    """The input of `start_workflow`."""

    plan: str
    parts: tuple[str, ...] = ()
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWorkflows:
    records: Records
    sessions: Repository[SessionRecord]
    wake: WakeSession

    async def reserved_usd(self, tenant: str, session_id: str) -> Decimal:
        """What the runs of a session have cost, and may still cost."""
        total = Decimal(0)
        for run in await self.runs_of(tenant, session_id):
            limit = run.limits.max_cost_usd
            is_open = not run.has_ended and limit is not None
            total += limit if is_open and limit is not None else Decimal(run.cost_usd)
        return total

    def tools(
        self, tenant: str, record: SessionRecord, log: SessionLog, spending: LimitLedger | None
    ) -> Sequence[Tool]:
        """The tools with which an agent starts and stops runs; none if it may not.

        `spending`: the budget of the session; each run gets half of what is left of it.
        """
        delegation = workflow_delegation(record.agent)
        if delegation is None:
            return ()
        starter = _Starter(
            workflows=self,
            tenant=tenant,
            record=record,
            agent=workflow_agent(record.agent, delegation),
            delegation=delegation,
            log=log,
            spending=spending,
        )
        return (starter.start_tool(), starter.stop_tool())

    async def note_start(self, log: SessionLog, tenant: str, run: RunRecord) -> None:
        """Called before a worker runs a run: the session learns that it continues."""
        if run.session_id is None:
            return
        session = await self.sessions.find(tenant, run.session_id)
        if session is None or session.archived_at is not None:
            stop = WorkflowRunControlled(
                workflow_run_id=run.id, action="cancel", text="its session has ended"
            )
            await log.submit(run.id, stop, sender=_SYSTEM, client_id="session-ended")
        elif run.status == "paused":
            running = WorkflowRunRunning(workflow_run_id=run.id)
            await self._tell(log, tenant, session, [running], ids.new_id(ids.EVENT))

    async def note_stop(
        self, log: SessionLog, tenant: str, run: RunRecord, state: run_state.RunState
    ) -> None:
        """Called after a worker ran a run: the session learns how it ended, or that it waits."""
        if run.session_id is None or state.stop_id is None:
            return
        session = await self.sessions.find(tenant, run.session_id)
        if session is None or session.archived_at is not None:
            return
        payloads: Sequence[ClientPayload] = [WorkflowRunIdle(workflow_run_id=run.id)]
        if state.has_ended:
            result = state.result or WorkflowResult(type="stopped")
            payloads = engine.ending(run.id, result, state.output)
        await self._tell(log, tenant, session, payloads, state.stop_id)

    async def _tell(
        self,
        log: SessionLog,
        tenant: str,
        session: SessionRecord,
        payloads: Iterable[ClientPayload],
        key: str,
    ) -> None:
        """Put events into the session's inbox, once for each key, and wake it."""
        for index, payload in enumerate(payloads):
            await log.submit(session.id, payload, sender=_SYSTEM, client_id=f"{key}-{index}")
        await self.wake(tenant, session)

    async def runs_of(self, tenant: str, session_id: str) -> list[RunRecord]:
        query = ListQuery(parent=session_id, limit=_PAGE)
        return await all_pages(partial(run_records(self.records).page, tenant), query)


_SYSTEM = Sender(kind="system", id="workflow")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Starter:
    """Starts and stops the runs of one session."""

    workflows: AgentWorkflows
    tenant: str
    record: SessionRecord
    agent: SessionAgent
    """That of the runs."""
    delegation: SessionDelegation
    log: SessionLog
    spending: LimitLedger | None

    def start_tool(self) -> Tool:
        return Tool(
            spec=_start_spec(list(callable_agents(self.agent)), self.may_define_agents),
            run=self._start,
            traits=lambda _: _TRAITS,
            invalid=_input_error,
        )

    def stop_tool(self) -> Tool:
        return Tool(spec=_STOP_SPEC, run=self._stop, traits=lambda _: _TRAITS)

    @property
    def may_define_agents(self) -> bool:
        return self.delegation.inline_agents.type == "enabled"

    async def _start(self, call: Call) -> ToolResult:
        run_id = ids.stable_id(ids.SESSION, "workflow", call.session_id, call.id)
        plan = msgspec.convert(dict(call.input), _Plan)
        open_runs = [
            item
            for item in await self.workflows.runs_of(self.tenant, self.record.id)
            if not item.has_ended and item.id != run_id
        ]
        if len(open_runs) >= MAX_OPEN_RUNS:
            why = f"{MAX_OPEN_RUNS} workflows are open: wait until one ends, or stop one"
            return _refusal("max_workflow_runs_error", why)
        try:
            files = self._files(plan)
            workflow = files.workflow(files.main)
            await self._put(run_id, files, plan.arguments)
        except InvalidInput as error:
            return _refusal("program_error", str(error))
        created = WorkflowRunCreated(
            workflow_run_id=run_id,
            name=workflow.name,
            description=workflow.description,
            phases=tuple(WorkflowPhase(id=node.id, name=node.id) for node in workflow.nodes),
        )
        text = (
            f"The workflow {run_id} is at work. You will get its output as a message; continue with"
            " something else, or stop and wait. stop_workflow ends it."
        )
        result = ToolResult.text(text)
        return ToolResult(
            result.content, facts=(created, WorkflowRunRunning(workflow_run_id=run_id))
        )

    async def _stop(self, call: Call) -> ToolResult:
        run_id = str(call.input.get("workflow_run_id"))
        runs = await self.workflows.runs_of(self.tenant, self.record.id)
        if run_id not in [run.id for run in runs]:
            names = ", ".join(run.id for run in runs) or "none yet"
            why = f"{run_id} is not a workflow that you have started. You have started: {names}."
            return ToolResult.text(why, ok=False, error="failed")
        stop = WorkflowRunControlled(
            workflow_run_id=run_id, action="cancel", text="stopped by the agent that started it"
        )
        await self.log.submit(run_id, stop, sender=self._sender, client_id=call.id)
        run = await self.workflows.sessions.get(self.tenant, run_id)
        await self.workflows.wake(self.tenant, run)
        return ToolResult.text(f"{run_id} is told to stop.")

    @property
    def _sender(self) -> Sender:
        key = self.record.created_by.key_id
        return Sender(kind="agent", id=self.record.agent.id, on_behalf_of=(key,))

    def _files(self, plan: _Plan) -> RunFiles:
        """Raises: InvalidInput: a plan is not valid, or wants more than the agent may do."""
        texts: dict[str, str] = {}
        for text in (plan.plan, *plan.parts):
            read = workflow_reader.read_workflow(text, "plan")
            if read.workflow is None:
                place = "" if read.line is None else f"line {read.line}: "
                raise InvalidInput(f"{place}{read.error}")
            if texts.setdefault(read.workflow.name, text) != text:
                raise InvalidInput(f"two workflows are called {read.workflow.name}")
            self._check(read.workflow)
        files = RunFiles(main=next(iter(texts)), workflows=texts)
        for name in texts:
            for node in all_nodes(files.workflow(name).nodes):
                if node.kind == "workflow" and node.text not in texts:
                    raise InvalidInput(f"{node.id}: there is no workflow {node.text} in parts")
        return files

    def _check(self, workflow: Workflow) -> None:
        for node in all_nodes(workflow.nodes):
            if (problem := self._problem(node)) is not None:
                raise InvalidInput(f"node {node.id}: {problem}")

    def _problem(self, node: Node) -> str | None:
        if node.kind in _OF_FILES or (node.loop is not None and node.loop.command is not None):
            return f"a plan has no {_OF_FILES.get(node.kind, 'commands')}"
        if node.mcp is not None:
            return "a plan has no files of MCP servers"
        names = list(callable_agents(self.agent))
        if node.agent is not None and node.agent not in names:
            return f"there is no agent {node.agent}; there are: {', '.join(names) or 'none'}"
        has_rework = node.approval is not None and node.approval.on_reject is not None
        needs_agent = node.kind in _WITH_AGENT or has_rework
        if self.may_define_agents or not (node.agents or (needs_agent and node.agent is None)):
            return None
        return f"name its agent, one of: {', '.join(names)}"

    async def _put(self, run_id: str, files: RunFiles, arguments: str) -> None:
        """Create the run; again after a crash, it is the same one. Raises: InvalidInput."""
        repository, now = self.workflows.sessions, clock.now()
        origin = Origin(type="workflow", id=self.record.id)
        request = engine.RunRequest(files=files, arguments=arguments, origin=origin, run_id=run_id)
        await engine.start_run(self.log, request, self._sender)
        record = replace(
            self.record,
            id=run_id,
            agent=self.agent,
            title=f"workflow {files.main}",
            metadata={"started_by": self.record.id},
            created_at=now,
            updated_at=now,
            resources=(),
            sealed={},
            budget=None,
            deployment_id=None,
            origin=origin,
            workflow_run_id=run_id,
            started_by=self.record.workspace_name,
        )
        with suppress(AlreadyExists):
            await repository.put(self.tenant, record)
        runs = run_records(self.workflows.records)
        if await runs.find(self.tenant, run_id) is None:
            limit = None if self.spending is None else str(self.spending.take_half())
            run = RunRecord(
                id=run_id,
                workflow=files.main,
                created_at=now,
                session_id=self.record.id,
                max_cost_usd=limit,
            )
            await runs.put(self.tenant, run)
        begin = WorkflowRunControlled(workflow_run_id=run_id, action="resume")
        await self.log.submit(run_id, begin, sender=self._sender, client_id="start")
        await self.workflows.wake(self.tenant, record)


def _refusal(kind: str, why: str) -> ToolResult:
    detail = ErrorDetail(type=kind, message=why, retry_status=RetryStatus(type="terminal"))
    failed = WorkflowRunFailed(error=detail)
    result = ToolResult.text(f"No workflow was started: {why}", ok=False, error="failed")
    return ToolResult(result.content, ok=False, error=result.error, facts=(failed,))


def _input_error(tool_input: Mapping[str, object]) -> str | None:
    try:
        plan = msgspec.convert(dict(tool_input), _Plan)
    except msgspec.ValidationError as error:
        return f"The input is not valid:\n- {error}"
    if len(plan.parts) > _MAX_PARTS:
        return f"The input is not valid:\n- parts: at most {_MAX_PARTS}"
    return None


_PLAN_HELP = """\
Start a workflow: steps in an order that you know, which run in the background in your workspace \
while you go on. Use it for work with many independent or repeated steps. The plan is YAML:

name: review-all
description: Review each module, then summarize.
nodes:
  - {id: list, bash: ls src}
  - {id: plan, prompt: "Which of these need a review? $list.output", depends_on: [list]}
  - {id: fix, loop: {prompt: "Fix the next problem. Say DONE when none is left.", until: DONE, \
max_iterations: 5}, depends_on: [plan], when: "$plan.output != 'none'"}

A node has an id and one body: prompt (an agent works on it; it knows nothing but the prompt), \
bash, script with runtime, loop, loop_group {nodes, until_bash, max_iterations}, approval \
{message} (a person decides), cancel (a reason), or workflow (the name of one of `parts`, with \
fan_out {items, as} once for each item of a JSON array). Other fields: depends_on, when, \
trigger_rule, retry, timeout, output_format (a JSON Schema; then $id.output.field works), \
allowed_tools, model, agent. $ARGUMENTS is `arguments`. \
Files in $ARTIFACTS_DIR are shared by all nodes."""


def _start_spec(names: Sequence[str], may_define: bool) -> ToolSpec:
    agents = f"\n\nThe agents that `agent` may name: {', '.join(names)}." if names else ""
    if not may_define:
        agents += " Every prompt and loop must name one."
    return ToolSpec(
        name="start_workflow",
        description=f"{_PLAN_HELP}{agents}",
        input_schema={
            "type": "object",
            "properties": {
                "plan": {"type": "string", "description": "The workflow, as YAML."},
                "parts": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Workflows that the plan's nodes call by name, as YAML.",
                },
                "arguments": {"type": "string"},
            },
            "required": ["plan"],
            "additionalProperties": False,
        },
    )


_STOP_SPEC = ToolSpec(
    name="stop_workflow",
    description="Stop a workflow that you have started, with all agents and programs in it.",
    input_schema={
        "type": "object",
        "properties": {"workflow_run_id": {"type": "string"}},
        "required": ["workflow_run_id"],
        "additionalProperties": False,
    },
)
