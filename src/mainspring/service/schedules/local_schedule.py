"""The `schedule` in the agent.yaml of the folder in which `mainspring serve` starts.

It becomes a deployment of the service, so that there is one scheduler; each start of the service
updates the deployment from the file. A schedule starts sessions automatically, so it needs the same
trust as the folder's permissions: exactly the settings that were checked are used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from anyio import to_thread

from mainspring.core.errors import InvalidInput
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder import manifest
from mainspring.runtime.settings.project_trust import ProjectFiles, is_trusted, unscheduled_reason
from mainspring.service.resources.agent_tools import BUILTINS
from mainspring.service.resources.agents import Agents, CreateAgent, UpdateAgent
from mainspring.service.resources.environments import CreateEnvironment, Environments
from mainspring.service.schedules.deployment_types import (
    CreateDeployment,
    Deployment,
    UpdateDeployment,
)
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery, all_pages

TENANT = "default"
_FOLDER_KEY = "mainspring_folder"
"""The metadata key that names the folder of a deployment."""
_MESSAGE = "It is time for your scheduled run."
_PAGE = 100  # read at once
_MAX_NAME = 200  # characters
_UNTRUSTED_MESSAGE = "it starts sessions automatically; read it, then run `mainspring policy trust`"


class HasMetadata(Protocol):
    @property
    def metadata(self) -> dict[str, str]: ...


T = TypeVar("T", bound=HasMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStatus:
    """The deployment of the schedule, or why there is none."""

    deployment: Deployment | None = None
    problem: str | None = None

    @property
    def next_at(self) -> datetime | None:
        schedule = None if self.deployment is None else self.deployment.schedule
        return next(iter(schedule.upcoming_runs_at), None) if schedule is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSchedule:
    """Keeps the deployment of one folder up to date."""

    deployments: Deployments
    agents: Agents
    environments: Environments
    folder: Path
    home: Path
    read_project: Callable[[], ProjectFiles]
    """The folder's settings. Raises: InvalidInput."""
    open_agent: Callable[[], Agent]
    """The folder's agent. Raises: InvalidInput."""

    async def sync(self) -> ScheduleStatus | None:
        """Create, update or archive the deployment to match the file; `None`: it has no
        schedule."""
        try:
            schedule = await to_thread.run_sync(self._read_schedule)
            deployment = await self._find_deployment()
            if schedule is None:
                await self._archive(deployment)
                return None
            agent = await to_thread.run_sync(self.open_agent)
            return ScheduleStatus(deployment=await self._save(agent, schedule, deployment))
        except (InvalidInput, msgspec.ValidationError) as error:
            await self._archive(await self._find_deployment())
            return ScheduleStatus(problem=f"{self.folder / manifest.FILE}: schedule: {error}")

    def _read_schedule(self) -> manifest.ManifestSchedule | None:
        """Raises: InvalidInput: the folder is not trusted, or scheduled sessions would lack
        restrictions that it has."""
        project = self.read_project()
        content = project.settings.get(manifest.FILE)
        fields = {} if content is None else msgspec.json.decode(content, type=dict[str, object])
        if "schedule" not in fields:
            return None
        if not is_trusted(self.folder, project, home=self.home):
            raise InvalidInput(_UNTRUSTED_MESSAGE)
        if (why := unscheduled_reason(project)) is not None:
            raise InvalidInput(why)
        return msgspec.convert(fields["schedule"], manifest.ManifestSchedule)

    async def _find_deployment(self) -> Deployment | None:
        page_of = partial(self.deployments.page, TENANT)
        return await find_by_metadata(page_of, _FOLDER_KEY, str(self.folder))

    async def _archive(self, deployment: Deployment | None) -> None:
        if deployment is not None:
            await self.deployments.archive(TENANT, deployment.id)
            await self.agents.archive(TENANT, deployment.agent.id)

    async def _save(
        self, agent: Agent, schedule: manifest.ManifestSchedule, deployment: Deployment | None
    ) -> Deployment:
        """Raises: InvalidInput, msgspec.ValidationError: the service refuses it."""
        definition = agent_fields(agent)
        cron = {"type": "cron", "expression": schedule.cron, "timezone": schedule.timezone}
        content = [{"type": "text", "text": schedule.message or _MESSAGE}]
        fields: dict[str, object] = {
            "name": agent.name,
            "initial_events": [{"type": "user.message", "content": content}],
            "budget": budget_in_cents(agent.limits.max_cost_usd),
        }
        if deployment is None:
            created = await self.agents.create(TENANT, msgspec.convert(definition, CreateAgent))
            fields |= {
                "agent": created.id,
                "environment_id": await folder_environment(self.environments, self.folder),
                "schedule": cron,
                "metadata": {_FOLDER_KEY: str(self.folder)},
            }
            return await self.deployments.create(TENANT, msgspec.convert(fields, CreateDeployment))
        agent_id = deployment.agent.id
        await self.agents.update(TENANT, agent_id, msgspec.convert(definition, UpdateAgent))
        old = deployment.schedule
        if old is None or (old.expression, old.timezone) != (schedule.cron, schedule.timezone):
            fields["schedule"] = cron  # an unchanged one keeps its next run
        request = msgspec.convert({**fields, "agent": agent_id}, UpdateDeployment)
        return await self.deployments.update(TENANT, deployment.id, request)


async def find_by_metadata(
    page_of: Callable[[ListQuery], Awaitable[Page[T]]], key: str, value: str
) -> T | None:
    """The first item with this value of its metadata."""
    items = await all_pages(page_of, ListQuery(limit=_PAGE))
    return next((item for item in items if item.metadata.get(key) == value), None)


async def folder_environment(environments: Environments, folder: Path) -> str:
    """The id of the environment of the folder's scheduled sessions."""
    page_of = partial(environments.page, TENANT)
    environment = await find_by_metadata(page_of, _FOLDER_KEY, str(folder))
    if environment is not None:
        return environment.id
    name = f"schedule of {folder}"[-_MAX_NAME:]
    request = CreateEnvironment(name=name, metadata={_FOLDER_KEY: str(folder)})
    return (await environments.create(TENANT, request)).id


def agent_fields(agent: Agent) -> dict[str, object]:
    names = BUILTINS if "*" in agent.built_ins else agent.built_ins
    configs = [{"name": name, "enabled": name in names} for name in BUILTINS]
    return {
        "name": agent.name,
        "model": agent.model,
        "description": agent.description or None,
        "system": agent.instructions or None,
        "tools": [{"type": "agent_toolset_20260401", "configs": configs}],
    }


def budget_in_cents(max_cost_usd: Decimal | None) -> dict[str, object] | None:
    """A budget in whole cents, as the API requires."""
    if max_cost_usd is None:
        return None
    cents = max(Decimal(1), (max_cost_usd * 100).quantize(Decimal(1), rounding=ROUND_DOWN))
    return {"type": "limit", "max_list_cost": {"amount": str(cents), "currency": "USD"}}
