"""The workflows of a folder for one user: run them, read their runs, answer their gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TypedDict, Unpack

from anyio import to_thread

from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.events.workflow import NodeAction
from mainspring.core.model import Model
from mainspring.core.sender import Sender
from mainspring.harness.event_sink import ignore_event
from mainspring.log.session_log import SessionLog
from mainspring.runtime.agent import AnyAgent
from mainspring.runtime.session.session import Runtime
from mainspring.runtime.workflows.engine import (
    RunRequest,
    fork_run,
    read_run,
    run_files,
    run_workflow,
    start_run,
)
from mainspring.runtime.workflows.run_context import MAX_STEPS, PARALLEL, RunLimits
from mainspring.runtime.workflows.run_control import GateReply, answer_gate, control_event
from mainspring.runtime.workflows.run_view import RunView, run_view
from mainspring.runtime.workflows.session_steps import SessionSteps
from mainspring.runtime.workflows.step_runner import StepPorts
from mainspring.runtime.workflows.workflow_files import WorkflowFiles, base_branch


async def read_view(files: WorkflowFiles, log: SessionLog, run_id: str) -> RunView:
    """A run as people see it, and whether its files have changed since it started.

    Raises: SessionNotFound. InvalidInput: the session is not a run.
    """
    state = await read_run(log, run_id)
    pinned = await run_files(log, state)
    try:
        current = await to_thread.run_sync(lambda: files.collect(files.find(pinned.main)).hash)
        changed = current != pinned.hash
    except (InvalidInput, NotFound):
        changed = True
    return run_view(state, run_id, pinned.workflow(pinned.main), changed=changed)


class WorkflowArguments(TypedDict, total=False):
    """What a caller may choose for the workflows of a folder."""

    store: str
    model: Model
    """It answers in place of the agent's model."""
    max_cost_usd: Decimal | None
    """The cost limit of each run as a whole."""
    max_steps: int
    """How many nodes a run may start."""
    parallel: int
    """How many of them at the same time."""
    on_event: Callable[[Event], None]
    """Gets the events of runs as they happen."""


@dataclass(frozen=True, slots=True)
class ProjectPlaces:
    folder: str
    home: str
    store: str | None
    """The file of the log; worktrees are beside it. `None`: it is in no file."""
    ports: StepPorts


async def open_project(
    runtime: Runtime, agent: AnyAgent, places: ProjectPlaces, **arguments: Unpack[WorkflowArguments]
) -> ProjectWorkflows:
    """The workflows of a folder, whose nodes are sessions of `runtime`."""
    if (model := arguments.get("model")) is not None:
        runtime.models.put(agent.model, model)
    home = Path(places.home)
    state = home / ".mainspring" if places.store is None else Path(places.store).parent
    folder = await to_thread.run_sync(Path(places.folder).absolute)
    runtime.options = replace(runtime.options, workspace=runtime.options.workspace or folder)
    return ProjectWorkflows(
        files=WorkflowFiles(root=folder, home=home),
        steps=SessionSteps(
            runtime=runtime,
            agent=agent,
            ports=places.ports,
            worktrees=state / "workflow-worktrees",
        ),
        sender=runtime.sender,
        limits=RunLimits(
            max_steps=arguments.get("max_steps", MAX_STEPS),
            parallel=arguments.get("parallel", PARALLEL),
            max_cost_usd=arguments.get("max_cost_usd"),
        ),
        base_branch=await to_thread.run_sync(base_branch, folder),
        on_event=arguments.get("on_event", ignore_event),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectWorkflows:
    files: WorkflowFiles
    steps: SessionSteps
    sender: Sender
    """Who starts, answers and steers."""
    limits: RunLimits
    base_branch: str | None = None
    on_event: Callable[[Event], None] = ignore_event

    @property
    def log(self) -> SessionLog:
        return self.steps.runtime.log

    async def run(
        self,
        name: str,
        arguments: str = "",
        *,
        inputs: Mapping[str, object] | None = None,
        key: str | None = None,
    ) -> RunView:
        """Run a workflow until it ends or waits for a person; with the same key, the same run.

        Raises: NotFound. InvalidInput: it is not valid, or nobody trusts it as it is now.
        """
        request = RunRequest(
            files=await to_thread.run_sync(self.files.trusted, name),
            arguments=arguments,
            inputs=dict(inputs or {}),
            run_key=key,
            workspace=self.steps.runtime.options.workspace,
            base_branch=self.base_branch,
        )
        run_id, _ = await start_run(self.log, request, self.sender)
        return await self.go_on(run_id)

    async def show(self, run_id: str) -> RunView:
        """Raises: SessionNotFound. InvalidInput: the session is not a run."""
        return await read_view(self.files, self.log, run_id)

    async def answer(
        self, run_id: str, decision: str, text: str | None = None, *, node: str | None = None
    ) -> None:
        """Answer a gate; `resume` continues the run. It counts only for what the gate shows now.

        Raises: SessionNotFound. InvalidInput: no such gate waits, or it has no such decision.
            EventIdTaken: another answer came first.
        """
        reply = GateReply(decision=decision, node=node, text=text)
        await answer_gate(self.log, run_id, reply, self.sender)

    async def resume(self, run_id: str) -> RunView:
        """Continue a run, after an answer, a pause or a crash; nodes that failed run again.

        Raises: SessionNotFound. LeaseHeld: another process runs it, and has the message.
        """
        return await self.steer(run_id, "resume")

    async def cancel(self, run_id: str, reason: str = "cancelled") -> RunView:
        """End a run, and what is running in it."""
        return await self.steer(run_id, "cancel", text=reason)

    async def steer(
        self, run_id: str, action: NodeAction, *, node: str | None = None, text: str | None = None
    ) -> RunView:
        """Pause, resume or cancel a run; retry or skip one of its nodes; then continue it.

        Raises: SessionNotFound. InvalidInput. LeaseHeld.
        """
        control = await control_event(self.log, run_id, action, node=node, text=text)
        await self.log.submit(run_id, control, sender=self.sender)
        return await self.go_on(run_id)

    async def fork(self, run_id: str, node: str | None = None) -> str:
        """The id of a new run with the nodes that ended before `node` began; `resume` runs it.

        Raises: SessionNotFound. InvalidInput: the node has not started.
        """
        return await fork_run(self.log, run_id, node, self.sender)

    async def go_on(self, run_id: str) -> RunView:
        """Run a run until it ends or waits. Raises: SessionNotFound. LeaseHeld."""
        await self.steps.begin(run_id, self.limits.max_cost_usd)
        await run_workflow(self.log, run_id, self.steps, limits=self.limits, on_event=self.on_event)
        return await self.show(run_id)
