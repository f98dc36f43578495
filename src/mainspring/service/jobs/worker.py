"""A worker: takes jobs and runs them. It wakes sessions itself; other tasks are registered."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias, cast

import anyio
from anyio import CancelScope, Event

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import (
    Fenced,
    ForeignRecord,
    LeaseHeld,
    MainspringError,
    NotFound,
    SessionNotFound,
    StoreFailed,
    StoreFull,
    StoreUnavailable,
)
from mainspring.log import records
from mainspring.log.session_log import SessionLog
from mainspring.log.task_groups import run_in_background
from mainspring.service.jobs.dispatcher import Dispatcher, Job, JobHandler
from mainspring.service.jobs.parking import WAKE_TASK, AfterParking, Parking, reason_of

RunSession: TypeAlias = Callable[[str], Awaitable[None]]
"""Builds a session's agent and runs it until nothing is left to do; raises `LeaseHeld` if another
worker has it."""

_LOG = logging.getLogger("mainspring.worker")
_MAX_SWEPT = 1000  # sessions of one sweep
_FOREIGN_CACHE_SECONDS = 60.0  # before a session without a record is looked up again
_TENANTS_KEPT = 10_000  # cached
_AFTER_LEASE_SECONDS = 0.05  # added, so that the lease has ended by then
_HELD_SECONDS = 1.0
"""The holder of a session may release it before its lease expires."""


class Postponed(MainspringError):
    """The session must not run now because a person has stopped it; this is not a failure."""

    def __init__(self, why: str, *, seconds: float) -> None:
        super().__init__(why)
        self.seconds = seconds


_HARMLESS_ERRORS = (Postponed, StoreUnavailable, StoreFull, Fenced, LeaseHeld, SessionNotFound)


def harmless_cause(error: Exception) -> Exception:
    """The error in a group that is not the session's fault; else the error itself."""
    errors = _leaf_errors(error)
    return next((item for item in errors if isinstance(item, _HARMLESS_ERRORS)), error)


def _leaf_errors(error: Exception) -> Generator[Exception]:
    if isinstance(error, ExceptionGroup):
        for exception in cast("ExceptionGroup[Exception]", error).exceptions:
            yield from _leaf_errors(exception)
    else:
        yield error


