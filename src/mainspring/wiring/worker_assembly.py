"""Assemble a worker of the service, and run its periodic maintenance tasks."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio

from mainspring.core.errors import MainspringError, StoreFull, StoreUnavailable
from mainspring.log.task_groups import run_in_background
from mainspring.service.approvals import reconciliation as approval_keeping
from mainspring.service.jobs.daily_cleanup import delete_expired_data
from mainspring.service.jobs.worker import Worker, WorkerSettings
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.schedules.deployment_store import FIRE_TASK
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.workspace_expiry import RETENTION, WorkspaceExpiry
from mainspring.service.telemetry.instrumentation import MeteredDispatcher
from mainspring.service.telemetry.telemetry_setup import Telemetry
from mainspring.service.webhooks.webhook_deliveries import DELIVER
from mainspring.wiring.git_clone import GitCloner
from mainspring.wiring.sandbox_environment import served_states
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.service_assembly import file_content, offer_to_client_worker
from mainspring.wiring.service_parts import Service
from mainspring.wiring.session_runs import RunServices, SessionRuns
from mainspring.wiring.session_skills import SessionSkills
from mainspring.wiring.workspace_cleanup import (
    CLEAR_TASK,
    ExpiredWorkspaceSweeper,
    WorkspaceCleaner,
)
from mainspring.wiring.workspace_setup import Mounts, output_source

_LOG = logging.getLogger("mainspring.worker")
_FREQUENT_SECONDS = 30.0
_DAILY_SECONDS = 24 * 3600.0

PeriodicTask = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """What the operator says about this worker."""

    pace: WorkerSettings = field(default_factory=WorkerSettings)
    model: str | None = None
    """Whatever agents say."""
    keep_audit: timedelta | None = None
    keep_workspaces: timedelta | None = RETENTION
    """Of sessions that nobody uses; `None`: for ever."""


@asynccontextmanager
async def open_worker(
    house: Service, watching: Telemetry, orders: WorkerConfig, *, beat: Callable[[], None]
) -> AsyncGenerator[Worker, None]:
    """A worker that is ready to work; what has to be looked after is, until the block ends.
    `beat` is called as long as it is alive."""
    ground = house.infrastructure
    async with SandboxPool(ground.settings) as bench:
        await bench.end_outdated(served_states(ground.settings))
        runs = SessionRuns(
            ground.settings,
            ground.store,
            ground.models,
            bench,
            RunServices(
                halts=house.access.halts,
                ledger=house.access.ledger,
                credentials=house.secrets.usable,
                seal=ground.seal,
                mounts=Mounts(
                    file_content=file_content(house.resources.files),
                    cloning=GitCloner(networks=ground.networks),
                ),
                skills=SessionSkills(Path(ground.settings.workspaces), house.resources.skills),
                deltas=ground.deltas,
                observers=watching.observers,
                was_removed=partial(_was_removed, house),
                before_idle=partial(_before_idle, house),
                after_run=partial(_after_run, house),
            ),
            model=orders.model,
        )
        worker = Worker(
            MeteredDispatcher(ground.dispatcher, watching.metrics),
            ground.log,
            runs.run,
            pace=orders.pace,
            beat=beat,
        )
        worker.on_parked(partial(_after_parking, house))
        worker.register(FIRE_TASK, house.schedules.firing.fire)
        worker.register(DELIVER, house.webhooks.deliveries.deliver)
        worker.register(approval_keeping.TASK, house.sessions.approvals.attend)
        clearing = WorkspaceCleaner(ground.settings, ground.store.records, bench)
        worker.register(CLEAR_TASK, clearing.clear)
        keep_audit = orders.keep_audit
        async with run_in_background(
            partial(_repeat, _frequent_tasks(house), _FREQUENT_SECONDS),
            partial(
                _repeat,
                [
                    lambda: delete_expired_data(ground.store.records, keep_audit=keep_audit),
                    *_expiry_tasks(house, orders.keep_workspaces, clearing),
                ],
                _DAILY_SECONDS,
            ),
        ):
            yield worker


def _expiry_tasks(
    house: Service, keep: timedelta | None, clearing: WorkspaceCleaner
) -> Sequence[PeriodicTask]:
    if keep is None:
        return ()
    ground = house.infrastructure
    expiry = WorkspaceExpiry(
        ground.store.records,
        house.sessions.sessions.digests,
        keep=keep,
        notify=house.webhooks.outbox.notify,
    )
    return (ExpiredWorkspaceSweeper(ground.settings, ground.log, expiry, clearing).sweep,)


async def _was_removed(house: Service, tenant: str, session_id: str) -> bool:
    expiry = WorkspaceExpiry(house.infrastructure.store.records, house.sessions.sessions.digests)
    known = await expiry.record(tenant, session_id)
    return known is not None and known.removed_at is not None


async def _before_idle(house: Service, tenant: str, session: SessionRecord) -> None:
    """A client that sees the session idle finds the approvals that it waits for and the files that
    it has handed over."""
    await _run_each(
        session,
        lambda: house.sessions.approvals.keeper.catch_up(tenant, session.id),
        lambda: _collect_outputs(house, tenant, session, stopped_by=frozenset({"user.interrupt"})),
    )


async def _after_run(house: Service, tenant: str, session: SessionRecord) -> None:
    await _run_each(
        session,
        lambda: house.webhooks.news.catch_up(tenant, session.id),
        lambda: house.sessions.approvals.keeper.catch_up(tenant, session.id),
        lambda: _collect_outputs(house, tenant, session),
        lambda: offer_to_client_worker(house.sessions, tenant, session),
    )


async def _collect_outputs(
    house: Service, tenant: str, session: SessionRecord, *, stopped_by: frozenset[str] | None = None
) -> None:
    """`stopped_by`: the types of events that a client stops it with; `None`: any."""

    async def is_stopped() -> bool:
        return bool(await house.infrastructure.store.pending(session.id, types=stopped_by, limit=1))

    if isinstance(session.environment, CloudConfig):
        source = output_source(Path(house.infrastructure.settings.workspaces) / session.id)
        await house.sessions.outputs.collect(tenant, session.id, source, is_stopped=is_stopped)


async def _run_each(session: SessionRecord, *duties: PeriodicTask) -> None:
    """Each for itself: what is wrong with a webhook is no fault of the run's."""
    for duty in duties:
        try:
            await duty()
        except (StoreUnavailable, StoreFull):
            raise  # the next run does it
        except Exception:  # noqa: BLE001 (what was done in the run counts, whatever this is)
            _LOG.exception("session %s: not all could be told what its run has done", session.id)


async def _after_parking(house: Service, tenant: str, session_id: str) -> None:
    await _after_run(house, tenant, await house.sessions.sessions.drawer.get(tenant, session_id))


def _frequent_tasks(house: Service) -> Sequence[PeriodicTask]:
    """What finds again what was lost, and forgets what is over."""
    return (
        house.schedules.firing.sweep,
        house.webhooks.deliveries.sweep,
        house.schedules.intake.sweep,
        house.resources.files.remove_expired,
        house.access.repeated.remove_expired,
        house.sessions.work.delete_expired,
        house.sessions.approvals.keeper.sweep,
    )


async def _repeat(chores: Sequence[PeriodicTask], seconds: float) -> None:
    while True:
        for chore in chores:
            try:
                await chore()
            except MainspringError as error:
                _LOG.warning("%s: %s; it is tried again", _task_name(chore), error)
            except Exception:  # noqa: BLE001 (what is wrong with one must not end the worker)
                _LOG.exception("%s failed; it is tried again", _task_name(chore))
        await anyio.sleep(seconds)


def _task_name(chore: PeriodicTask) -> str:
    return getattr(chore, "__qualname__", "a chore")
