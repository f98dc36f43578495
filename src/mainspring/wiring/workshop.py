"""A worker of the service with all that it needs, and what is to be looked after now and then."""

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
from mainspring.log.background import running
from mainspring.service.approvals import keeping as approval_keeping
from mainspring.service.calendar.keep import FIRE
from mainspring.service.describing.environments import CloudConfig
from mainspring.service.mail.deliveries import DELIVER
from mainspring.service.sessions.record import SessionRecord
from mainspring.service.watching.metering import MeteredDispatcher
from mainspring.service.work.upkeep import tidy
from mainspring.service.work.worker import Pace, Worker
from mainspring.service.work.workspace_expiry import KEEP, WorkspaceExpiry
from mainspring.wiring.clearing import CLEAR, Clearing
from mainspring.wiring.cloning import Cloning
from mainspring.wiring.environment import served_states
from mainspring.wiring.expiring import Expiring
from mainspring.wiring.hands import Bench
from mainspring.wiring.house import file_content, offer
from mainspring.wiring.mounts import Mounts
from mainspring.wiring.outputs import output_source
from mainspring.wiring.rooms import House
from mainspring.wiring.runs import Backing, Runs
from mainspring.wiring.session_skills import SessionSkills
from mainspring.wiring.telemetry import Telemetry

_LOG = logging.getLogger("mainspring.worker")
_OFTEN_SECONDS = 30.0
_DAILY_SECONDS = 24 * 3600.0

Chore = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the operator says about this worker."""

    pace: Pace = field(default_factory=Pace)
    model: str | None = None
    """Whatever agents say."""
    keep_audit: timedelta | None = None
    keep_workspaces: timedelta | None = KEEP
    """Of sessions that nobody uses; `None`: for ever."""


@asynccontextmanager
async def open_workshop(
    house: House, watching: Telemetry, orders: Orders, *, beat: Callable[[], None]
) -> AsyncGenerator[Worker, None]:
    """A worker that is ready to work; what has to be looked after is, until the block ends.
    `beat` is called as long as it is alive."""
    ground = house.ground
    async with Bench(ground.settings) as bench:
        await bench.end_outdated(served_states(ground.settings))
        runs = Runs(
            ground.settings,
            ground.store,
            ground.shelf,
            bench,
            Backing(
                halts=house.gatehouse.halts,
                ledger=house.gatehouse.ledger,
                credentials=house.safe.usable,
                seal=ground.seal,
                mounts=Mounts(
                    file_content=file_content(house.shelves.files),
                    cloning=Cloning(networks=ground.networks),
                ),
                skills=SessionSkills(Path(ground.settings.workspaces), house.shelves.skills),
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
        worker.when_parked(partial(_after_parking, house))
        worker.register(FIRE, house.calendar.firing.fire)
        worker.register(DELIVER, house.mail.deliveries.deliver)
        worker.register(approval_keeping.TASK, house.talk.approvals.attend)
        clearing = Clearing(ground.settings, ground.store.records, bench)
        worker.register(CLEAR, clearing.clear)
        keep_audit = orders.keep_audit
        async with running(
            partial(_again, _often(house), _OFTEN_SECONDS),
            partial(
                _again,
                [
                    lambda: tidy(ground.store.records, keep_audit=keep_audit),
                    *_expiring(house, orders.keep_workspaces, clearing),
                ],
                _DAILY_SECONDS,
            ),
        ):
            yield worker


def _expiring(house: House, keep: timedelta | None, clearing: Clearing) -> Sequence[Chore]:
    if keep is None:
        return ()
    ground = house.ground
    expiry = WorkspaceExpiry(
        ground.store.records,
        house.talk.sessions.digests,
        keep=keep,
        notify=house.mail.outbox.notify,
    )
    return (Expiring(ground.settings, ground.log, expiry, clearing).sweep,)


async def _was_removed(house: House, tenant: str, session_id: str) -> bool:
    expiry = WorkspaceExpiry(house.ground.store.records, house.talk.sessions.digests)
    known = await expiry.record(tenant, session_id)
    return known is not None and known.removed_at is not None


async def _before_idle(house: House, tenant: str, session: SessionRecord) -> None:
    """A client that sees the session idle finds the approvals that it waits for and the files that
    it has handed over."""
    await _each(
        session,
        lambda: house.talk.approvals.keeper.catch_up(tenant, session.id),
        lambda: _collect_outputs(house, tenant, session, stopped_by=frozenset({"user.interrupt"})),
    )


async def _after_run(house: House, tenant: str, session: SessionRecord) -> None:
    await _each(
        session,
        lambda: house.mail.news.catch_up(tenant, session.id),
        lambda: house.talk.approvals.keeper.catch_up(tenant, session.id),
        lambda: _collect_outputs(house, tenant, session),
        lambda: offer(house.talk, tenant, session),
    )


async def _collect_outputs(
    house: House, tenant: str, session: SessionRecord, *, stopped_by: frozenset[str] | None = None
) -> None:
    """`stopped_by`: the types of events that a client stops it with; `None`: any."""

    async def is_stopped() -> bool:
        return bool(await house.ground.store.pending(session.id, types=stopped_by, limit=1))

    if isinstance(session.environment, CloudConfig):
        source = output_source(Path(house.ground.settings.workspaces) / session.id)
        await house.talk.outputs.collect(tenant, session.id, source, is_stopped=is_stopped)


async def _each(session: SessionRecord, *duties: Chore) -> None:
    """Each for itself: what is wrong with a webhook is no fault of the run's."""
    for duty in duties:
        try:
            await duty()
        except (StoreUnavailable, StoreFull):
            raise  # the next run does it
        except Exception:  # noqa: BLE001 (what was done in the run counts, whatever this is)
            _LOG.exception("session %s: not all could be told what its run has done", session.id)


async def _after_parking(house: House, tenant: str, session_id: str) -> None:
    await _after_run(house, tenant, await house.talk.sessions.drawer.get(tenant, session_id))


def _often(house: House) -> Sequence[Chore]:
    """What finds again what was lost, and forgets what is over."""
    return (
        house.calendar.firing.sweep,
        house.mail.deliveries.sweep,
        house.calendar.intake.sweep,
        house.shelves.files.remove_expired,
        house.gatehouse.repeated.remove_expired,
        house.talk.work.tidy,
        house.talk.approvals.keeper.sweep,
    )


async def _again(chores: Sequence[Chore], seconds: float) -> None:
    while True:
        for chore in chores:
            try:
                await chore()
            except MainspringError as error:
                _LOG.warning("%s: %s; it is tried again", _named(chore), error)
            except Exception:  # noqa: BLE001 (what is wrong with one must not end the worker)
                _LOG.exception("%s failed; it is tried again", _named(chore))
        await anyio.sleep(seconds)


def _named(chore: Chore) -> str:
    return getattr(chore, "__qualname__", "a chore")
