"""How a service has something done later, without knowing the engine."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol

from mainspring.service.work.dispatch import Job


class PutJob(Protocol):
    """`Dispatcher.put`."""

    def __call__(self, job: Job, *, at: datetime | None = None) -> Awaitable[None]: ...


async def unqueued(job: Job, *, at: datetime | None = None) -> None:
    """For who has no engine at hand: a worker finds what is due by looking."""
