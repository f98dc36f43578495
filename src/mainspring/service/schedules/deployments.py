"""Deployments: an agent with all that it needs to run by itself, and when it does. Running them is
`firing.py`'s."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.log.records import RecordQuery
from mainspring.service.resources.agent_multiagent import AgentReference
from mainspring.service.schedules.cron import check_cron, upcoming_fire_times
from mainspring.service.schedules.deployment_references import DeploymentReferences
from mainspring.service.schedules.deployment_store import (
    DEPLOYMENT_KIND,
    DeploymentStore,
    PlannedRun,
    ResourceTokens,
    StoredDeployment,
    manual_runs,
    split_tokens,
)
from mainspring.service.schedules.deployment_types import (
    CreateDeployment,
    Deployment,
    DeploymentAgentParams,
    DeploymentSchedule,
    ManualPause,
    ScheduleParams,
    UpdateDeployment,
    check_initial_events,
)
from mainspring.service.storage.metadata import patch_metadata, value_or_current
from mainspring.service.storage.notifications import Notification
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery
from mainspring.service.webhooks.webhook_events import EventType

MAX_DEPLOYMENTS = 1000
"""Of a tenant: each may fire every minute."""
_UPCOMING_SHOWN = 5
_BATCH = 200

PinAgent: TypeAlias = Callable[[str, str, int | None], Awaitable[AgentReference]]
"""Tenant, agent and version, or the newest: the version that there is.

