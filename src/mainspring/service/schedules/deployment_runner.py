"""Firing deployments: one session for each fire, however often a worker dies over it.

A fire that is due is written down first, with the id that its run will have. The session is
ordered under that id, so that ordering it again gives the same one; then, in one write, the run
is recorded and the fire is done.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from msgspec import UNSET
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, InvalidInput, MainspringError, NotFound
from mainspring.core.sender import Origin
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.schedules.deployment_references import DeploymentReferences, run_error
from mainspring.service.schedules.deployment_runs import DeploymentRuns
from mainspring.service.schedules.deployment_store import (
    DeploymentStore,
    PlannedRun,
    StoredDeployment,
    manual_runs,
    with_due_runs,
)
from mainspring.service.schedules.deployment_types import (
    TRANSIENT_ERRORS,
    DeploymentRun,
    ErrorPause,
    ManualRun,
    PauseError,
    RunError,
    ScheduledRun,
)
from mainspring.service.schedules.deployments import archive_deployment
from mainspring.service.schedules.session_starter import SessionStarter, SessionStartRequest
from mainspring.service.storage.notifications import Notification

_OVERLAP_RETRY = timedelta(seconds=30)
"""How long a fire that waits for the session before it lets pass until it looks again."""
_BATCH = 200


class DeploymentRunner:
    def __init__(
        self,
        keep: DeploymentStore,
        runs: DeploymentRuns,
        *,
        session_starter: SessionStarter,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._keep = keep
        self._runs = runs
        self._session_starter = session_starter
        self._references = DeploymentReferences(keep.records)
        self._clock = clock
        self._new_id = new_id

    async def fire(self, job: Job) -> None:
        """What a worker does for a job `fire`: all that is due of a deployment."""
        tenant = job.tenant
        try:
            kept = await self._keep.change(
                tenant, job.key, lambda current: with_due_runs(current, now=self._clock())
            )
        except NotFound:
            return
        while kept.queue:
            fire = kept.queue[0]
            if fire.scheduled_at is None or not await self._is_overlapping(tenant, kept):
                kept = await self._run(tenant, kept, fire)
            elif _overlap_policy(kept) == "skip":
                kept = await self._drop(tenant, kept, fire)
            else:
                await self._keep.put_job(tenant, kept.id, at=self._clock() + _OVERLAP_RETRY)
                return
        await self._keep.put_next(tenant, kept)

    async def run_now(self, tenant: str, deployment_id: str) -> DeploymentRun:
        """One run, whatever the schedule says and also if it is paused.

        Raises: NotFound; InvalidInput: it is archived, or its agent is.
        """
        kept = await self._keep.get(tenant, deployment_id)
        if kept.deployment.archived_at is not None:
            raise InvalidInput(f"deployment {deployment_id} is archived: it runs no more")
        if not await self._references.has_agent(tenant, kept.deployment.agent.id):
            raise InvalidInput(f"agent {kept.deployment.agent.id} is archived or gone")
        fire = PlannedRun(run_id=self._new_id("drun"))
        run = self._record_run(kept, fire, await self._start_session(tenant, kept, fire))
        telling = await self._keep.outbox.prepare_changes(*_notifications(tenant, run))
        await self._keep.records.write(self._runs.put_change(tenant, run), *telling)
        await self._keep.outbox.enqueue_deliveries(telling)
        return run

    async def sweep(self) -> int:
        """Have fired what is due and has no job, as one that was lost. How many that were. Call
        it now and then."""
        due = await self._keep.repository.due(self._clock(), limit=_BATCH)
        for record, kept in due:
            await self._keep.put_job(record.tenant, kept.id)
        return len(due)

    async def _run(
        self, tenant: str, stored: StoredDeployment, planned_run: PlannedRun
    ) -> StoredDeployment:
        if not await self._references.has_agent(tenant, stored.deployment.agent.id):
            notice = Notification(tenant=tenant, type="deployment.archived", id=stored.id)
            return await self._keep.change(
                tenant,
                stored.id,
                lambda current: archive_deployment(current, self._clock()),
                notifications=[notice],
            )
        run = self._record_run(
            stored,
            planned_run,
            await self._start_session(tenant, stored, planned_run),
        )
        notices = _notifications(tenant, run)
        if _should_pause(planned_run, run):
            notices.append(Notification(tenant=tenant, type="deployment.paused", id=stored.id))
        try:
            return await self._keep.change(
                tenant,
                stored.id,
                lambda current: _after_run(current, planned_run, run),
                notifications=notices,
                also=[self._runs.put_change(tenant, run)],
            )
        except AlreadyExists:  # another worker was first: its record stands
            return await self._drop(tenant, stored, planned_run)

    async def _drop(
        self, tenant: str, stored: StoredDeployment, run: PlannedRun
    ) -> StoredDeployment:
        return await self._keep.change(
            tenant, stored.id, lambda current: _without_run(current, run)
        )

    async def _is_overlapping(self, tenant: str, stored: StoredDeployment) -> bool:
        last = stored.last_session_id
        if last is None or _overlap_policy(stored) == "allow":
            return False
        return await self._session_starter.is_busy(tenant, last)

    async def _start_session(
        self, tenant: str, stored: StoredDeployment, run: PlannedRun
    ) -> str | RunError:
        """The id of the session, or why there is none."""
        deployment = stored.deployment
        if problem := await self._references.problem(tenant, deployment):
            return problem
        order = SessionStartRequest(
            key=run.run_id,
            agent=deployment.agent,
            environment_id=deployment.environment_id,
            title=deployment.name,
            metadata=deployment.metadata,
            vault_ids=deployment.vault_ids,
            resources=await self._keep.resources(tenant, stored),
            list_cost_budget=None if deployment.budget is UNSET else deployment.budget,
            initial_events=deployment.initial_events,
            deployment_id=deployment.id,
            origin=Origin(type="schedule", id=deployment.id),
        )
        try:
            return await self._session_starter.start(tenant, order)
        except MainspringError as error:
            return run_error(error)

    def _record_run(
        self, stored: StoredDeployment, run: PlannedRun, outcome: str | RunError
    ) -> DeploymentRun:
        at = run.scheduled_at
        return DeploymentRun(
            id=run.run_id,
            agent=stored.deployment.agent,
            created_at=self._clock(),
            deployment_id=stored.id,
            trigger_context=ManualRun() if at is None else ScheduledRun(scheduled_at=at),
            error=outcome if isinstance(outcome, RunError) else None,
            session_id=None if isinstance(outcome, RunError) else outcome,
        )


def _overlap_policy(stored: StoredDeployment) -> str:
    schedule = stored.deployment.schedule
    return "allow" if schedule is None else schedule.cron.policy.overlap


def _without_run(stored: StoredDeployment, run: PlannedRun) -> StoredDeployment:
    queue = tuple(item for item in stored.queue if item.run_id != run.run_id)
    return replace(stored, queue=queue)


def _should_pause(planned_run: PlannedRun, run: DeploymentRun) -> bool:
    """A person who runs it sees what is wrong; a schedule must not go on against a wall."""
    return (
        planned_run.scheduled_at is not None
        and run.error is not None
        and run.error.type not in TRANSIENT_ERRORS
    )


def _after_run(
    stored: StoredDeployment, planned_run: PlannedRun, run: DeploymentRun
) -> StoredDeployment:
    stored = _without_run(stored, planned_run)
    deployment, schedule = stored.deployment, stored.deployment.schedule
    if planned_run.scheduled_at is None:
        return stored
    if run.error is None:
        if schedule is not None:
            schedule = replace(schedule, last_run_at=run.created_at)
        deployment = replace(deployment, schedule=schedule)
        return replace(stored, deployment=deployment, last_session_id=run.session_id)
    if not _should_pause(planned_run, run) or deployment.archived_at is not None:
        return stored
    reason = ErrorPause(error=PauseError(type=run.error.type))
    deployment = replace(
        deployment, status="paused", paused_reason=reason, updated_at=run.created_at
    )
    return replace(stored, deployment=deployment, queue=manual_runs(stored.queue))


def _notifications(tenant: str, run: DeploymentRun) -> list[Notification]:
    if run.error is not None:
        return [Notification(tenant=tenant, type="deployment_run.failed", id=run.id)]
    return [
        Notification(tenant=tenant, type="deployment_run.started", id=run.id),
        Notification(tenant=tenant, type="deployment_run.succeeded", id=run.id),
    ]
