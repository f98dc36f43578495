"""The dispatcher port: jobs that run once, now or at a given time, and how a service enqueues one
without knowing the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from anyio import Event
from msgspec import Struct

ATTEMPTS = 5
"""Attempts before a job has failed permanently."""
BACKOFF_SECONDS = (1.0, 5.0, 30.0, 120.0)
"""Seconds between attempts."""


class Job(Struct, frozen=True, kw_only=True):
    task: str
    """The name of a registered task, such as `wake`."""
    key: str
    """The object of the job: a session, a delivery. Jobs of one task and key never run
    concurrently, and at most one of them waits."""
    tenant: str
    """For fairness: a tenant with many jobs does not delay one with few."""

    @property
    def name(self) -> str:
        """At most one job of this name waits, and at most one runs."""
        return f"{self.task}:{self.key}"


JobHandler: TypeAlias = Callable[[Job], Awaitable[None]]
FailureHandler: TypeAlias = Callable[[Job, Exception], Awaitable[None]]
"""Called after `ATTEMPTS` failures of a job, with the last error."""


class Backlog(Struct, frozen=True):
    """The jobs that are due and that no worker has taken."""

    jobs: int
    oldest_seconds: float
    """How long the oldest one has been due; 0 if there is none."""


class Dispatcher(Protocol):
    async def put(self, job: Job, *, at: datetime | None = None) -> None:
        """Enqueue a job for now or for that time; it is durable when this returns. If one with its
        task and key already waits, it runs at the earlier of the two times; if one is running,
        it runs once more after it."""
        ...

    async def remind(self, jobs: Sequence[Job]) -> None:
        """Enqueue jobs that polling would find anyway: they may be lost with the process. A job
        that already waits or runs is not changed."""
        ...

    async def cancel(self, task: str, key: str) -> None:
        """Cancel a job that still waits."""
        ...

    async def backlog(self) -> Backlog: ...

    async def work(
        self,
        handle: JobHandler,
        *,
        concurrency: int,
        closing: Event,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """Take jobs and run them, up to `concurrency` at once. Once `closing` is set no more are
        taken, and this returns when the running ones have ended; cancel it to cancel them, which
        gives them to other workers.

        A job whose `handle` raises is run again later, `ATTEMPTS` times in all. An unavailable
        store is not the job's fault and does not count.
        """
        ...


Backoff: TypeAlias = Callable[[int], float]


def backoff_seconds(failures: int) -> float:
    """Seconds to wait after a number of consecutive failures, from 1."""
    return BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1]


class PutJob(Protocol):
    """`Dispatcher.put`."""

    def __call__(self, job: Job, *, at: datetime | None = None) -> Awaitable[None]: ...


async def no_enqueue(job: Job, *, at: datetime | None = None) -> None:
    """For processes without a dispatcher: workers find due work by polling."""
