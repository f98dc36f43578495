"""Executes jobs concurrently: take, run, settle. A `JobQueue` stores them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import anyio
from anyio import CancelScope, Event

from mainspring.core.errors import MainspringError, StoreFailed
from mainspring.log.task_groups import retry_unavailable, unwrap_single_error
from mainspring.service.jobs.dispatcher import ATTEMPTS, Backoff, FailureHandler, Job, JobHandler

_LOG = logging.getLogger("mainspring.worker")
_STORE_SECONDS = 1.0  # before a job is tried again when the store does not answer
_SETTLE_SECONDS = 10.0  # for runs to record their end when the process stops


class WorkersLost(MainspringError):
    """Every worker that ran the job died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job that this process runs, until it is finished or postponed."""

    job: Job
    attempt: int
    """From 1."""
    ticket: int = 0
    """The id of the job in the queue."""


class JobQueue(Protocol):
    async def take(self) -> ClaimedJob | None:
        """The next job that is due."""
        ...

    async def finish(self, claim: ClaimedJob) -> None: ...

    async def postpone(self, claim: ClaimedJob, *, seconds: float, is_failure: bool) -> None:
        """Return it to the queue, to be taken again after this time."""
        ...

    async def changed(self) -> None:
        """Return when a job may be due."""
        ...


class JobExecutor:
    def __init__(
        self,
        queue: JobQueue,
        handle: JobHandler,
        *,
        on_failure: FailureHandler | None,
        backoff: Backoff,
    ) -> None:
        self._queue = queue
        self._handle = handle
        self._on_failed = on_failure or _ignore_failure
        self._backoff = backoff

    async def run(self, *, concurrency: int, closing: Event) -> None:
        self._closing = closing
        self._free = anyio.Semaphore(concurrency)
        with unwrap_single_error():
            async with anyio.create_task_group() as group:
                while (claimed_job := await self._next()) is not None:
                    group.start_soon(self._run_job, claimed_job)

    async def _next(self) -> ClaimedJob | None:
        """The next job, once there is room for it; `None` when closing."""
        await self._unless_closing(self._free.acquire)
        while not self._closing.is_set():
            job: ClaimedJob | None = None
            try:
                with CancelScope(shield=True):  # a taken job must not be lost to a cancellation
                    job = await self._queue.take()
            except StoreFailed as error:
                _LOG.warning("cannot query the job queue: %s", error)
                await self._unless_closing(lambda: anyio.sleep(_STORE_SECONDS))
                continue
            if job is not None:
                return job
            await self._unless_closing(self._queue.changed)
        return None

    async def _unless_closing(self, wait: Callable[[], Awaitable[None]]) -> None:
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await self._closing.wait()
                group.cancel_scope.cancel()

            group.start_soon(watch)
            await wait()
            group.cancel_scope.cancel()

    async def _run_job(self, claim: ClaimedJob) -> None:
        try:
            await self._attempt(claim)
        except anyio.get_cancelled_exc_class():
            await self._settle(lambda: self._postpone(claim, 0.0))
            raise
        finally:
            self._free.release()

    async def _attempt(self, claim: ClaimedJob) -> None:
        try:
            if claim.attempt > ATTEMPTS:
                raise WorkersLost(f"{claim.job.name}: its worker died {ATTEMPTS} times")
            with unwrap_single_error():
                await self._handle(claim.job)
        except StoreFailed as error:
            if not error.retryable:
                return await self._failed(claim, error)
            await self._settle(lambda: self._postpone(claim, _STORE_SECONDS))
        except Exception as error:  # noqa: BLE001 (a job may fail in any way; the worker goes on)
            await self._failed(claim, error)
        else:
            await self._settle(lambda: self._queue.finish(claim))

    async def _failed(self, claim: ClaimedJob, error: Exception) -> None:
        _LOG.warning(
            "%s failed (attempt %d): %s", claim.job.name, claim.attempt, type(error).__name__
        )
        if claim.attempt < ATTEMPTS:
            seconds = self._backoff(claim.attempt)
            await self._settle(
                lambda: self._queue.postpone(claim, seconds=seconds, is_failure=True)
            )
            return
        try:
            await self._on_failed(claim.job, error)
        except Exception:  # noqa: BLE001 (whatever it is, the job is over)
            _LOG.exception("%s: the failure could not be reported", claim.job.name)
        await self._settle(lambda: self._queue.finish(claim))

    async def _postpone(self, claim: ClaimedJob, seconds: float) -> None:
        await self._queue.postpone(claim, seconds=seconds, is_failure=False)

    async def _settle(self, settle: Callable[[], Awaitable[None]]) -> None:
        """Settle a job. If the store stays unavailable, nothing is lost: the queue finds unsettled
        jobs."""
        with CancelScope(shield=True), anyio.move_on_after(_SETTLE_SECONDS):
            try:
                await retry_unavailable(settle)
            except StoreFailed as error:
                _LOG.warning("cannot settle a job: %s", error)


async def _ignore_failure(_job: Job, _error: Exception) -> None:
    pass
