"""A dispatcher that needs only the database of the log, for one process or a few on one machine.

Tenants take turns. Jobs are records; reminders are only in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count

import anyio
from anyio import Event

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import NotFound, StaleVersion, StoreFailed
from mainspring.log.records import Records
from mainspring.log.task_groups import run_in_background
from mainspring.service.jobs.dispatcher import (
    Backlog,
    Backoff,
    FailureHandler,
    Job,
    JobHandler,
    backoff_seconds,
)
from mainspring.service.jobs.executor import ClaimedJob, JobExecutor
from mainspring.service.jobs.job_records import HOLD_SECONDS, JobRecords, StoredJob


def no_tenant_is_full(_tenant: str) -> bool:
    return False


class FairQueue:
    """Names of jobs, by tenant and due time."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[datetime, int]] = {}
        self._queues: dict[str, list[tuple[datetime, int, str]]] = {}
        """By tenant, in the order of turns; entries that differ from `_waiting` are outdated."""
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, name: str, tenant: str, at: datetime) -> None:
        """Enqueue a job; if it already waits, its time changes."""
        place = (at, next(self._arrivals))
        self._waiting[name] = place
        heappush(self._queues.setdefault(tenant, []), (*place, name))

    def discard(self, name: str) -> None:
        self._waiting.pop(name, None)

    def take(
        self, now: datetime, *, is_full: Callable[[str], bool] = no_tenant_is_full
    ) -> str | None:
        """The next job in turn whose tenant is below its limit."""
        for tenant in tuple(self._queues):
            head = self._head(tenant)
            if head is None or head[0] > now or is_full(tenant):
                continue
            queue = self._queues.pop(tenant)  # moves to the end of the turns
            _, _, name = heappop(queue)
            del self._waiting[name]
            if queue:
                self._queues[tenant] = queue
            return name
        return None

    def next_at(self, *, is_full: Callable[[str], bool] = no_tenant_is_full) -> datetime | None:
        """The earliest time at which a job can be taken."""
        heads = [self._head(tenant) for tenant in tuple(self._queues) if not is_full(tenant)]
        return min((head[0] for head in heads if head is not None), default=None)

    def _head(self, tenant: str) -> tuple[datetime, int, str] | None:
        queue = self._queues[tenant]
        while queue:
            at, arrival, name = queue[0]
            if self._waiting.get(name) == (at, arrival):
                return queue[0]
            heappop(queue)
        del self._queues[tenant]
        return None


_POLL_SECONDS = 1.0
"""How often to poll for jobs that other processes have put."""
# Jobs due before the poll after next are kept in memory.
_LOOKAHEAD = timedelta(seconds=2 * _POLL_SECONDS)
_MAX_JOBS_READ = 1000
"""How many records are read at once; with more due jobs of one tenant, turns are no longer fair."""


