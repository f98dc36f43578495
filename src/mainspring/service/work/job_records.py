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
from mainspring.core.errors import AlreadyThere, NotFound, Stale, StoreCorrupt
from mainspring.log.records import Put, Record, Records, Remove, Replace, Wanted
from mainspring.service.keeping.drawer import unreadable
from mainspring.service.work.dispatch import Job

HOLD_SECONDS = 15.0

_LOG = logging.getLogger("mainspring.worker")
_WAITING = "job"
_HELD = "job_held"
_TRIES = 8


class Kept(Struct, frozen=True, kw_only=True):
    job: Job
    failures: int = 0
    holder: str = ""


_DECODER = msgspec.json.Decoder(Kept)


class JobRecords:
    def __init__(self, records: Records, *, clock: Clock, holder: str) -> None:
        self._records = records
        self._clock = clock
        self._holder = holder

    async def put(self, job: Job, at: datetime) -> None:
        """Let it wait, or wait no longer than this."""
        for _ in range(_TRIES):
            try:
                await self._records.write(Put(record=self._waiting(Kept(job=job), at)))
                return
            except AlreadyThere:
                pass
            try:
                known = await self._records.get(_WAITING, job.name)
                if known.due is not None and known.due > to_micros(at):
                    await self._records.write(Replace(record=replace(known, due=to_micros(at))))
                return
            except (Stale, NotFound):
                continue
        raise Stale(f"job {job.name}: others kept changing it; try again")

    async def waits(self, name: str) -> bool:
        try:
            await self._records.get(_WAITING, name)
        except NotFound:
            return False
        return True

    async def cancel(self, name: str) -> None:
        for _ in range(_TRIES):
            try:
                await self._records.write(Remove(record=await self._records.get(_WAITING, name)))
            except Stale:
                continue
            except NotFound:
                pass
            return

    async def due(self, upto: datetime, *, limit: int) -> list[tuple[Job, datetime]]:
        """What is to be done by then, the longest due first, with its time."""
        found = await self._records.list(
            Wanted(kind=_WAITING, due_upto=to_micros(upto), limit=limit)
        )
        return [(kept.job, from_micros(each.due or 0)) for each, kept in _readable(found)]

    async def take(self, name: str) -> Kept | None:
        """`None` if it is gone, or somebody does one of that name already."""
        try:
            waiting = await self._records.get(_WAITING, name)
            kept = msgspec.structs.replace(_kept(waiting), holder=self._holder)
            held = self._record(_HELD, kept, self._until())
            await self._records.write(Remove(record=waiting), Put(record=held))
        except (Stale, NotFound, AlreadyThere):
            return None
        return kept

    async def renew(self, name: str) -> None:
        held = await self._ours(name)
        if held is not None:
            await self._records.write(Replace(record=replace(held, due=to_micros(self._until()))))

    async def finish(self, name: str) -> None:
        for _ in range(_TRIES):
            held = await self._ours(name)
            try:
                if held is not None:
                    await self._records.write(Remove(record=held))
                return
            except (Stale, NotFound):
                continue

    async def postpone(self, name: str, *, at: datetime, is_failure: bool) -> None:
        for _ in range(_TRIES):
            held = await self._ours(name)
            if held is None or await self._given_back(held, at, is_failure=is_failure):
                return

    async def rescue(self) -> None:
        """Let wait again what was held by those who died."""
        now = self._clock()
        found = await self._records.list(Wanted(kind=_HELD, due_upto=to_micros(now)))
        for held, _ in _readable(found):
            await self._given_back(held, now, is_failure=True)

    async def _given_back(self, held: Record, at: datetime, *, is_failure: bool) -> bool:
        kept = _kept(held)
        kept = Kept(job=kept.job, failures=kept.failures + is_failure)
        try:
            await self._records.write(Remove(record=held), Put(record=self._waiting(kept, at)))
        except AlreadyThere:  # one was put meanwhile, and does for both
            try:
                await self._records.write(Remove(record=held))
            except (Stale, NotFound):
                return False
        except (Stale, NotFound):
            return False
        return True

    async def _ours(self, name: str) -> Record | None:
        try:
            held = await self._records.get(_HELD, name)
        except NotFound:
            return None
        return held if _kept(held).holder == self._holder else None

    def _until(self) -> datetime:
        return self._clock() + timedelta(seconds=HOLD_SECONDS)

    def _waiting(self, kept: Kept, at: datetime) -> Record:
        return self._record(_WAITING, kept, at)

    def _record(self, kind: str, kept: Kept, due: datetime) -> Record:
        moment = to_micros(self._clock())
        return Record(
            tenant=kept.job.tenant,
            kind=kind,
            id=kept.job.name,
            created=moment,
            updated=moment,
            body=msgspec.json.encode(kept),
            label=kept.job.task,
            due=to_micros(due),
        )


def _kept(record: Record) -> Kept:
    try:
        return _DECODER.decode(record.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unreadable(record) from error


def _readable(found: Iterable[Record]) -> Generator[tuple[Record, Kept]]:
    """What cannot be read is passed over: it must not hold up all other jobs."""
    for record in found:
        try:
            yield record, _kept(record)
        except StoreCorrupt as error:
            _LOG.error("%s", error)
