"""A worker of the service: it runs sessions and jobs, the steps around each run (approvals,
webhooks, outputs), and periodic maintenance. `WorkerPorts` has the dependencies of its sessions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from zlib import crc32

from mainspring.core import clock
from mainspring.log.task_groups import run_in_background
from mainspring.runtime.session.session_paths import SERVED_STATE_FOLDER
from mainspring.runtime.session_context import ToolboxFactory
from mainspring.runtime.workflows.step_runner import StepPorts
from mainspring.service.access.audit import delete_expired_data
from mainspring.service.approvals import reconciliation as approval_keeping
from mainspring.service.dreams import dreams
from mainspring.service.evals import scheduled_evals
from mainspring.service.evolution import campaigns
from mainspring.service.jobs.dispatcher import Job, PutJob
from mainspring.service.jobs.parking import WAKE_TASK
from mainspring.service.jobs.periodic_tasks import PeriodicTask, repeat, run_each
from mainspring.service.jobs.worker import Worker, WorkerSettings
from mainspring.service.memory_stores.mounted_stores import MountedStores
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.schedules.deployment_store import FIRE_TASK
from mainspring.service.service import Service
from mainspring.service.service_groups import SessionServices, WebhookServices
from mainspring.service.sessions.dependencies import END_TASK
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_runs import RunRedaction, RunServices, SessionRuns
from mainspring.service.sessions.workspaces.expired_workspaces import (
    ExpiredWorkspaceSweeper,
    WorkspaceCleaner,
)
from mainspring.service.sessions.workspaces.output_files import OutputSource
from mainspring.service.sessions.workspaces.session_mounts import ForkWorkspaces, Mounts
from mainspring.service.sessions.workspaces.session_skills import SessionSkills
from mainspring.service.sessions.workspaces.workspace_expiry import (
    CLEAR_TASK,
    RETENTION,
    WorkspaceExpiry,
)
from mainspring.service.telemetry.instrumentation import MeteredDispatcher
from mainspring.service.telemetry.telemetry_setup import Telemetry
from mainspring.service.webhooks.webhook_deliveries import DELIVER
from mainspring.service.workflows.agent_workflows import AgentWorkflows
from mainspring.service.workflows.workflow_runner import WorkflowRunner

_FREQUENT_SECONDS = 30.0  # between sweeps that people wait for
_PRODUCTION_SECONDS = 300.0  # between gradings of real sessions
_DAILY_SECONDS = 24 * 3600.0  # between sweeps of what has expired
FIRST_OUTAGE_SECONDS = 30.0
"""When a session runs again that no model has answered; doubled each time, up to the maximum."""
MAX_OUTAGE_SECONDS = 900.0  # the longest pause before a session runs again


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """The operator's settings of this worker."""

    worker_settings: WorkerSettings = field(default_factory=WorkerSettings)
    model: str | None = None
    """Overrides the models of agents."""
    keep_audit: timedelta | None = None
    keep_workspaces: timedelta | None = RETENTION
    """How long workspaces of unused sessions are kept; `None`: forever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPorts:
    """The dependencies of the worker that the composition root provides."""

    toolbox_factory: ToolboxFactory
    known_secrets: Mapping[str, str]
    redact: Callable[[Mapping[str, str]], RunRedaction]
    forks: ForkWorkspaces
    mounts: Mounts
    outputs_of: Callable[[str], OutputSource]
    """The folder with the output files of a session, by its id."""
    cleaner: WorkspaceCleaner
    step_ports: StepPorts
    """For the nodes of workflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSteps:
    """The steps of the service around the runs of a session. A step that fails does not make the
    run fail."""

    sessions: SessionServices
    webhooks: WebhookServices
    outputs_of: Callable[[str], OutputSource]
    """The folder with the output files of a session, by its id."""

    async def before_idle(self, tenant: str, session: SessionRecord) -> None:
        """Store approvals and output files: a client that sees the session idle must find them."""
        interrupt = frozenset({"user.interrupt"})
        await run_each(
            session.id,
            lambda: self.sessions.approvals.keeper.catch_up(tenant, session.id),
            lambda: self._collect_outputs(tenant, session, stopped_by=interrupt),
        )

    async def after_run(self, tenant: str, session: SessionRecord) -> None:
        await run_each(
            session.id,
            lambda: self.webhooks.news.catch_up(tenant, session.id),
            lambda: self.sessions.approvals.keeper.catch_up(tenant, session.id),
            lambda: self._collect_outputs(tenant, session),
            lambda: self.sessions.work.offer_session(tenant, session),
        )

    async def after_parking(self, tenant: str, session_id: str) -> None:
        repository = self.sessions.sessions.repository
        await self.after_run(tenant, await repository.get(tenant, session_id))

    async def _collect_outputs(
        self, tenant: str, session: SessionRecord, *, stopped_by: frozenset[str] | None = None
    ) -> None:
        """Store the output files. `stopped_by`: types of events in the inbox that stop it; `None`:
        any event."""
        store = self.sessions.sessions.log.store

        async def is_stopped() -> bool:
            return bool(await store.pending(session.id, types=stopped_by, limit=1))

        if isinstance(session.environment, CloudConfig):
            await self.sessions.outputs.collect(
                tenant, session.id, self.outputs_of(session.id), is_stopped=is_stopped
            )


