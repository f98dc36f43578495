"""Jobs as records: waiting and running ones, each under its own name.

Taking a job moves it from waiting to running in one write, so that only one process gets it. A
running job must be renewed; otherwise its worker has died, and the job waits again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from mainspring.core.clock import Clock, from_micros, to_micros
from mainspring.core.errors import AlreadyExists, NotFound, StaleVersion
from mainspring.log.records import Put, RecordQuery, RecordRow, Records, Remove, Replace
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.storage.repository import Repository

HOLD_SECONDS = 15.0  # a job's claim; after a crash another worker takes it then

_WAITING_KIND = "job"
_RUNNING_KIND = "job_held"
_TRIES = 8  # updates of a record that others write, too


class StoredJob(Struct, frozen=True, kw_only=True):
    job: Job
    failures: int = 0
    holder: str = ""

    @property
    def id(self) -> str:
        return self.job.name


class JobRecords:
    def __init__(self, records: Records, *, clock: Clock, holder: str) -> None:
        self._records = records
        self._jobs = Repository(records, _WAITING_KIND, StoredJob, clock=clock)
        self._running = Repository(records, _RUNNING_KIND, StoredJob, clock=clock)
        self._clock = clock
        self._holder = holder

    async def put(self, job: Job, at: datetime) -> None:
        """Enqueue a job; one that already waits is moved to this time if it is earlier."""
        for _ in range(_TRIES):
            with suppress(AlreadyExists):
                await self._records.write(Put(row=self._waiting(StoredJob(job=job), at)))
                return
            with suppress(StaleVersion, NotFound):
                row = await self._records.get(_WAITING_KIND, job.name)
                if row.due is not None and row.due > to_micros(at):
                    await self._records.write(Replace(row=replace(row, due=to_micros(at))))
                return
        raise StaleVersion(f"job {job.name}: other processes kept changing it; try again")

    async def waits(self, name: str) -> bool:
        return await self._row(_WAITING_KIND, name) is not None

    async def cancel(self, name: str) -> None:
        for _ in range(_TRIES):
            row = await self._row(_WAITING_KIND, name)
            if row is None or await self._jobs.remove_row(row):
                return

    async def due(self, upto: datetime, *, limit: int) -> list[tuple[Job, datetime]]:
        """Jobs due by then with their times, the longest due first."""
        due = await self._jobs.due(upto, limit=limit)
        return [(job.job, from_micros(row.due or 0)) for row, job in due]

    async def backlog(self, now: datetime) -> tuple[int, datetime | None]:
        """The number of due jobs, and since when the oldest one is due."""
        query = RecordQuery(kind=_WAITING_KIND, due_upto=to_micros(now), limit=1)
        oldest = await self._records.list(query)
        count = await self._records.count(query)
        return count, from_micros(oldest[0].due or 0) if oldest else None

    async def take(self, name: str) -> StoredJob | None:
        """Claim a waiting job; `None` if it is gone, or a job of that name already runs."""
        try:
            waiting = await self._records.get(_WAITING_KIND, name)
            job = msgspec.structs.replace(self._jobs.read(waiting), holder=self._holder)
            row = self._record(_RUNNING_KIND, job, self._until())
            await self._records.write(Remove(row=waiting), Put(row=row))
        except (StaleVersion, NotFound, AlreadyExists):
            return None
        return job

    async def renew(self, name: str) -> None:
        row = await self._own_row(name)
        if row is not None:
            await self._records.write(Replace(row=replace(row, due=to_micros(self._until()))))

    async def finish(self, name: str) -> None:
        for _ in range(_TRIES):
            row = await self._own_row(name)
            if row is None or await self._running.remove_row(row):
                return

    async def postpone(self, name: str, *, at: datetime, is_failure: bool) -> None:
        for _ in range(_TRIES):
            row = await self._own_row(name)
            if row is None or await self._give_back(row, at, is_failure=is_failure):
                return

    async def release_expired(self) -> None:
        """Enqueue the jobs of dead workers again."""
        now = self._clock()
        for row, _ in await self._running.due(now):
            await self._give_back(row, now, is_failure=True)

    async def _give_back(self, row: RecordRow, at: datetime, *, is_failure: bool) -> bool:
        job = self._running.read(row)
        job = StoredJob(job=job.job, failures=job.failures + is_failure)
        try:
            await self._records.write(Remove(row=row), Put(row=self._waiting(job, at)))
        except AlreadyExists:  # another was put meanwhile and counts for both
            return await self._running.remove_row(row)
        except (StaleVersion, NotFound):
            return False
        return True

    async def _row(self, kind: str, name: str) -> RecordRow | None:
        try:
            return await self._records.get(kind, name)
        except NotFound:
            return None

    async def _own_row(self, name: str) -> RecordRow | None:
        row = await self._row(_RUNNING_KIND, name)
        return row if row and self._running.read(row).holder == self._holder else None

    def _until(self) -> datetime:
        return self._clock() + timedelta(seconds=HOLD_SECONDS)

    def _waiting(self, stored: StoredJob, at: datetime) -> RecordRow:
        return self._record(_WAITING_KIND, stored, at)

    def _record(self, kind: str, stored: StoredJob, due: datetime) -> RecordRow:
        moment = to_micros(self._clock())
        return RecordRow(
            tenant=stored.job.tenant,
            kind=kind,
            id=stored.job.name,
            created=moment,
            updated=moment,
            body=msgspec.json.encode(stored),
            label=stored.job.task,
            due=to_micros(due),
        )