class EmbeddedDispatcher:
    """Keeps jobs that are due soon in memory, in turns; the process that claims the record runs the
    job."""

    def __init__(
        self,
        records: Records,
        *,
        tenant_limit: int | None = None,
        backoff: Backoff = backoff_seconds,
        clock: Clock = clocks.now,
    ) -> None:
        """`tenant_limit`: how many jobs of one tenant this process runs at once."""
        self._records = JobRecords(records, clock=clock, holder=ids.new_id(ids.WORKER))
        self._tenant_limit = tenant_limit
        self._backoff = backoff
        self._clock = clock
        self._turns = FairQueue()
        self._soon: dict[str, tuple[Job, datetime]] = {}
        """Waiting jobs; one whose name is running waits without a turn."""
        self._records_of: set[str] = set()
        """Names of waiting jobs that have a record."""
        self._running: dict[str, bool] = {}
        """Running jobs by name, and whether each has a record."""
        self._tenants: Counter[str] = Counter()
        self._changed = Event()

    async def put(self, job: Job, *, at: datetime | None = None) -> None:
        at = at or self._clock()
        await self._records.put(job, at)
        if at <= self._clock() + _LOOKAHEAD:
            self._wait(job, at, has_record=True)

    async def remind(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            is_queued = job.name in self._soon or job.name in self._running
            if not is_queued and not await self._records.waits(job.name):
                self._wait(job, self._clock(), has_record=False)

    async def cancel(self, task: str, key: str) -> None:
        name = Job(task=task, key=key, tenant="").name
        await self._records.cancel(name)
        self._soon.pop(name, None)
        self._records_of.discard(name)
        self._turns.discard(name)

    async def backlog(self) -> Backlog:
        """With the reminders of this process, which have no record."""
        now = self._clock()
        count, oldest = await self._records.backlog(now)
        reminders = [at for name, (_, at) in self._soon.items() if name not in self._records_of]
        due = [at for at in reminders if at <= now]
        seconds = (now - min([*due, oldest or now])).total_seconds()
        return Backlog(count + len(due), max(0.0, seconds))

    async def work(
        self,
        handle: JobHandler,
        *,
        concurrency: int,
        closing: Event,
        on_failure: FailureHandler | None = None,
    ) -> None:
        executor = JobExecutor(self, handle, on_failure=on_failure, backoff=self._backoff)
        async with run_in_background(self._poll_forever, self._renew):
            await executor.run(concurrency=concurrency, closing=closing)

    async def take(self) -> ClaimedJob | None:
        while (name := self._turns.take(self._clock(), is_full=self._is_full)) is not None:
            job, _ = self._soon.pop(name)
            self._running[name] = name in self._records_of
            self._records_of.discard(name)
            self._tenants[job.tenant] += 1
            if not self._running[name]:
                return ClaimedJob(job=job, attempt=1)
            stored: StoredJob | None = None
            try:
                stored = await self._records.take(name)
            finally:
                if stored is None:
                    self._release(job)  # if it still exists, the next poll finds it
            if stored is not None:
                return ClaimedJob(job=job, attempt=stored.failures + 1)
        return None

    async def finish(self, claim: ClaimedJob) -> None:
        try:
            if self._running.get(claim.job.name):
                await self._records.finish(claim.job.name)
        finally:
            self._release(claim.job)  # if the store failed, it is no longer renewed

    async def postpone(self, claim: ClaimedJob, *, seconds: float, is_failure: bool) -> None:
        job = claim.job
        at = self._clock() + timedelta(seconds=seconds)
        try:
            if self._running.get(job.name):  # polling finds reminders again
                await self._records.postpone(job.name, at=at, is_failure=is_failure)
                if at <= self._clock() + _LOOKAHEAD:
                    self._wait(job, at, has_record=True)
        finally:
            self._release(job)

    async def changed(self) -> None:
        changed, at = self._changed, self._turns.next_at(is_full=self._is_full)
        if at is None:
            await changed.wait()
        else:
            seconds = (at - self._clock()).total_seconds()
            with anyio.move_on_after(max(seconds, 0)):
                await changed.wait()

    def _wait(self, job: Job, at: datetime, *, has_record: bool) -> None:
        current = self._soon.get(job.name)
        if current is not None:
            at = min(at, current[1])
        if has_record:
            self._records_of.add(job.name)
        if current == (job, at):
            return
        self._soon[job.name] = (job, at)
        if job.name not in self._running:
            self._turns.put(job.name, job.tenant, at)
            self._signal()

    def _release(self, job: Job) -> None:
        if self._running.pop(job.name, None) is None:
            return
        self._tenants[job.tenant] -= 1
        if not self._tenants[job.tenant]:
            del self._tenants[job.tenant]
        if job.name in self._soon:
            self._turns.put(job.name, job.tenant, self._soon[job.name][1])
        self._signal()

    def _is_full(self, tenant: str) -> bool:
        return self._tenant_limit is not None and self._tenants[tenant] >= self._tenant_limit

    def _signal(self) -> None:
        self._changed.set()
        self._changed = Event()

    async def poll(self) -> None:
        """Find jobs of other processes, jobs that are due soon, and jobs of dead workers."""
        await self._records.release_expired()
        for job, at in await self._records.due(self._clock() + _LOOKAHEAD, limit=_MAX_JOBS_READ):
            self._wait(job, at, has_record=True)

    async def _poll_forever(self) -> None:
        while True:
            with suppress(StoreFailed):  # the next poll retries
                await self.poll()
            await anyio.sleep(_POLL_SECONDS)

    async def _renew(self) -> None:
        while True:
            await anyio.sleep(HOLD_SECONDS / 3)
            for name in [name for name, has_record in self._running.items() if has_record]:
                with suppress(
                    StoreFailed, StaleVersion, NotFound
                ):  # finished or lost in the meantime
                    await self._records.renew(name)
