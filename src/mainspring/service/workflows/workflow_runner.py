"""Runs workflows for a worker: the nodes of a run are sessions of its agent, each with a record, so
that clients can read them and answer their calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.core.envelope import Event
from mainspring.core.errors import AlreadyExists
from mainspring.core.lazy_module import LazyModule
from mainspring.core.sender import Origin
from mainspring.log.store import Store
from mainspring.runtime.agent import Agent
from mainspring.runtime.session.session import Runtime
from mainspring.runtime.workflows.step_runner import StepPorts
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.workflow_run_record import run_records
from mainspring.service.sessions.workspaces.session_mounts import ForkSource
from mainspring.service.storage.repository import Repository
from mainspring.service.workflows.agent_workflows import AgentWorkflows

if TYPE_CHECKING:
    from mainspring.runtime.workflows import engine, session_steps
else:
    engine = LazyModule("mainspring.runtime.workflows.engine")  # many workers run no workflows
    session_steps = LazyModule("mainspring.runtime.workflows.session_steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRunner:
    store: Store
    sessions: Repository[SessionRecord]
    worktrees: Path
    """The folder for the worktrees of all runs."""
    step_ports: StepPorts
    agent_workflows: AgentWorkflows

    async def fork_source(self, tenant: str, run_id: str) -> ForkSource | None:
        run = await run_records(self.store.records).get(tenant, run_id)
        if run.fork_source is None:
            return None
        return ForkSource(session=await self.store.session(run.fork_source), seq=run.fork_seq)

    async def run(
        self,
        tenant: str,
        record: SessionRecord,
        runtime: Runtime,
        agent: Agent,
        *,
        on_event: Callable[[Event], None],
    ) -> None:
        """Raises: LeaseHeld: another worker runs it."""
        runs = run_records(self.store.records)
        run = await runs.get(tenant, record.id)

        async def add_record(session_id: str, path: str) -> None:
            node = replace(
                record,
                id=session_id,
                title=path,
                metadata={"workflow_run": record.id, "workflow_node": path},
                origin=Origin(type="workflow", id=record.id),
                resources=(),
                sealed={},
                budget=None,
                deployment_id=None,
            )
            with suppress(AlreadyExists):  # it continues
                await self.sessions.put(tenant, node)

        steps = session_steps.SessionSteps(
            runtime=runtime,
            agent=agent,
            ports=self.step_ports,
            worktrees=self.worktrees,
            is_trusted=run.session_id is None,
            on_session=add_record,
        )
        await self.agent_workflows.note_start(runtime.log, tenant, run)
        await steps.begin(record.id, run.limits.max_cost_usd)
        state = await engine.run_workflow(
            runtime.log, record.id, steps, limits=run.limits, on_event=on_event
        )
        cost = str(state.cost_usd)
        if (state.status, cost) != (run.status, run.cost_usd):
            await runs.update(
                tenant, run.id, lambda item: replace(item, status=state.status, cost_usd=cost)
            )
        await self.agent_workflows.note_stop(runtime.log, tenant, run, state)
