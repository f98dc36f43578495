"""The dispatcher port: jobs that are done once, soon or at a given time, and how a service
enqueues one without knowing the engine.
"""

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
    """Of what: a session, a delivery. Jobs of one task and key never run at once, and of those
    that wait there is only one."""
    tenant: str
    """For fairness: a tenant with many jobs does not delay one with few."""

    @property
    def name(self) -> str:
        """At most one job of this name waits, and at most one runs."""
        return f"{self.task}:{self.key}"


JobHandler: TypeAlias = Callable[[Job], Awaitable[None]]
FailureHandler: TypeAlias = Callable[[Job, Exception], Awaitable[None]]
"""Called after `ATTEMPTS` failures of a job, with the last error."""


class Dispatcher(Protocol):
    async def put(self, job: Job, *, at: datetime | None = None) -> None:
        """Have it done, now or at that time; durable when this returns. If one with its task and
        key waits already, it is done at the earlier of the two times; if one runs, once more
        after it."""
        ...

    async def remind(self, jobs: Sequence[Job]) -> None:
        """Enqueue jobs that polling would find anyway: they may be lost with the process. A job
        that waits or runs already does not change."""
        ...

    async def cancel(self, task: str, key: str) -> None:
        """Cancel a job that still waits."""
        ...

    async def work(
        self,
        handle: JobHandler,
        *,
        concurrency: int,
        closing: Event,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """Take jobs and do them, so many at once. Once `closing` is set none is taken any more,
        and this returns when those that run are done; cancel it to cancel them, which gives them
        to whoever works then.

        A job whose `do` raises is done again later, `ATTEMPTS` times in all. A store that is
        unavailable is no fault of the job's, and does not count.
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