Raises: NotFound; InvalidInput: the agent is archived."""


class Deployments:
    def __init__(
        self,
        keep: DeploymentStore,
        *,
        pin_agent: PinAgent,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._keep = keep
        self._pin_agent = pin_agent
        self._references = DeploymentReferences(keep.records)
        self._clock = clock
        self._new_id = new_id

    async def create(self, tenant: str, request: CreateDeployment) -> Deployment:
        """Raises: NotFound, InvalidInput."""
        living = RecordQuery(kind=DEPLOYMENT_KIND, tenant=tenant, is_archived=False)
        if await self._keep.records.count(living) >= MAX_DEPLOYMENTS:
            raise InvalidInput(f"at most {MAX_DEPLOYMENTS} deployments; archive one first")
        now = self._clock()
        resources, tokens = split_tokens(request.resources)
        made = Deployment(
            id=self._new_id("depl"),
            agent=await self._resolve_agent(tenant, request.agent),
            environment_id=request.environment_id,
            initial_events=check_initial_events(request.initial_events),
            name=request.name,
            description=request.description or None,
            metadata=request.metadata,
            resources=resources,
            vault_ids=request.vault_ids,
            schedule=_new_schedule(request.schedule, now),
            budget=request.budget or UNSET,
            created_at=now,
            updated_at=now,
        )
        await self._references.check(tenant, made)
        notice = Notification(tenant=tenant, type="deployment.created", id=made.id)
        return self._with_upcoming(await self._keep.add(tenant, made, tokens, notification=notice))

    async def get(self, tenant: str, deployment_id: str) -> Deployment:
        return self._with_upcoming(await self._keep.get(tenant, deployment_id))

    async def page(self, tenant: str, list_query: ListQuery) -> Page[Deployment]:
        found = await self._keep.repository.page(tenant, list_query)
        return Page(
            data=[self._with_upcoming(item) for item in found.data], next_page=found.next_page
        )

    async def update(
        self, tenant: str, deployment_id: str, request: UpdateDeployment
    ) -> Deployment:
        """Raises: NotFound; InvalidInput: also if it is archived."""
        agent = (
            UNSET if request.agent is UNSET else await self._resolve_agent(tenant, request.agent)
        )
        if request.initial_events is not UNSET:
            check_initial_events(request.initial_events)
        current = await self._keep.get(tenant, deployment_id)
        await self._references.check(
            tenant, _apply_update(current.deployment, request, agent, self._clock())
        )

        def change(stored: StoredDeployment) -> StoredDeployment:
            now = self._clock()
            made = replace(
                stored,
                deployment=_apply_update(stored.deployment, request, agent, now),
            )
            if request.schedule is UNSET:
                return made
            return replace(made, decided_upto=now, queue=manual_runs(stored.queue))

        tokens = None if request.resources is UNSET else split_tokens(request.resources or ())[1]
        return await self._change(
            tenant, deployment_id, change, "deployment.updated", resource_tokens=tokens
        )

    async def pause(self, tenant: str, deployment_id: str) -> Deployment:
        """Nothing fires by itself; sessions that run go on."""

        def change(stored: StoredDeployment) -> StoredDeployment:
            made = replace(
                _require_not_archived(stored.deployment),
                status="paused",
                paused_reason=ManualPause(),
                updated_at=self._clock(),
            )
            return replace(stored, deployment=made, queue=manual_runs(stored.queue))

        return await self._change(tenant, deployment_id, change, "deployment.paused")

    async def unpause(self, tenant: str, deployment_id: str) -> Deployment:
        """From the next time on: what was missed meanwhile stays so."""
        current = await self._keep.get(tenant, deployment_id)
        if _require_not_archived(current.deployment).status == "active":
            return self._with_upcoming(current)  # what is due just now is not missed

        def change(stored: StoredDeployment) -> StoredDeployment:
            now = self._clock()
            made = replace(
                _require_not_archived(stored.deployment),
                status="active",
                paused_reason=None,
                updated_at=now,
            )
            return replace(stored, deployment=made, decided_upto=now)

        return await self._change(tenant, deployment_id, change, "deployment.unpaused")

    async def archive(self, tenant: str, deployment_id: str) -> Deployment:
        """For good."""
        current = await self._keep.get(tenant, deployment_id)
        if current.deployment.archived_at is not None:
            return self._with_upcoming(current)
        return await self._change(
            tenant,
            deployment_id,
            lambda kept: archive_deployment(kept, self._clock()),
            "deployment.archived",
        )

    async def archive_for_agent(self, tenant: str, agent_id: str) -> None:
        """An agent that is archived takes its deployments with it."""
        wanted = RecordQuery(
            kind=DEPLOYMENT_KIND, tenant=tenant, parent=agent_id, is_archived=False, limit=_BATCH
        )
        while found := await self._keep.records.list(wanted):
            for record in found:
                await self.archive(tenant, record.id)

    async def request_run(self, tenant: str, deployment_id: str) -> str:
        """Have a worker run it once, soon; the id that the run will have."""
        run_id = self._new_id("drun")

        def change(stored: StoredDeployment) -> StoredDeployment:
            _require_not_archived(stored.deployment)
            return replace(stored, queue=(*stored.queue, PlannedRun(run_id=run_id)))

        kept = await self._keep.change(tenant, deployment_id, change)
        await self._keep.put_next(tenant, kept)
        return run_id

    async def _change(
        self,
        tenant: str,
        deployment_id: str,
        change: Callable[[StoredDeployment], StoredDeployment],
        type_: EventType,
        *,
        resource_tokens: ResourceTokens | None = None,
    ) -> Deployment:
        notice = Notification(tenant=tenant, type=type_, id=deployment_id)
        made = await self._keep.change(
            tenant, deployment_id, change, notifications=[notice], resource_tokens=resource_tokens
        )
        await self._keep.put_next(tenant, made)
        return self._with_upcoming(made)

    async def _resolve_agent(
        self, tenant: str, params: str | DeploymentAgentParams
    ) -> AgentReference:
        if isinstance(params, str):
            return await self._pin_agent(tenant, params, None)
        return await self._pin_agent(tenant, params.id, params.version)

    def _with_upcoming(self, stored: StoredDeployment) -> Deployment:
        deployment, schedule = stored.deployment, stored.deployment.schedule
        if schedule is None or deployment.archived_at is not None:
            return deployment
        ahead = upcoming_fire_times(schedule.cron, self._clock(), _UPCOMING_SHOWN)
        return replace(deployment, schedule=replace(schedule, upcoming_runs_at=tuple(ahead)))


def archive_deployment(stored: StoredDeployment, now: datetime) -> StoredDeployment:
    """An archived one is told as active: it says so itself that it is archived."""
    made = replace(
        stored.deployment,
        archived_at=now,
        updated_at=now,
        status="active",
        paused_reason=None,
    )
    return replace(stored, deployment=made, queue=())


def _require_not_archived(deployment: Deployment) -> Deployment:
    if deployment.archived_at is not None:
        raise InvalidInput(f"deployment {deployment.id} is archived: it stays as it is")
    return deployment


def _apply_update(
    current: Deployment, request: UpdateDeployment, agent: AgentReference | UnsetType, now: datetime
) -> Deployment:
    _require_not_archived(current)
    budget = current.budget if request.budget is UNSET else request.budget or UNSET
    return replace(
        current,
        agent=value_or_current(agent, current.agent),
        environment_id=value_or_current(request.environment_id, current.environment_id),
        initial_events=value_or_current(request.initial_events, current.initial_events),
        name=value_or_current(request.name, current.name),
        description=value_or_current(request.description, current.description) or None,
        metadata=patch_metadata(current.metadata, request.metadata),
        resources=(
            current.resources
            if request.resources is UNSET
            else split_tokens(request.resources or ())[0]
        ),
        vault_ids=value_or_current(request.vault_ids, current.vault_ids) or (),
        schedule=current.schedule
        if request.schedule is UNSET
        else _new_schedule(request.schedule, now, current),
        budget=budget,
        updated_at=now,
    )


def _new_schedule(
    params: ScheduleParams | None, now: datetime, current: Deployment | None = None
) -> DeploymentSchedule | None:
    """Raises: InvalidInput."""
    if params is None:
        return None
    before = current.schedule if current is not None else None
    made = DeploymentSchedule(
        expression=params.expression,
        timezone=params.timezone,
        policy=params.policy,
        last_run_at=None if before is None else before.last_run_at,
    )
    check_cron(made.cron, now=now)
    return made
