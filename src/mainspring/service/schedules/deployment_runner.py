"""Runs deployments: one session for each run, even if a worker dies; and the record of runs. A due
run is first queued, with its id. The session is created under that id, so that creating it again
gives the same session; then, in one write, the run is recorded and dequeued."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Literal, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, InvalidInput, MainspringError, NotFound
from mainspring.core.sender import Origin
from mainspring.log.records import Records
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.schedules.deployment_store import (
    DeploymentReferences,
    DeploymentStore,
    PlannedRun,
    StoredDeployment,
    manual_runs,
    run_error,
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
from mainspring.service.storage.repository import IndexColumns, Notification, Repository

RunRepository: TypeAlias = Repository[DeploymentRun]


def run_repository(records: Records, clock: Clock = clocks.now) -> RunRepository:
    return Repository(records, "deployment_run", DeploymentRun, columns=_index_columns, clock=clock)


def run_labels(
    *, has_error: bool | None = None, trigger_type: Literal["schedule", "manual"] | None = None
) -> tuple[str, ...] | None:
    """The labels of the runs that match; `None`: all do."""
    if has_error is None and trigger_type is None:
        return None
    triggers = (trigger_type,) if trigger_type else ("schedule", "manual")
    ends = (True, False) if has_error is None else (has_error,)
    return tuple(_label(trigger, end) for trigger, end in product(triggers, ends))


def _label(trigger: str, has_error: bool) -> str:
    return f"{trigger}.{'failed' if has_error else 'started'}"


def _index_columns(run: DeploymentRun) -> IndexColumns:
    trigger = "schedule" if isinstance(run.trigger_context, ScheduledRun) else "manual"
    return IndexColumns(parent=run.deployment_id, label=_label(trigger, run.error is not None))


_OVERLAP_RETRY = timedelta(seconds=30)
"""How often a run that waits for the previous session checks again."""
_BATCH = 200  # runs read at once


class DeploymentRunner:
    def __init__(
        self,
        store: DeploymentStore,
        runs: RunRepository,
        *,
        session_starter: SessionStarter,
        clock: Clock = clocks.now,
    ) -> None:
        self._store = store
        self._runs = runs
        self._session_starter = session_starter
        self._references = DeploymentReferences(store.records)
        self._clock = clock

    async def fire(self, job: Job) -> None:
        """Handle a job `fire`: start all runs of a deployment that are due."""
        tenant = job.tenant
        try:
            deployment = await self._store.change(
                tenant, job.key, lambda current: with_due_runs(current, now=self._clock())
            )
        except NotFound:
            return
        while deployment.queue:
            fire = deployment.queue[0]
            if fire.scheduled_at is None or not await self._is_overlapping(tenant, deployment):
                deployment = await self._run(tenant, deployment, fire)
            elif _overlap_policy(deployment) == "skip":
                deployment = await self._drop(tenant, deployment, fire)
            else:
                await self._store.put_job(tenant, deployment.id, at=self._clock() + _OVERLAP_RETRY)
                return
        await self._store.put_next(tenant, deployment)

    async def run_now(self, tenant: str, deployment_id: str) -> DeploymentRun:
        """Run a deployment now, whatever its schedule, even if it is paused.

        Raises: NotFound; InvalidInput: it is archived, or its agent is.
        """
        deployment = await self._store.get(tenant, deployment_id)
        if deployment.deployment.archived_at is not None:
            raise InvalidInput(f"deployment {deployment_id} is archived and cannot run")
        if not await self._references.has_agent(tenant, deployment.deployment.agent.id):
            raise InvalidInput(f"agent {deployment.deployment.agent.id} is archived or deleted")
        fire = PlannedRun(run_id=ids.new_id("drun"))
        run = self._record_run(
            deployment, fire, await self._start_session(tenant, deployment, fire)
        )
        deliveries = await self._store.outbox.prepare_changes(*_notifications(tenant, run))
        await self._store.records.write(self._runs.put_change(tenant, run), *deliveries)
        await self._store.outbox.enqueue_deliveries(deliveries)
        return run

    async def sweep(self) -> int:
        """Enqueue jobs for deployments that are due, in case one was lost; returns how many. Call
        it periodically."""
        due = await self._store.repository.due(self._clock(), limit=_BATCH)
        for record, deployment in due:
            await self._store.put_job(record.tenant, deployment.id)
        return len(due)

    async def _run(
        self, tenant: str, stored: StoredDeployment, planned: PlannedRun
    ) -> StoredDeployment:
        if not await self._references.has_agent(tenant, stored.deployment.agent.id):
            notice = Notification(tenant=tenant, type="deployment.archived", id=stored.id)
            return await self._store.change(
                tenant,
                stored.id,
                lambda current: archive_deployment(current, self._clock()),
                notifications=[notice],
            )
        outcome = await self._start_session(tenant, stored, planned)
        run = self._record_run(stored, planned, outcome)
        notices = _notifications(tenant, run)
        if _should_pause(planned, run):
            notices.append(Notification(tenant=tenant, type="deployment.paused", id=stored.id))
        try:
            return await self._store.change(
                tenant,
                stored.id,
                lambda current: _after_run(current, planned, run),
                notifications=notices,
                also=[self._runs.put_change(tenant, run)],
            )
        except AlreadyExists:  # another worker was faster: its record counts
            return await self._drop(tenant, stored, planned)

    async def _drop(
        self, tenant: str, stored: StoredDeployment, run: PlannedRun
    ) -> StoredDeployment:
        return await self._store.change(
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
        """The id of the session, or the reason why there is none."""
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
            resources=await self._store.resources(tenant, stored),
            budget=None if deployment.budget is UNSET else deployment.budget,
            initial_events=deployment.initial_events,
            deployment_id=deployment.id,
            origin=Origin(type="schedule", id=deployment.id),
            action=None if deployment.action is UNSET else deployment.action,
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


def _should_pause(planned: PlannedRun, run: DeploymentRun) -> bool:
    """Whether the deployment pauses after an error: a person who runs it sees the error, but a
    schedule must not repeat it."""
    return (
        planned.scheduled_at is not None
        and run.error is not None
        and run.error.type not in TRANSIENT_ERRORS
    )


def _after_run(
    stored: StoredDeployment, planned: PlannedRun, run: DeploymentRun
) -> StoredDeployment:
    stored = _without_run(stored, planned)
    deployment, schedule = stored.deployment, stored.deployment.schedule
    if planned.scheduled_at is None:
        return stored
    if run.error is None:
        if schedule is not None:
            schedule = replace(schedule, last_run_at=run.created_at)
        deployment = replace(deployment, schedule=schedule)
        return replace(stored, deployment=deployment, last_session_id=run.session_id)
    if not _should_pause(planned, run) or deployment.archived_at is not None:
        return stored
    reason = ErrorPause(error=PauseError(type=run.error.type))
    deployment = replace(
        deployment, status="paused", paused_reason=reason, updated_at=run.created_at
    )
    return replace(stored, deployment=deployment, queue=manual_runs(stored.queue))


def _notifications(tenant: str, run: DeploymentRun) -> list[Notification]:
    steps = ("failed",) if run.error is not None else ("started", "succeeded")
    return [Notification(tenant=tenant, type=f"deployment_run.{step}", id=run.id) for step in steps]
