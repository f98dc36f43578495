"""Many writers, one commit: whoever finds the database free commits for all who wait.

No task and no thread of its own. A lone writer pays nothing for it; under load, everything that
arrives while one commit syncs to disk goes out together in the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel
from anyio import CancelScope

Job = TypeVar("Job")


class _Entry(Generic[Job]):
    __slots__ = ("done", "job", "woken")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.woken: anyio.Event | None = None
        self.done = False


class GroupCommit(Generic[Job]):
    """Hands jobs to `commit` in batches, one batch at a time, in order of arrival.

    `commit` records each job's result in the job and does not raise.
    """

    def __init__(
        self, commit: Callable[[Sequence[Job]], Awaitable[None]], *, most: int = 256
    ) -> None:
        self._commit = commit
        self._most = most
        self._queue: list[_Entry[Job]] = []
        self._busy = False

    async def run(self, job: Job) -> None:
        """Return when the job was committed or refused. Not cancelled half-way."""
        entry = _Entry(job)
        self._queue.append(entry)
        with CancelScope(shield=True):
            if self._busy:
                entry.woken = anyio.Event()
                await entry.woken.wait()  # committed for us, or our turn to lead
            if not entry.done:
                await self._lead()

    async def _lead(self) -> None:
        self._busy = True
        await anyio.lowlevel.checkpoint()  # whoever is ready to write joins this batch
        batch, self._queue = self._queue[: self._most], self._queue[self._most :]
        try:
            await self._commit([entry.job for entry in batch])
        finally:
            for entry in batch:
                entry.done = True
                if entry.woken is not None:
                    entry.woken.set()
            if self._queue:
                assert self._queue[0].woken is not None  # it arrived while we were busy
                self._queue[0].woken.set()
            else:
                self._busy = False
