"""Assembles what runs the workflows of a folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Unpack

from mainspring.capabilities.hooks.static_answers import static_answers
from mainspring.config import Settings, is_postgres, read_settings
from mainspring.runtime.agent import AnyAgent
from mainspring.runtime.workflows import project_workflows as projects
from mainspring.runtime.workflows.step_runner import StepPorts
from mainspring.wiring.runtime_assembly import open_runtime
from mainspring.wiring.worktrees import open_worktrees

STEP_PORTS = StepPorts(open_worktrees=open_worktrees, static_answers=static_answers)


def project_places(settings: Settings) -> projects.ProjectPlaces:
    store = None if is_postgres(settings.store) else settings.store
    return projects.ProjectPlaces(settings.folder, settings.home, store, STEP_PORTS)


@asynccontextmanager
async def open_workflows(
    agent: AnyAgent, **arguments: Unpack[projects.WorkflowArguments]
) -> AsyncGenerator[projects.ProjectWorkflows, None]:
    """The workflows of the current folder, until the block ends; no node has more than `agent`."""
    places = project_places(read_settings(store=arguments.get("store")))
    async with open_runtime(store=arguments.get("store")) as runtime:
        yield await projects.open_project(runtime, agent, places, **arguments)
