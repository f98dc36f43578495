"""Assembles what runs the workflows of a folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.hooks.static_answers import static_answers
from mainspring.config import Settings, is_postgres, read_settings
from mainspring.core.envelope import Event
from mainspring.core.model import Model
from mainspring.core.sender import local_user
from mainspring.harness.event_sink import ignore_event
from mainspring.runtime.agent import AnyAgent
from mainspring.runtime.session.session import Runtime
from mainspring.runtime.workflows.project_workflows import ProjectWorkflows
from mainspring.runtime.workflows.run_context import MAX_STEPS, RunLimits
from mainspring.runtime.workflows.session_steps import SessionSteps
from mainspring.runtime.workflows.step_runner import StepPorts
from mainspring.runtime.workflows.workflow_files import WorkflowFiles, base_branch
from mainspring.wiring.runtime_assembly import open_runtime
from mainspring.wiring.worktrees import open_worktrees

STEP_PORTS = StepPorts(open_worktrees=open_worktrees, static_answers=static_answers)


def project_workflows(
    settings: Settings, runtime: Runtime, agent: AnyAgent, limits: RunLimits
) -> ProjectWorkflows:
    """The workflows of the folder, whose nodes are sessions of `runtime`. Blocks."""
    folder, home = Path(settings.folder).absolute(), Path(settings.home)
    workspace = (runtime.options.workspace or folder).absolute()
    runtime.options = replace(runtime.options, workspace=workspace)
    is_shared = is_postgres(settings.store)
    state = home / ".mainspring" if is_shared else Path(settings.store).parent
    steps = SessionSteps(
        runtime=runtime, agent=agent, ports=STEP_PORTS, worktrees=state / "workflow-worktrees"
    )
    return ProjectWorkflows(
        files=WorkflowFiles(root=folder, home=home),
        steps=steps,
        sender=local_user(settings.user),
        limits=limits,
        base_branch=base_branch(folder),
    )


@asynccontextmanager
async def open_workflows(
    agent: AnyAgent,
    *,
    store: str | None = None,
    model: Model | None = None,
    max_cost_usd: Decimal | None = None,
    max_steps: int = MAX_STEPS,
    on_event: Callable[[Event], None] = ignore_event,
) -> AsyncGenerator[ProjectWorkflows, None]:
    """The workflows of the current folder, until the block ends. Their nodes have at most the
    tools, skills and subagents of `agent`; `model` answers in place of its model.

    `max_cost_usd` and `max_steps` limit each run as a whole. `on_event` gets the events of runs as
    they happen.
    """
    settings = read_settings(store=store)
    limits = RunLimits(max_steps=max_steps, max_cost_usd=max_cost_usd)
    async with open_runtime(store=store) as runtime:
        if model is not None:
            runtime.models.put(agent.model, model)
        open_ = partial(project_workflows, settings, runtime, agent, limits)
        workflows = await to_thread.run_sync(open_)
        yield replace(workflows, on_event=on_event)
