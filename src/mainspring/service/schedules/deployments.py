"""Deployments: an agent with everything it needs to run unattended, and its schedule."""

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
from mainspring.service.resources.agent_multiagent import AgentParams, AgentReference
from mainspring.service.schedules.cron import check_cron, upcoming_fire_times
from mainspring.service.schedules.deployment_store import (
    DEPLOYMENT_KIND,
    DeploymentReferences,
    DeploymentStore,
    PlannedRun,
    ResourceTokens,
    StoredDeployment,
    manual_runs,
    split_tokens,
)
from mainspring.service.schedules.deployment_types import (
    Action,
    CreateDeployment,
    Deployment,
    DeploymentSchedule,
    ManualPause,
    ScheduleParams,
    UpdateDeployment,
    check_initial_events,
)
from mainspring.service.storage.metadata import apply_patch, copy_fields, patch_metadata
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery, Notification
from mainspring.service.webhooks.webhook_events import EventType

MAX_DEPLOYMENTS = 1000
"""The limit per tenant: each may fire every minute."""
_UPCOMING_SHOWN = 5  # times
_BATCH = 200  # deployments read at once

PinAgent: TypeAlias = Callable[[str, str, int | None], Awaitable[AgentReference]]
"""Pins an agent: tenant, agent and version (`None`: the newest). Raises: NotFound; InvalidInput:
the agent is archived."""


CheckAction: TypeAlias = Callable[[str, Action], Awaitable[object]]
"""Checks an action of a tenant. Raises: InvalidInput: it cannot be run here."""


async def pin_agent(pin: PinAgent, tenant: str, params: str | AgentParams) -> AgentReference:
    if isinstance(params, str):
        return await pin(tenant, params, None)
    return await pin(tenant, params.id, params.version)


