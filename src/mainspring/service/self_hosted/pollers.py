"""Which workers have asked for work lately, counted over all processes."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import AlreadyThere, NotFound, Stale
from mainspring.log.records import Records, Remove, Wanted
from mainspring.service.keeping.drawer import Drawer, Tabs

KIND = "work_poller"
LATELY = timedelta(seconds=30)
_NOTED_EVERY = timedelta(seconds=10)
_MOST_KNOWN = 10_000


class Poller(Struct, frozen=True, kw_only=True):
    id: str
    environment_id: str
    seen_at: datetime


class Pollers:
    def __init__(self, records: Records, *, clock: Clock) -> None:
        self._drawer = Drawer(records, KIND, Poller, tabs=_tabs, clock=clock)
        self._clock = clock
        self._noted: dict[str, datetime] = {}

    async def note(self, tenant: str, environment_id: str, worker_id: str) -> None:
        now = self._clock()
        digest = hashlib.sha256(f"{tenant}\0{environment_id}\0{worker_id}".encode()).hexdigest()
        if (noted := self._noted.get(digest)) is not None and now - noted < _NOTED_EVERY:
            return
        if len(self._noted) >= _MOST_KNOWN:
            self._noted.clear()  # they are noted once more than they need be
        self._noted[digest] = now
        seen = Poller(id=digest, environment_id=environment_id, seen_at=now)
        try:
            await self._drawer.update(tenant, digest, lambda known: replace(known, seen_at=now))
        except NotFound:
            await self._forget_gone(tenant, environment_id)
            try:
                await self._drawer.put(tenant, seen)
            except AlreadyThere:
                return  # by another process, just now

    async def count(self, tenant: str, environment_id: str) -> int:
        everyone = Wanted(kind=KIND, tenant=tenant, parent=environment_id)
        every = await self._drawer.records.count(everyone)
        return every - await self._drawer.records.count(self._gone(tenant, environment_id))

    async def _forget_gone(self, tenant: str, environment_id: str) -> None:
        for gone in await self._drawer.records.list(self._gone(tenant, environment_id)):
            try:
                await self._drawer.records.write(Remove(record=gone))
            except (Stale, NotFound):
                continue  # it is back, or gone already

    def _gone(self, tenant: str, environment_id: str) -> Wanted:
        upto = to_micros(self._clock() - LATELY)
        return Wanted(kind=KIND, tenant=tenant, parent=environment_id, due_upto=upto)


def _tabs(poller: Poller) -> Tabs:
    return Tabs(parent=poller.environment_id, due=poller.seen_at)