class InboxNotConsumed(MainspringError):
    """A run ended without consuming its inbox: the next one would do the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    concurrency: int = 16
    drain_seconds: float = 30.0
    """How long runs may take to end once the worker closes; then they are cancelled, and other
    workers continue them."""
    sweep_seconds: float = 1.0


def _no_heartbeat() -> None:
    pass


class Worker:
    def __init__(
        self,
        dispatcher: Dispatcher,
        log: SessionLog,
        run_session: RunSession,
        *,
        worker_settings: WorkerSettings | None = None,
        clock: Clock = clocks.now,
        beat: Callable[[], None] = _no_heartbeat,
    ) -> None:
        """`beat` is called in each iteration of the worker's loop."""
        self.parking = Parking(log, dispatcher, clock=clock)
        self._dispatcher = dispatcher
        self._log = log
        self._run = run_session
        self._pace = worker_settings or WorkerSettings()
        self._clock = clock
        self._beat = beat
        self._tenants: dict[str, str] = {}
        self._foreign: dict[str, float] = {}
        """Sessions that this service did not create, and until when that is cached."""
        self._tasks: dict[str, JobHandler] = {WAKE_TASK: self._wake}

    def register(self, task: str, handle: JobHandler) -> None:
        self._tasks[task] = handle

    def on_parked(self, after: AfterParking) -> None:
        self.parking.after = after

    async def work(self, closing: Event) -> None:
        """Run until `closing` is set and the running jobs have ended, or their time to drain is
        over."""
        async with run_in_background(self._sweep), anyio.create_task_group() as group:
            group.start_soon(self._drain, closing, group.cancel_scope)
            await self._dispatcher.work(
                self._do, concurrency=self._pace.concurrency, closing=closing
            )
            group.cancel_scope.cancel()

    async def sweep(self) -> None:
        """Wake every session that has something to do and no worker: because a job was lost, a
        sender died before it woke the session, or a worker is gone."""
        parked = await self.parking.ids()
        skipped_count = len(parked) + len(self._foreign)
        session_ids = await self._log.store.runnable(limit=_MAX_SWEPT + skipped_count)
        jobs: list[Job] = []
        for session_id in session_ids:
            tenant = await self._tenant_of(session_id)
            if tenant is None:
                continue  # a session of the command line, which workers do not run
            job = Job(task=WAKE_TASK, key=session_id, tenant=tenant)
            if session_id not in parked or not await self.parking.is_parked(job):
                jobs.append(job)
        self._foreign = {item: self._foreign[item] for item in session_ids if item in self._foreign}
        await self._dispatcher.remind(jobs)

    async def _sweep(self) -> None:
        while True:
            try:
                await self.sweep()
            except StoreFailed as error:
                _LOG.warning("cannot find sessions to wake: %s", error)
            except Exception:  # noqa: BLE001 (nothing else finds lost sessions)
                _LOG.exception("cannot find sessions to wake")
            self._beat()
            await anyio.sleep(self._pace.sweep_seconds)

    async def _drain(self, closing: Event, scope: CancelScope) -> None:
        await closing.wait()
        await anyio.sleep(self._pace.drain_seconds)
        scope.cancel()

    async def _do(self, job: Job) -> None:
        """Raises: NotFound: unknown task; another worker may have it registered."""
        if job.task not in self._tasks:
            raise NotFound("task", job.task)
        await self._tasks[job.task](job)

    async def _wake(self, job: Job) -> None:
        if await self.parking.is_parked(job):
            return
        try:
            before = await self._log.store.pending(job.key, limit=1)
            await self._run(job.key)
            after = await self._log.store.pending(job.key, limit=1)
            if before and after and after[0].position == before[0].position:
                raise InboxNotConsumed(f"a run of session {job.key} did not consume its inbox")
            if after:
                await self._dispatcher.put(job)  # it arrived as the run ended
        except Exception as error:  # noqa: BLE001 (a broken session must not stop the others)
            await self._has_failed(job, harmless_cause(error))
        else:
            await self.parking.succeeded(job)

    async def _has_failed(self, job: Job, error: Exception) -> None:
        match error:
            case StoreFailed(retryable=True):
                raise error  # the dispatcher retries without counting it
            case LeaseHeld(seconds=seconds):
                delay = timedelta(seconds=min(seconds, _HELD_SECONDS) + _AFTER_LEASE_SECONDS)
                await self._dispatcher.put(job, at=self._clock() + delay)
            case Postponed(seconds=seconds):
                await self._dispatcher.put(job, at=self._clock() + timedelta(seconds=seconds))
            case Fenced():
                _LOG.info("another worker took over session %s", job.key)
            case SessionNotFound() | NotFound(kind=records.SESSION_KIND):
                await self.parking.forget(job)
            case _:
                _LOG.warning("a run of session %s failed: %s", job.key, reason_of(error))
                _LOG.debug("a run of session %s failed", job.key, exc_info=error)
                await self.parking.failed(job, error)

    async def _tenant_of(self, session_id: str) -> str | None:
        if session_id in self._tenants:
            return self._tenants[session_id]
        if self._foreign.get(session_id, 0.0) > anyio.current_time():
            return None
        try:
            record = await self._log.store.records.get(records.SESSION_KIND, session_id)
        except (NotFound, ForeignRecord):
            self._foreign[session_id] = anyio.current_time() + _FOREIGN_CACHE_SECONDS
            return None
        if len(self._tenants) >= _TENANTS_KEPT:
            self._tenants.clear()
        self._tenants[session_id] = record.tenant
        return record.tenant
