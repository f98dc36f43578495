"""Assembles what runs the workflows of a folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from mainspring.capabilities.hooks.static_answers import static_answers
from mainspring.config import Settings, is_postgres, read_settings
from mainspring.runtime.agent import AnyAgent
from mainspring.runtime.workflows import project_workflows
from mainspring.runtime.workflows.step_runner import StepPorts
from mainspring.wiring.runtime_assembly import open_runtime
from mainspring.wiring.worktrees import open_worktrees

STEP_PORTS = StepPorts(open_worktrees=open_worktrees, static_answers=static_answers)


def project_places(settings: Settings) -> project_workflows.ProjectPlaces:
    is_shared = is_postgres(settings.store)
    home, store = Path(settings.home), Path(settings.store)
    state = home / ".mainspring" if is_shared else store.parent
    worktrees = state / "workflow-worktrees"
    return project_workflows.ProjectPlaces(Path(settings.folder), home, worktrees, STEP_PORTS)


@asynccontextmanager
async def open_workflows(
    agent: AnyAgent, **arguments: Unpack[project_workflows.WorkflowArguments]
) -> AsyncGenerator[project_workflows.ProjectWorkflows, None]:
    """The workflows of the current folder, until the block ends. Their nodes have at most the
    tools, skills and subagents of `agent`."""
    store = arguments.get("store")
    places = project_places(read_settings(store=store))
    async with open_runtime(store=store) as runtime:
        if (model := arguments.get("model")) is not None:
            runtime.models.put(agent.model, model)
        yield await project_workflows.open_project(runtime, agent, places, **arguments)
