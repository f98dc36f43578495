"""Group commit: the first writer that finds the database free commits for all waiting writers.

It needs no task and no thread. It costs a lone writer nothing; under load, all jobs that arrive
while one commit syncs to disk share the next commit.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel
from anyio import CancelScope
from msgspec import Struct

Job = TypeVar("Job")

_ALONE_SECONDS = 0.025  # a lone writer lets other tasks join its commit only so often


class _Batch(Struct, Generic[Job]):
    jobs: list[Job]
    is_open: bool = True
    is_done: bool = False
    _done: anyio.Event | None = None

    async def wait(self) -> None:
        if not self.is_done:
            self._done = self._done or anyio.Event()  # usually nobody waits
            await self._done.wait()

    def end(self) -> None:
        self.is_open, self.is_done = False, True
        if self._done is not None:
            self._done.set()


class GroupCommit(Generic[Job]):
    """Hands jobs to `commit` in batches, one batch at a time, in order of arrival.

    `commit` records each job's result in the job and does not raise.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Job]], Awaitable[None]],
        *,
        max_jobs: int = 256,
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_alone`: whether no other writer can have a job right now."""
        self._commit = commit
        self._max_jobs = max_jobs
        self._is_alone = is_alone
        self._yielded_at = 0.0
        self._newest: _Batch[Job] | None = None

    async def run(self, job: Job) -> None:
        """Return once the job is committed or refused. Cancellation waits for that."""
        previous = self._newest
        with CancelScope(shield=True):
            if previous is not None and previous.is_open and len(previous.jobs) < self._max_jobs:
                previous.jobs.append(job)
                return await previous.wait()
            self._newest = batch = _Batch([job])
            try:
                if previous is not None:
                    await previous.wait()
                # Yield to the event loop once, so that tasks that are ready to write join the
                # batch. A lone writer only does so from time to time: it may write without pause.
                now = time.monotonic()
                if now - self._yielded_at > _ALONE_SECONDS or not self._is_alone():
                    self._yielded_at = now
                    await anyio.lowlevel.checkpoint()
                batch.is_open = False
                await self._commit(batch.jobs)
            finally:
                batch.end()
