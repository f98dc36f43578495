"""Prompts that an agent of a folder scheduled with the cron tools: deployments of the service, so
that there is one scheduler. They keep the agent as it was when they were created."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import UNSET

from mainspring.core import clock
from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.core.ports import ScheduledPrompt, Seal
from mainspring.log.records import Records
from mainspring.runtime.agent import Agent
from mainspring.runtime.settings.project_trust import ProjectFiles, unscheduled_reason
from mainspring.service.jobs.dispatcher import no_enqueue
from mainspring.service.resources.agents import Agents, CreateAgent
from mainspring.service.resources.environments import Environments
from mainspring.service.schedules.deployment_store import DeploymentStore
from mainspring.service.schedules.deployment_types import CreateDeployment, Deployment
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.schedules.local_schedule import (
    TENANT,
    agent_fields,
    budget_in_cents,
    find_by_metadata,
    folder_environment,
)
from mainspring.service.sessions.events.event_content import SendMessage
from mainspring.service.storage.repository import ListQuery, all_pages
from mainspring.service.webhooks.webhook_endpoints import Webhooks
from mainspring.service.webhooks.webhook_outbox import Outbox

MAX_SCHEDULES = 20  # of one agent
_FOLDER_KEY = "mainspring_cron_folder"
_CALL_KEY = "mainspring_cron_call"
_PAGE = 100  # deployments read at once


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSchedules:
    """The scheduled prompts of one folder."""

    deployments: Deployments
    agents: Agents
    environments: Environments
    folder: Path
    agent: Agent
    read_project: Callable[[], ProjectFiles]
    """The folder's settings. Raises: InvalidInput."""

    async def create(self, prompt: ScheduledPrompt, *, key: str) -> ScheduledPrompt:
        """Raises: InvalidInput: it is invalid, there are too many, or restrictions of the folder
        would not apply to the sessions that it starts."""
        if (why := unscheduled_reason(await to_thread.run_sync(self.read_project))) is not None:
            raise InvalidInput(why)
        page_of = partial(self.deployments.page, TENANT)
        if (deployment := await find_by_metadata(page_of, _CALL_KEY, key)) is not None:
            return _prompt(deployment)
        if len(await self._deployments()) >= MAX_SCHEDULES:
            raise InvalidInput(f"at most {MAX_SCHEDULES} scheduled prompts in a folder")
        environment_id = await folder_environment(self.environments, self.folder)
        limit = self.agent.limits.max_cost_usd
        fields: dict[str, object] = {
            "name": f"{self.agent.name}: {' '.join(prompt.prompt.split())}"[:200],
            "environment_id": environment_id,
            "initial_events": [
                {"type": "user.message", "content": [{"type": "text", "text": prompt.prompt}]}
            ],
            "schedule": {"type": "cron", "expression": prompt.cron, "timezone": prompt.timezone},
            "budget": budget_in_cents(min(prompt.budget_usd, limit or prompt.budget_usd)),
            "metadata": {_FOLDER_KEY: str(self.folder), _CALL_KEY: key},
        }
        try:
            agent = await self.agents.create(
                TENANT, msgspec.convert(agent_fields(self.agent), CreateAgent)
            )
            request = msgspec.convert({**fields, "agent": agent.id}, CreateDeployment)
            return _prompt(await self.deployments.create(TENANT, request))
        except msgspec.ValidationError as error:
            raise InvalidInput(str(error)) from error

    async def list(self) -> list[ScheduledPrompt]:
        return list(map(_prompt, await self._deployments()))

    async def _deployments(self) -> Sequence[Deployment]:
        folder, query = str(self.folder), ListQuery(limit=_PAGE)
        deployments = await all_pages(partial(self.deployments.page, TENANT), query)
        return [item for item in deployments if item.metadata.get(_FOLDER_KEY) == folder]

    async def delete(self, schedule_id: str) -> None:
        """Raises: InvalidInput: the folder has no such scheduled prompt."""
        ids = {item.id: item for item in await self._deployments()}
        if schedule_id not in ids:
            raise InvalidInput(f"there is no scheduled prompt {schedule_id!r} of this folder")
        await self.deployments.archive(TENANT, schedule_id)
        await self.agents.archive(TENANT, ids[schedule_id].agent.id)


def _prompt(deployment: Deployment) -> ScheduledPrompt:
    event, schedule, budget = deployment.initial_events[0], deployment.schedule, deployment.budget
    content = event.content if isinstance(event, SendMessage) else ()
    return ScheduledPrompt(
        id=deployment.id,
        cron="" if schedule is None else schedule.expression,
        timezone="" if schedule is None else schedule.timezone,
        prompt="\n".join(block.text for block in content if isinstance(block, TextBlock)),
        budget_usd=Decimal(0) if budget is UNSET else Decimal(budget.max_list_cost.amount) / 100,
        next_at=None if schedule is None else next(iter(schedule.upcoming_runs_at), None),
    )


def open_agent_schedules(
    records: Records,
    seal: Seal,
    agent: Agent,
    folder: Path,
    read_project: Callable[[], ProjectFiles],
) -> AgentSchedules:
    """Over the store of the folder's sessions, without a service; `serve` runs them."""
    outbox = Outbox(records, Webhooks(records, seal=seal), put=no_enqueue)
    store = DeploymentStore(records, outbox=outbox, seal=seal, put=no_enqueue, clock=clock.now)
    agents = Agents(records)
    return AgentSchedules(
        deployments=Deployments(store, pin_agent=agents.reference),
        agents=agents,
        environments=Environments(records),
        folder=folder,
        agent=agent,
        read_project=read_project,
    )
