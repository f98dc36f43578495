"""The `schedule` of the agent.yaml in the folder that `mainspring serve` is started in.

It becomes a deployment of the service, so that there is one scheduler; the deployment follows the
file each time the service starts. A schedule starts sessions by itself, so it needs the same trust
as the folder's permissions: what was vouched for is what is used, from one reading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import msgspec
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder import manifest
from mainspring.service.resources.agent_tools import BUILTINS
from mainspring.service.resources.agents import CreateAgent, UpdateAgent
from mainspring.service.resources.environments import CreateEnvironment
from mainspring.service.schedules.deployment_types import (
    CreateDeployment,
    Deployment,
    ScheduleParams,
    UpdateDeployment,
)
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery
from mainspring.wiring.agent_selection import AgentOptions, open_agent
from mainspring.wiring.project_trust import is_trusted, read_project_files, unscheduled_reason
from mainspring.wiring.service_parts import Service

TENANT = "default"
_FOLDER_KEY = "mainspring_folder"
"""The key of metadata that says whose deployment it is."""
_MESSAGE = "It is time for your scheduled run."
_PAGE = 100
_MAX_NAME = 200
_UNTRUSTED_MESSAGE = "it starts sessions by itself: read it, then `mainspring policy trust`"


class HasMetadata(Protocol):
    @property
    def metadata(self) -> dict[str, str]: ...


T = TypeVar("T", bound=HasMetadata)
PageOf: TypeAlias = Callable[[ListQuery], Awaitable[Page[T]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStatus:
    """What became of the schedule: a deployment, or why there is none."""

    deployment: Deployment | None = None
    problem: str | None = None

    @property
    def next_at(self) -> datetime | None:
        schedule = None if self.deployment is None else self.deployment.schedule
        return next(iter(schedule.upcoming_runs_at), None) if schedule is not None else None


async def sync_schedule(service: Service, settings: Settings) -> ScheduleStatus | None:
    """Make, change or archive the deployment as the folder's file says; `None`: it says nothing."""
    folder = await to_thread.run_sync(Path(settings.folder).resolve)
    try:
        schedule = await to_thread.run_sync(_read_schedule, folder, Path(settings.home))
        known = await _find_deployment(service, folder)
        if schedule is None:
            await _archive_deployment(service, known)
            return None
        opened = await to_thread.run_sync(open_agent, settings, AgentOptions())
        return ScheduleStatus(
            deployment=await _save_deployment(service, folder, opened.agent, schedule, known)
        )
    except (InvalidInput, msgspec.ValidationError) as error:
        await _archive_deployment(service, await _find_deployment(service, folder))
        return ScheduleStatus(problem=f"{folder / manifest.FILE}: schedule: {error}")


def _read_schedule(folder: Path, home: Path) -> manifest.ManifestSchedule | None:
    """Raises: InvalidInput: nobody has vouched for it, or its sessions would lack restrictions that
    the folder has."""
    project = read_project_files(folder, home=home)
    content = project.settings.get(manifest.FILE)
    said = {} if content is None else msgspec.json.decode(content, type=dict[str, object])
    if "schedule" not in said:
        return None
    if not is_trusted(folder, project, home=home):
        raise InvalidInput(_UNTRUSTED_MESSAGE)
    if (why := unscheduled_reason(project)) is not None:
        raise InvalidInput(why)
    return msgspec.convert(said["schedule"], manifest.ManifestSchedule)


async def _find_deployment(service: Service, folder: Path) -> Deployment | None:
    return await _find_by_folder(partial(service.schedules.deployments.page, TENANT), folder)


async def _find_by_folder(page_of: PageOf[T], folder: Path) -> T | None:
    """The one that was made for the folder."""
    page: str | None = None
    while True:
        found = await page_of(ListQuery(limit=_PAGE, page=page))
        for item in found.data:
            if item.metadata.get(_FOLDER_KEY) == str(folder):
                return item
        page = found.next_page
        if page is None:
            return None


async def _archive_deployment(service: Service, known: Deployment | None) -> None:
    if known is not None:
        await service.schedules.deployments.archive(TENANT, known.id)
        await service.resources.agents.archive(TENANT, known.agent.id)


async def _environment_id(service: Service, folder: Path) -> str:
    """The id of the environment that the folder's sessions work in."""
    environments = service.resources.environments
    known = await _find_by_folder(partial(environments.page, TENANT), folder)
    if known is not None:
        return known.id
    name = f"schedule of {folder}"[-_MAX_NAME:]
    asked = CreateEnvironment(name=name, metadata={_FOLDER_KEY: str(folder)})
    return (await environments.create(TENANT, asked)).id


async def _save_deployment(
    service: Service,
    folder: Path,
    agent: Agent,
    manifest_schedule: manifest.ManifestSchedule,
    known: Deployment | None,
) -> Deployment:
    """Raises: InvalidInput, msgspec.ValidationError: the service does not take it."""
    described = _agent_fields(agent)
    asked = {
        "type": "cron",
        "expression": manifest_schedule.cron,
        "timezone": manifest_schedule.timezone,
    }
    text = manifest_schedule.message or _MESSAGE
    fields: dict[str, object] = {
        "name": agent.name,
        "initial_events": [{"type": "user.message", "content": [{"type": "text", "text": text}]}],
        "budget": _budget(agent.limits.max_cost_usd),
    }
    agents, deployments = service.resources.agents, service.schedules.deployments
    if known is None:
        made = await agents.create(TENANT, msgspec.convert(described, CreateAgent))
        place = await _environment_id(service, folder)
        more = {"agent": made.id, "environment_id": place, "schedule": asked}
        whole = {**fields, **more, "metadata": {_FOLDER_KEY: str(folder)}}
        return await deployments.create(TENANT, msgspec.convert(whole, CreateDeployment))
    await agents.update(TENANT, known.agent.id, msgspec.convert(described, UpdateAgent))
    if not _is_same_schedule(known, msgspec.convert(asked, ScheduleParams)):
        fields["schedule"] = asked  # one that is not changed goes on where it was
    changed = {**fields, "agent": known.agent.id}
    return await deployments.update(TENANT, known.id, msgspec.convert(changed, UpdateDeployment))


def _is_same_schedule(known: Deployment, asked: ScheduleParams) -> bool:
    was = known.schedule
    return was is not None and (was.expression, was.timezone) == (asked.expression, asked.timezone)


def _agent_fields(agent: Agent) -> dict[str, object]:
    names = BUILTINS if "*" in agent.built_ins else agent.built_ins
    configs = [{"name": name, "enabled": name in names} for name in BUILTINS]
    return {
        "name": agent.name,
        "model": agent.model,
        "description": agent.description or None,
        "system": agent.instructions or None,
        "tools": [{"type": "agent_toolset_20260401", "configs": configs}],
    }


def _budget(max_cost_usd: Decimal | None) -> dict[str, object] | None:
    """In whole cents, as the API has it."""
    if max_cost_usd is None:
        return None
    cents = max(Decimal(1), (max_cost_usd * 100).quantize(Decimal(1), rounding=ROUND_DOWN))
    return {"type": "limit", "max_list_cost": {"amount": str(cents), "currency": "USD"}}
