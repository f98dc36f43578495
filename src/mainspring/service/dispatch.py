"""What the service needs of an engine: jobs that are done once, soon or at a given time.

The engine only wakes, locks and times. The truth is elsewhere, in the logs and the records, so
that a job that is lost is found again by looking (`Store.runnable`), and one that comes twice
finds nothing left to do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol, TypeAlias

from anyio import Event
from msgspec import Struct


class Job(Struct, frozen=True, kw_only=True):
    task: str
    """`wake` and the like: what is to be done; a worker knows how."""
    key: str
    """Of what: a session, a delivery. Jobs of one task and key never run at once, and of those
    that wait there is only one."""
    tenant: str
    """For fairness: a tenant with many jobs does not hold up one with few."""


Do: TypeAlias = Callable[[Job], Awaitable[None]]


class Dispatcher(Protocol):
    async def put(self, job: Job, *, at: datetime | None = None) -> None:
        """Have it done, now or at that time; durable when this returns. If one with its task and
        key waits already, it is done at the earlier of the two times."""
        ...

    async def cancel(self, task: str, key: str) -> None:
        """Do not do what still waits."""
        ...

    async def work(self, do: Do, *, concurrency: int, closing: Event) -> None:
        """Take jobs and do them, so many at once. Once `closing` is set none is taken any more,
        and this returns when those that run are done; cancel it to cancel them.

        A job whose `do` raises is done again later, 5 times at most.
        """
        ...