async def reschedule(put: PutJob, tenant: str, session_id: str, count: int) -> None:
    """Wake a session again later that no model has answered, `count` times before."""
    longest = min(MAX_OUTAGE_SECONDS, FIRST_OUTAGE_SECONDS * 2 ** min(count, 16))
    spread = crc32(f"{session_id}/{count}".encode()) / 2**32  # so that not all return at once
    at = clock.now() + timedelta(seconds=longest * (0.75 + 0.25 * spread))
    await put(Job(task=WAKE_TASK, key=session_id, tenant=tenant), at=at)


@asynccontextmanager
async def run_worker(
    service: Service,
    telemetry: Telemetry,
    config: WorkerConfig,
    ports: WorkerPorts,
    *,
    beat: Callable[[], None],
) -> AsyncGenerator[Worker, None]:
    """A worker, with its periodic tasks until the block ends. `beat` is called regularly while the
    worker is alive."""
    infrastructure = service.infrastructure
    steps = RunSteps(
        sessions=service.sessions, webhooks=service.webhooks, outputs_of=ports.outputs_of
    )
    runs = SessionRuns(
        infrastructure.store,
        infrastructure.models,
        ports.toolbox_factory,
        _run_services(service, telemetry, ports, steps),
        model=config.model,
    )
    worker = Worker(
        MeteredDispatcher(infrastructure.dispatcher, telemetry.metrics),
        infrastructure.log,
        runs.run,
        worker_settings=config.worker_settings,
        beat=beat,
    )
    worker.on_parked(steps.after_parking)
    worker.register(FIRE_TASK, service.schedules.deployment_runner.fire)
    worker.register(DELIVER, service.webhooks.deliveries.deliver)
    worker.register(dreams.TASK, partial(service.dreams.run, model=config.model))
    run_suite = partial(service.evals.scheduled.run, model=config.model)
    worker.register(scheduled_evals.TASK, run_suite)
    worker.register(campaigns.TASK, service.campaigns.run)
    worker.register(approval_keeping.TASK, service.sessions.approvals.attend)
    worker.register(CLEAR_TASK, ports.cleaner.clear)
    worker.register(END_TASK, runs.end)
    watch = service.evals.watch
    production = (partial(watch.grade, config.model), watch.check_levels)
    daily = _daily_tasks(service, config, ports.cleaner)
    async with run_in_background(
        partial(repeat, _frequent_tasks(service), _FREQUENT_SECONDS),
        partial(repeat, production, _PRODUCTION_SECONDS),
        partial(repeat, daily, _DAILY_SECONDS),
    ):
        yield worker


def _run_services(
    service: Service, telemetry: Telemetry, ports: WorkerPorts, steps: RunSteps
) -> RunServices:
    infrastructure, sessions = service.infrastructure, service.sessions.sessions
    agent_workflows = AgentWorkflows(
        records=infrastructure.store.records,
        sessions=sessions.repository,
        wake=sessions.dependencies.wake_session,
    )
    workspaces, client_tools = infrastructure.workspaces, infrastructure.client_tools
    return RunServices(
        sessions=service.sessions.sessions.repository,
        workspaces=workspaces,
        known_secrets=ports.known_secrets,
        redact=ports.redact,
        forks=ports.forks,
        mounts=ports.mounts,
        memory_stores=MountedStores(service.memory_services.memories, ports.mounts.files.write),
        halts=service.access.halts,
        ledger=service.access.ledger,
        credentials=service.secrets.usable,
        seal=infrastructure.seal,
        skills=SessionSkills(workspaces, service.resources.skills, client_tools),
        deltas=infrastructure.deltas,
        run_observers=telemetry.run_observers,
        expiry=_workspace_expiry(service),
        workflow_runner=WorkflowRunner(
            store=infrastructure.store,
            sessions=service.sessions.sessions.repository,
            worktrees=workspaces / SERVED_STATE_FOLDER / "workflow-worktrees",
            step_ports=ports.step_ports,
            agent_workflows=agent_workflows,
        ),
        agent_workflows=agent_workflows,
        before_idle=steps.before_idle,
        reschedule=partial(reschedule, infrastructure.dispatcher.put),
        after_run=steps.after_run,
    )


def _frequent_tasks(service: Service) -> Sequence[PeriodicTask]:
    return (
        service.schedules.deployment_runner.sweep,
        service.webhooks.deliveries.sweep,
        service.schedules.trigger_intake.sweep,
        service.resources.files.remove_expired,
        service.access.repeated.remove_expired,
        service.sessions.work.delete_expired,
        service.sessions.approvals.keeper.sweep,
    )


def _daily_tasks(
    service: Service, config: WorkerConfig, cleaner: WorkspaceCleaner
) -> Sequence[PeriodicTask]:
    infrastructure = service.infrastructure
    tasks: list[PeriodicTask] = [
        partial(delete_expired_data, infrastructure.store.records, keep_audit=config.keep_audit)
    ]
    if config.keep_workspaces is not None:
        expiry = _workspace_expiry(service, config.keep_workspaces)
        sweeper = ExpiredWorkspaceSweeper(
            infrastructure.workspaces, infrastructure.log, expiry, cleaner
        )
        tasks.append(sweeper.sweep)
    return tasks


def _workspace_expiry(service: Service, keep: timedelta = RETENTION) -> WorkspaceExpiry:
    return WorkspaceExpiry(
        service.infrastructure.store.records,
        service.sessions.sessions.projections,
        keep=keep,
        notify=service.webhooks.outbox.notify,
    )
