"""Assemble a worker of the service, and run its periodic maintenance tasks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

from mainspring.capabilities.tools.client_tools import client_tools
from mainspring.capabilities.vault.redaction import multi_word_secrets, scrubber
from mainspring.harness.authorizer import AllowAll
from mainspring.log.task_groups import run_in_background
from mainspring.service.access.audit import delete_expired_data
from mainspring.service.approvals import reconciliation as approval_keeping
from mainspring.service.jobs.periodic_tasks import PeriodicTask, repeat, run_each
from mainspring.service.jobs.worker import Worker, WorkerSettings
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.schedules.deployment_store import FIRE_TASK
from mainspring.service.sessions.expired_workspaces import ExpiredWorkspaceSweeper
from mainspring.service.sessions.resource_types import file_content
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_runs import RunRedaction, RunServices, SessionRuns
from mainspring.service.sessions.session_skills import SessionSkills
from mainspring.service.sessions.streaming_redactor import BOUNDARIES
from mainspring.service.sessions.workspace_expiry import RETENTION, WorkspaceExpiry
from mainspring.service.telemetry.instrumentation import MeteredDispatcher
from mainspring.service.telemetry.telemetry_setup import Telemetry
from mainspring.service.webhooks.webhook_deliveries import DELIVER
from mainspring.wiring.sandbox_environment import served_states
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.service_parts import Service
from mainspring.wiring.service_workspaces import (
    CLEAR_TASK,
    WorkspaceCleaner,
    fork_workspaces,
    open_git_cloner,
    open_mounts,
    output_source,
    remove_expired,
)
from mainspring.wiring.toolbox_builder import ToolboxBuilder
from mainspring.wiring.user_vault import known_secrets

_FREQUENT_SECONDS = 30.0
_DAILY_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """What the operator says about this worker."""

    worker_settings: WorkerSettings = field(default_factory=WorkerSettings)
    model: str | None = None
    """Whatever agents say."""
    keep_audit: timedelta | None = None
    keep_workspaces: timedelta | None = RETENTION
    """Of sessions that nobody uses; `None`: for ever."""


@asynccontextmanager
async def open_worker(
    service: Service, watching: Telemetry, config: WorkerConfig, *, beat: Callable[[], None]
) -> AsyncGenerator[Worker, None]:
    """A worker that is ready to work; what has to be looked after is, until the block ends.
    `beat` is called as long as it is alive."""
    ground = service.infrastructure
    async with SandboxPool(ground.settings) as sandbox_pool:
        await sandbox_pool.end_outdated(served_states(ground.settings))
        workspaces = Path(ground.settings.workspaces)
        mounts = open_mounts(
            file_content(service.resources.files), open_git_cloner(ground.networks)
        )
        runs = SessionRuns(
            ground.store,
            ground.models,
            ToolboxBuilder(ground.settings, ground.models, sandbox_pool, AllowAll()),
            RunServices(
                workspaces=workspaces,
                known_secrets=known_secrets(ground.settings),
                redact=_redaction,
                forks=fork_workspaces(ground.settings, ground.log),
                mounts=mounts,
                halts=service.access.halts,
                ledger=service.access.ledger,
                credentials=service.secrets.usable,
                seal=ground.seal,
                skills=SessionSkills(workspaces, service.resources.skills, client_tools),
                deltas=ground.deltas,
                run_observers=watching.run_observers,
                expiry=_workspace_expiry(service),
                before_idle=partial(_before_idle, service),
                after_run=partial(_after_run, service),
            ),
            model=config.model,
        )
        worker = Worker(
            MeteredDispatcher(ground.dispatcher, watching.metrics),
            ground.log,
            runs.run,
            worker_settings=config.worker_settings,
            beat=beat,
        )
        worker.on_parked(partial(_after_parking, service))
        worker.register(FIRE_TASK, service.schedules.deployment_runner.fire)
        worker.register(DELIVER, service.webhooks.deliveries.deliver)
        worker.register(approval_keeping.TASK, service.sessions.approvals.attend)
        clearing = WorkspaceCleaner(ground.settings, ground.store.records, sandbox_pool)
        worker.register(CLEAR_TASK, clearing.clear)
        keep_audit = config.keep_audit
        async with run_in_background(
            partial(repeat, _frequent_tasks(service), _FREQUENT_SECONDS),
            partial(
                repeat,
                [
                    lambda: delete_expired_data(ground.store.records, keep_audit=keep_audit),
                    *_expiry_tasks(service, config.keep_workspaces, clearing),
                ],
                _DAILY_SECONDS,
            ),
        ):
            yield worker


def _redaction(secrets: Mapping[str, str]) -> RunRedaction:
    return RunRedaction(scrub=scrubber(secrets), passages=multi_word_secrets(secrets, BOUNDARIES))


def _expiry_tasks(
    service: Service, keep: timedelta | None, workspace_cleaner: WorkspaceCleaner
) -> Sequence[PeriodicTask]:
    if keep is None:
        return ()
    ground = service.infrastructure
    sweeper = ExpiredWorkspaceSweeper(
        Path(ground.settings.workspaces),
        ground.log,
        _workspace_expiry(service, keep),
        remove_workspace=workspace_cleaner.remove_workspace,
        remove_expired=remove_expired,
    )
    return (sweeper.sweep,)


def _workspace_expiry(service: Service, keep: timedelta = RETENTION) -> WorkspaceExpiry:
    return WorkspaceExpiry(
        service.infrastructure.store.records,
        service.sessions.sessions.digests,
        keep=keep,
        notify=service.webhooks.outbox.notify,
    )


async def _before_idle(service: Service, tenant: str, session: SessionRecord) -> None:
    """A client that sees the session idle finds the approvals that it waits for and the files that
    it has handed over."""
    await run_each(
        session.id,
        lambda: service.sessions.approvals.keeper.catch_up(tenant, session.id),
        lambda: _collect_outputs(
            service, tenant, session, stopped_by=frozenset({"user.interrupt"})
        ),
    )


async def _after_run(service: Service, tenant: str, session: SessionRecord) -> None:
    await run_each(
        session.id,
        lambda: service.webhooks.news.catch_up(tenant, session.id),
        lambda: service.sessions.approvals.keeper.catch_up(tenant, session.id),
        lambda: _collect_outputs(service, tenant, session),
        lambda: service.sessions.work.offer_session(tenant, session),
    )


async def _collect_outputs(
    service: Service,
    tenant: str,
    session: SessionRecord,
    *,
    stopped_by: frozenset[str] | None = None,
) -> None:
    """`stopped_by`: the types of events that a client stops it with; `None`: any."""

    async def is_stopped() -> bool:
        return bool(
            await service.infrastructure.store.pending(session.id, types=stopped_by, limit=1)
        )

    if isinstance(session.environment, CloudConfig):
        source = output_source(Path(service.infrastructure.settings.workspaces) / session.id)
        await service.sessions.outputs.collect(tenant, session.id, source, is_stopped=is_stopped)


async def _after_parking(service: Service, tenant: str, session_id: str) -> None:
    await _after_run(
        service, tenant, await service.sessions.sessions.repository.get(tenant, session_id)
    )


def _frequent_tasks(service: Service) -> Sequence[PeriodicTask]:
    """What finds again what was lost, and forgets what is over."""
    return (
        service.schedules.deployment_runner.sweep,
        service.webhooks.deliveries.sweep,
        service.schedules.trigger_intake.sweep,
        service.resources.files.remove_expired,
        service.access.repeated.remove_expired,
        service.sessions.work.delete_expired,
        service.sessions.approvals.keeper.sweep,
    )
