"""Jobs as records: those that wait and those that somebody does, each under its own name.

Whoever takes one moves it from the first to the second in one write, so that of two processes
one gets it. What is held must be renewed; else its holder has died, and it waits again.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from mainspring.core.clock import Clock, from_micros, to_micros
from mainspring.core.errors import AlreadyExists, NotFound, StaleVersion, StoreCorrupt
from mainspring.log.records import Put, RecordQuery, RecordRow, Records, Remove, Replace
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.storage.repository import unreadable_record

HOLD_SECONDS = 15.0

_LOG = logging.getLogger("mainspring.worker")
_WAITING_KIND = "job"
_RUNNING_KIND = "job_held"
_TRIES = 8


class StoredJob(Struct, frozen=True, kw_only=True):
    job: Job
    failures: int = 0
    holder: str = ""


_DECODER = msgspec.json.Decoder(StoredJob)


class JobRecords:
    def __init__(self, records: Records, *, clock: Clock, holder: str) -> None:
        self._records = records
        self._clock = clock
        self._holder = holder

    async def put(self, job: Job, at: datetime) -> None:
        """Let it wait, or wait no longer than this."""
        for _ in range(_TRIES):
            try:
                await self._records.write(Put(record_row=self._waiting(StoredJob(job=job), at)))
                return
            except AlreadyExists:
                pass
            try:
                current = await self._records.get(_WAITING_KIND, job.name)
                if current.due is not None and current.due > to_micros(at):
                    await self._records.write(
                        Replace(record_row=replace(current, due=to_micros(at)))
                    )
                return
            except (StaleVersion, NotFound):
                continue
        raise StaleVersion(f"job {job.name}: others kept changing it; try again")

    async def waits(self, name: str) -> bool:
        try:
            await self._records.get(_WAITING_KIND, name)
        except NotFound:
            return False
        return True

    async def cancel(self, name: str) -> None:
        for _ in range(_TRIES):
            try:
                await self._records.write(
                    Remove(record_row=await self._records.get(_WAITING_KIND, name))
                )
            except StaleVersion:
                continue
            except NotFound:
                pass
            return

    async def due(self, upto: datetime, *, limit: int) -> list[tuple[Job, datetime]]:
        """Jobs due by then with their times, the longest due first."""
        found = await self._records.list(
            RecordQuery(kind=_WAITING_KIND, due_upto=to_micros(upto), limit=limit)
        )
        return [(kept.job, from_micros(each.due or 0)) for each, kept in _readable_jobs(found)]

    async def take(self, name: str) -> StoredJob | None:
        """`None` if it is gone, or a job of that name runs already."""
        try:
            waiting = await self._records.get(_WAITING_KIND, name)
            kept = msgspec.structs.replace(_decode(waiting), holder=self._holder)
            held = self._record(_RUNNING_KIND, kept, self._until())
            await self._records.write(Remove(record_row=waiting), Put(record_row=held))
        except (StaleVersion, NotFound, AlreadyExists):
            return None
        return kept

    async def renew(self, name: str) -> None:
        held = await self._own_record(name)
        if held is not None:
            await self._records.write(
                Replace(record_row=replace(held, due=to_micros(self._until())))
            )

    async def finish(self, name: str) -> None:
        for _ in range(_TRIES):
            held = await self._own_record(name)
            try:
                if held is not None:
                    await self._records.write(Remove(record_row=held))
                return
            except (StaleVersion, NotFound):
                continue

    async def postpone(self, name: str, *, at: datetime, is_failure: bool) -> None:
        for _ in range(_TRIES):
            held = await self._own_record(name)
            if held is None or await self._give_back(held, at, is_failure=is_failure):
                return

    async def release_expired(self) -> None:
        """Enqueue jobs again whose worker died."""
        now = self._clock()
        found = await self._records.list(RecordQuery(kind=_RUNNING_KIND, due_upto=to_micros(now)))
        for held, _ in _readable_jobs(found):
            await self._give_back(held, now, is_failure=True)

    async def _give_back(self, held: RecordRow, at: datetime, *, is_failure: bool) -> bool:
        kept = _decode(held)
        kept = StoredJob(job=kept.job, failures=kept.failures + is_failure)
        try:
            await self._records.write(
                Remove(record_row=held), Put(record_row=self._waiting(kept, at))
            )
        except AlreadyExists:  # another was put in the meantime and serves for both
            try:
                await self._records.write(Remove(record_row=held))
            except (StaleVersion, NotFound):
                return False
        except (StaleVersion, NotFound):
            return False
        return True

    async def _own_record(self, name: str) -> RecordRow | None:
        try:
            held = await self._records.get(_RUNNING_KIND, name)
        except NotFound:
            return None
        return held if _decode(held).holder == self._holder else None

    def _until(self) -> datetime:
        return self._clock() + timedelta(seconds=HOLD_SECONDS)

    def _waiting(self, stored_job: StoredJob, at: datetime) -> RecordRow:
        return self._record(_WAITING_KIND, stored_job, at)

    def _record(self, kind: str, stored_job: StoredJob, due: datetime) -> RecordRow:
        moment = to_micros(self._clock())
        return RecordRow(
            tenant=stored_job.job.tenant,
            kind=kind,
            id=stored_job.job.name,
            created=moment,
            updated=moment,
            body=msgspec.json.encode(stored_job),
            label=stored_job.job.task,
            due=to_micros(due),
        )


def _decode(row: RecordRow) -> StoredJob:
    try:
        return _DECODER.decode(row.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unreadable_record(row) from error


def _readable_jobs(found: Iterable[RecordRow]) -> Generator[tuple[RecordRow, StoredJob]]:
    """Unreadable records are skipped: they must not block other jobs."""
    for record in found:
        try:
            yield record, _decode(record)
        except StoreCorrupt as error:
            _LOG.error("%s", error)