class Deployments:
    def __init__(
        self,
        store: DeploymentStore,
        *,
        pin_agent: PinAgent,
        check_action: CheckAction | None = None,
        clock: Clock = clocks.now,
    ) -> None:
        self._store = store
        self._pin_agent = pin_agent
        self._check_action = check_action
        self._references = DeploymentReferences(store.records)
        self._clock = clock

    async def create(self, tenant: str, request: CreateDeployment) -> Deployment:
        """Raises: NotFound, InvalidInput."""
        active = RecordQuery(kind=DEPLOYMENT_KIND, tenant=tenant, is_archived=False)
        if await self._store.records.count(active) >= MAX_DEPLOYMENTS:
            raise InvalidInput(f"at most {MAX_DEPLOYMENTS} deployments; archive one first")
        now = self._clock()
        resources, tokens = split_tokens(request.resources)
        check_initial_events(request.initial_events)
        if not isinstance(request.action, UnsetType) and self._check_action is not None:
            await self._check_action(tenant, request.action)
        deployment = copy_fields(
            Deployment,
            request,
            id=ids.new_id("depl"),
            agent=await pin_agent(self._pin_agent, tenant, request.agent),
            description=request.description or None,
            resources=resources,
            schedule=_new_schedule(request.schedule, now),
            budget=request.budget or UNSET,
            created_at=now,
            updated_at=now,
        )
        await self._references.check(tenant, deployment)
        notice = Notification(tenant=tenant, type="deployment.created", id=deployment.id)
        stored_deployment = await self._store.add(tenant, deployment, tokens, notification=notice)
        return self._with_upcoming(stored_deployment)

    async def get(self, tenant: str, deployment_id: str) -> Deployment:
        return self._with_upcoming(await self._store.get(tenant, deployment_id))

    async def page(self, tenant: str, query: ListQuery) -> Page[Deployment]:
        return (await self._store.repository.page(tenant, query)).map(self._with_upcoming)

    async def update(
        self, tenant: str, deployment_id: str, request: UpdateDeployment
    ) -> Deployment:
        """Raises: NotFound; InvalidInput: also if it is archived."""
        agent = request.agent
        if agent is not UNSET:
            agent = await pin_agent(self._pin_agent, tenant, agent)
        if request.initial_events is not UNSET:
            check_initial_events(request.initial_events)
        current = await self._store.get(tenant, deployment_id)
        await self._references.check(
            tenant, _apply_update(current.deployment, request, agent, self._clock())
        )

        def change(stored: StoredDeployment) -> StoredDeployment:
            now = self._clock()
            updated = _apply_update(stored.deployment, request, agent, now)
            if request.schedule is UNSET:
                return replace(stored, deployment=updated)
            queue = manual_runs(stored.queue)
            return replace(stored, deployment=updated, decided_upto=now, queue=queue)

        tokens = None if request.resources is UNSET else split_tokens(request.resources or ())[1]
        return await self._change(
            tenant, deployment_id, change, "deployment.updated", resource_tokens=tokens
        )

    async def pause(self, tenant: str, deployment_id: str) -> Deployment:
        """Pause a deployment: its schedule starts no more runs; running sessions continue."""

        def change(stored: StoredDeployment) -> StoredDeployment:
            paused = replace(
                _require_not_archived(stored.deployment),
                status="paused",
                paused_reason=ManualPause(),
                updated_at=self._clock(),
            )
            return replace(stored, deployment=paused, queue=manual_runs(stored.queue))

        return await self._change(tenant, deployment_id, change, "deployment.paused")

    async def unpause(self, tenant: str, deployment_id: str) -> Deployment:
        """Resume a deployment; runs that were missed meanwhile are not made up for."""
        current = await self._store.get(tenant, deployment_id)
        if _require_not_archived(current.deployment).status == "active":
            return self._with_upcoming(current)  # a run that is due now must not be skipped

        def change(stored: StoredDeployment) -> StoredDeployment:
            now = self._clock()
            deployment = _require_not_archived(stored.deployment)
            active = replace(deployment, status="active", paused_reason=None, updated_at=now)
            return replace(stored, deployment=active, decided_upto=now)

        return await self._change(tenant, deployment_id, change, "deployment.unpaused")

    async def archive(self, tenant: str, deployment_id: str) -> Deployment:
        """Archive a deployment permanently."""
        current = await self._store.get(tenant, deployment_id)
        if current.deployment.archived_at is not None:
            return self._with_upcoming(current)
        return await self._change(
            tenant,
            deployment_id,
            lambda stored: archive_deployment(stored, self._clock()),
            "deployment.archived",
        )

    async def archive_for_agent(self, tenant: str, agent_id: str) -> None:
        """Archiving an agent archives its deployments."""
        query = RecordQuery(
            kind=DEPLOYMENT_KIND, tenant=tenant, parent=agent_id, is_archived=False, limit=_BATCH
        )
        while rows := await self._store.records.list(query):
            for row in rows:
                await self.archive(tenant, row.id)

    async def request_run(self, tenant: str, deployment_id: str) -> str:
        """Have a worker run it once, soon; returns the id of the run."""
        run_id = ids.new_id("drun")

        def change(stored: StoredDeployment) -> StoredDeployment:
            _require_not_archived(stored.deployment)
            return replace(stored, queue=(*stored.queue, PlannedRun(run_id=run_id)))

        await self._store.put_next(tenant, await self._store.change(tenant, deployment_id, change))
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
        deployment = await self._store.change(
            tenant, deployment_id, change, notifications=[notice], resource_tokens=resource_tokens
        )
        await self._store.put_next(tenant, deployment)
        return self._with_upcoming(deployment)

    def _with_upcoming(self, stored: StoredDeployment) -> Deployment:
        deployment, schedule = stored.deployment, stored.deployment.schedule
        if schedule is None or deployment.archived_at is not None:
            return deployment
        upcoming = upcoming_fire_times(schedule.cron, self._clock(), _UPCOMING_SHOWN)
        return replace(deployment, schedule=replace(schedule, upcoming_runs_at=tuple(upcoming)))


def archive_deployment(stored: StoredDeployment, now: datetime) -> StoredDeployment:
    """Archive it; its status becomes `active`, since `archived_at` shows that it is archived."""
    archived = replace(
        stored.deployment, archived_at=now, updated_at=now, status="active", paused_reason=None
    )
    return replace(stored, deployment=archived, queue=())


def _require_not_archived(deployment: Deployment) -> Deployment:
    if deployment.archived_at is not None:
        raise InvalidInput(f"deployment {deployment.id} is archived and cannot be changed")
    return deployment


def _apply_update(
    current: Deployment, request: UpdateDeployment, agent: AgentReference | UnsetType, now: datetime
) -> Deployment:
    _require_not_archived(current)
    updated = apply_patch(
        current,
        request,
        agent=current.agent if agent is UNSET else agent,
        metadata=patch_metadata(current.metadata, request.metadata),
        resources=current.resources
        if request.resources is UNSET
        else split_tokens(request.resources or ())[0],
        schedule=current.schedule
        if request.schedule is UNSET
        else _new_schedule(request.schedule, now, current),
        budget=current.budget if request.budget is UNSET else request.budget or UNSET,
        updated_at=now,
    )
    return replace(
        updated, description=updated.description or None, vault_ids=updated.vault_ids or ()
    )


def _new_schedule(
    params: ScheduleParams | None, now: datetime, current: Deployment | None = None
) -> DeploymentSchedule | None:
    """Raises: InvalidInput."""
    if params is None:
        return None
    before = current.schedule if current is not None else None
    schedule = copy_fields(
        DeploymentSchedule, params, last_run_at=None if before is None else before.last_run_at
    )
    check_cron(schedule.cron, now=now)
    return schedule
