"""Assemble a worker of the service, and run its periodic maintenance tasks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.tools.client_tools import client_tools
from mainspring.capabilities.vault.redaction import Scrubber, multi_word_secrets
from mainspring.config import Settings
from mainspring.harness.authorizer import AllowAll
from mainspring.log.task_groups import run_in_background
from mainspring.service.access.audit import delete_expired_data
from mainspring.service.approvals import reconciliation as approval_keeping
from mainspring.service.dreams import dreams
from mainspring.service.jobs.periodic_tasks import PeriodicTask, repeat
from mainspring.service.jobs.worker import Worker, WorkerSettings
from mainspring.service.memory_stores.mounted_stores import MountedStores
from mainspring.service.run_steps import RunSteps
from mainspring.service.schedules.deployment_store import FIRE_TASK
from mainspring.service.service import Service
from mainspring.service.sessions.dependencies import END_TASK
from mainspring.service.sessions.expired_workspaces import (
    ExpiredWorkspaceSweeper,
    WorkspaceCleaner,
)
from mainspring.service.sessions.resource_types import file_content
from mainspring.service.sessions.session_runs import RunRedaction, RunServices, SessionRuns
from mainspring.service.sessions.session_skills import SessionSkills
from mainspring.service.sessions.streaming_redactor import BOUNDARIES
from mainspring.service.sessions.workspace_expiry import CLEAR_TASK, RETENTION, WorkspaceExpiry
from mainspring.service.telemetry.instrumentation import MeteredDispatcher
from mainspring.service.telemetry.telemetry_setup import Telemetry
from mainspring.service.webhooks.webhook_deliveries import DELIVER
from mainspring.wiring.sandbox_environment import state_folders
from mainspring.wiring.sandbox_pool import sandbox_pool
from mainspring.wiring.service_workspaces import (
    fork_workspaces,
    open_git_cloner,
    open_mounts,
    output_source,
    workspace_cleaner,
)
from mainspring.wiring.toolbox_builder import ToolboxBuilder
from mainspring.wiring.user_vault import known_secrets

_FREQUENT_SECONDS = 30.0
_DAILY_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """The operator's settings of this worker."""

    settings: Settings
    networks: tuple[Network, ...] = ()
    """Addresses that its sessions may call from outside of sandboxes although they are not
    public."""
    worker_settings: WorkerSettings = field(default_factory=WorkerSettings)
    model: str | None = None
    """Used whatever agents say."""
    keep_audit: timedelta | None = None
    keep_workspaces: timedelta | None = RETENTION
    """Of sessions that nobody uses; `None`: forever."""


@asynccontextmanager
async def open_worker(
    service: Service, telemetry: Telemetry, config: WorkerConfig, *, beat: Callable[[], None]
) -> AsyncGenerator[Worker, None]:
    """A worker, with its periodic tasks until the block ends. `beat` is called as long as it is
    alive."""
    infrastructure, settings = service.infrastructure, config.settings
    async with sandbox_pool(settings) as sandboxes:
        await sandboxes.end_outdated(state_folders(settings).served_states)
        workspaces = infrastructure.workspaces
        mounts = open_mounts(
            file_content(service.resources.files), open_git_cloner(config.networks)
        )
        steps = RunSteps(
            sessions=service.sessions,
            webhooks=service.webhooks,
            outputs_of=lambda session_id: output_source(workspaces / session_id),
        )
        runs = SessionRuns(
            infrastructure.store,
            infrastructure.models,
            ToolboxBuilder(settings, infrastructure.models, sandboxes, AllowAll(), config.networks),
            RunServices(
                workspaces=workspaces,
                known_secrets=known_secrets(settings),
                redact=_redaction,
                forks=fork_workspaces(settings, infrastructure.log),
                mounts=mounts,
                memory_stores=MountedStores(service.memory_services.memories, mounts.files.write),
                halts=service.access.halts,
                ledger=service.access.ledger,
                credentials=service.secrets.usable,
                seal=infrastructure.seal,
                skills=SessionSkills(workspaces, service.resources.skills, client_tools),
                deltas=infrastructure.deltas,
                run_observers=telemetry.run_observers,
                expiry=_workspace_expiry(service),
                before_idle=steps.before_idle,
                after_run=steps.after_run,
            ),
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
        worker.register(dreams.TASK, service.dreams.run)
        worker.register(approval_keeping.TASK, service.sessions.approvals.attend)
        cleaner = workspace_cleaner(settings, infrastructure.store.records, sandboxes)
        worker.register(CLEAR_TASK, cleaner.clear)
        worker.register(END_TASK, runs.end)
        keep_audit = config.keep_audit
        async with run_in_background(
            partial(
                repeat,
                (
                    service.schedules.deployment_runner.sweep,
                    service.webhooks.deliveries.sweep,
                    service.schedules.trigger_intake.sweep,
                    service.resources.files.remove_expired,
                    service.access.repeated.remove_expired,
                    service.sessions.work.delete_expired,
                    service.sessions.approvals.keeper.sweep,
                ),
                _FREQUENT_SECONDS,
            ),
            partial(
                repeat,
                [
                    lambda: delete_expired_data(
                        infrastructure.store.records, keep_audit=keep_audit
                    ),
                    *_expiry_tasks(service, config.keep_workspaces, cleaner),
                ],
                _DAILY_SECONDS,
            ),
        ):
            yield worker


def _redaction(secrets: Mapping[str, str]) -> RunRedaction:
    return RunRedaction(scrub=Scrubber(secrets), passages=multi_word_secrets(secrets, BOUNDARIES))


def _expiry_tasks(
    service: Service, keep: timedelta | None, cleaner: WorkspaceCleaner
) -> Sequence[PeriodicTask]:
    if keep is None:
        return ()
    infrastructure = service.infrastructure
    sweeper = ExpiredWorkspaceSweeper(
        infrastructure.workspaces,
        infrastructure.log,
        _workspace_expiry(service, keep),
        cleaner,
    )
    return (sweeper.sweep,)


def _workspace_expiry(service: Service, keep: timedelta = RETENTION) -> WorkspaceExpiry:
    return WorkspaceExpiry(
        service.infrastructure.store.records,
        service.sessions.sessions.digests,
        keep=keep,
        notify=service.webhooks.outbox.notify,
    )
