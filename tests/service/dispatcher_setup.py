"""Dispatchers of both kinds for tests, and what they did."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import anyio
from anyio import Event

from mainspring.log.sqlite import open_sqlite
from mainspring.log.task_groups import run_in_background
from mainspring.service.jobs.dispatcher import Dispatcher, Job
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.jobs.postgres_dispatcher import open_fleet

Open: TypeAlias = Callable[..., AbstractAsyncContextManager[Dispatcher]]
"""Another one on the same database; each stands for a process."""


def soon(_failures: int) -> float:
    return 0.01


def embedded_in(folder: Path) -> Open:
    @asynccontextmanager
    async def opened(*, tenant_limit: int | None = None) -> AsyncGenerator[Dispatcher]:
        async with open_sqlite(folder / "jobs.db") as store:
            yield EmbeddedDispatcher(store.records, tenant_limit=tenant_limit, backoff=soon)

    return opened


def fleet_at(url: str) -> Open:
    def opened(*, tenant_limit: int | None = None) -> AbstractAsyncContextManager[Dispatcher]:
        return open_fleet(url, tenant_limit=tenant_limit, backoff=soon)

    return opened


def job(key: str, *, tenant: str = "acme", task: str = "deliver") -> Job:
    return Job(task=task, key=key, tenant=tenant)


@dataclass
class Doing:
    """Does jobs by a given function, and remembers them."""

    act: Callable[[Job], Awaitable[None]] | None = None
    begun: list[str] = field(default_factory=list[str])
    done: list[str] = field(default_factory=list[str])
    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    changed: Event = field(default_factory=Event)

    async def __call__(self, job: Job) -> None:
        self.begun.append(job.key)
        self._tell()
        if self.act is not None:
            await self.act(job)
        self.done.append(job.key)
        self._tell()

    async def on_failed(self, job: Job, error: Exception) -> None:
        self.failed.append((job.key, str(error)))
        self._tell()

    async def until(self, is_so: Callable[[], bool]) -> None:
        with anyio.fail_after(60):
            while not is_so():
                await self.changed.wait()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = Event()


@asynccontextmanager
async def at_work(
    dispatcher: Dispatcher, doing: Doing, *, concurrency: int = 4
) -> AsyncGenerator[Event]:
    """A worker until the block ends; the event closes it."""
    closing = Event()

    async def work() -> None:
        await dispatcher.work(
            doing, concurrency=concurrency, closing=closing, on_failure=doing.on_failed
        )

    async with run_in_background(work):
        yield closing
