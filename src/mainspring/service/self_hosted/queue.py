"""The work of self-hosted environments: offered, handed out once, taken back from who went silent.

An item is a session's as long as a worker is to look after it; a session has one at most. What a
worker has to do is in the session's log: an item that comes twice finds nothing left to do.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from datetime import timedelta
from typing import TypeAlias

import anyio
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import AlreadyThere, InvalidInput, NotFound, Stale
from mainspring.log.records import Record, Records, Remove, Wanted
from mainspring.service.describing.environments import Environments, SelfHostedConfig
from mainspring.service.keeping.drawer import Drawer, Listing
from mainspring.service.keeping.metadata import patched
from mainspring.service.keeping.page import Page
from mainspring.service.self_hosted.item import (
    RECLAIM,
    BeatWork,
    Heartbeat,
    Held,
    Leases,
    PollWork,
    QueueStats,
    UpdateWork,
    Work,
    acknowledged,
    beaten,
    following,
    offered,
    polled,
    stop_asked,
    stopped,
    tabs,
    told,
)
from mainspring.service.self_hosted.pollers import Pollers

KIND = "work"
KEPT = timedelta(days=30)
"""How long items that have stopped are still shown."""
_LOOK = 50
_TRIES = 8

IsWanted: TypeAlias = Callable[[str, str], Awaitable[bool]]
"""Tenant and session: whether it runs, or waits for something that its worker has a part in."""
Issue: TypeAlias = Callable[[str, Work], str]
"""Tenant and item: what its worker is told, and nobody else; see `WorkTokens.secret`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What work is handed out on."""

    is_wanted: IsWanted
    issue: Issue
    leases: Leases = field(default_factory=Leases)


class WorkQueue:
    def __init__(
        self,
        records: Records,
        environments: Environments,
        terms: Terms,
        *,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._drawer = Drawer(records, KIND, Held, tabs=tabs, clock=clock)
        self._environments = environments
        self._pollers = Pollers(records, clock=clock)
        self._terms = terms
        self._clock = clock
        self._new_id = new_id
        self._arrivals: dict[str, anyio.Event] = {}

    async def offer(self, tenant: str, environment_id: str, session_id: str) -> None:
        """Have a worker look after a session; nothing changes if one is to already."""
        held = offered(self._new_id("work"), environment_id, session_id, self._clock())
        try:
            await self._drawer.put(tenant, held)
        except AlreadyThere:
            return
        self._arrived(environment_id)

    async def withdraw(self, tenant: str, environment_id: str, session_id: str) -> None:
        """Of a session that is over: whoever works on it is told to stop."""
        try:
            held = await self._drawer.named(tenant, session_id, parent=environment_id)
            await self._drawer.update(
                tenant, held.id, lambda known: stop_asked(known, self._clock())
            )
        except (NotFound, Stale):
            return  # nobody was

    async def poll(
        self, tenant: str, environment_id: str, asked: PollWork, *, worker_id: str | None = None
    ) -> Work | None:
        """The item that has waited longest, for one who asks; `None` if there is none so long.

        Raises: NotFound, InvalidInput: it is no environment for workers.
        """
        await self._require(tenant, environment_id)
        if worker_id is not None:
            await self._pollers.note(tenant, environment_id, worker_id)
        deadline = time.monotonic() + (asked.block_ms or 0) / 1000
        while True:
            arrival = self._arrivals.setdefault(environment_id, anyio.Event())
            left = deadline - time.monotonic()
            if (work := await self._claimed(tenant, environment_id, asked.reclaim)) is not None:
                return replace(work, secret=self._terms.issue(tenant, work))
            if left <= 0:
                return None
            with anyio.move_on_after(left):  # never around a claim: it would be lost with it
                await arrival.wait()

    async def acknowledge(self, tenant: str, environment_id: str, work_id: str) -> Work:
        """Raises: NotFound, Stale: another has it."""
        return await self._changed(
            tenant,
            environment_id,
            work_id,
            lambda held: acknowledged(held, self._clock(), self._terms.leases),
        )

    async def heartbeat(
        self, tenant: str, environment_id: str, work_id: str, asked: BeatWork
    ) -> Heartbeat:
        """Raises: NotFound, HeartbeatRefused."""
        beating: Held | None = None

        def change(held: Held) -> Held:
            nonlocal beating
            beating = beaten(held, self._clock(), asked, self._terms.leases)
            return beating

        await self._changed(tenant, environment_id, work_id, change)
        assert beating is not None
        return told(beating)

    async def stop(
        self, tenant: str, environment_id: str, work_id: str, *, force: bool = False
    ) -> Work:
        """At once with `force`; else whoever works on it is told. If its session is not done, the
        next item for it is queued: what ends a session's work is an interrupt.

        Raises: NotFound, Stale: it has stopped already.
        """
        for _ in range(_TRIES):
            record, held = await self._found(tenant, environment_id, work_id)
            now = self._clock()
            over = stopped(held, now) if force else stop_asked(held, now)
            if await self._written(record, over):
                return over.work
        raise Stale(f"work {work_id}: others kept changing it; try again")

    async def get(self, tenant: str, environment_id: str, work_id: str) -> Work:
        """Raises: NotFound."""
        return (await self._found(tenant, environment_id, work_id))[1].work

    async def update(
        self, tenant: str, environment_id: str, work_id: str, asked: UpdateWork
    ) -> Work:
        """Raises: NotFound, InvalidInput."""
        return await self._changed(
            tenant,
            environment_id,
            work_id,
            lambda held: replace(
                held,
                work=replace(held.work, metadata=patched(held.work.metadata, asked.metadata)),
            ),
        )

    async def page(self, tenant: str, environment_id: str, listing: Listing) -> Page[Work]:
        """Raises: NotFound, InvalidInput."""
        await self._require(tenant, environment_id)
        found = await self._drawer.page(tenant, listing)
        return Page(data=[held.work for held in found.data], next_page=found.next_page)

    async def stats(self, tenant: str, environment_id: str) -> QueueStats:
        """Raises: NotFound, InvalidInput."""
        await self._require(tenant, environment_id)
        alive = Wanted(kind=KIND, tenant=tenant, label=environment_id, order="asc", limit=1000)
        queued: list[Held] = []
        async with aclosing(self._listed(alive)) as found:
            async for _, held in found:
                if held.work.state == "queued":
                    queued.append(held)
        pending = sum(held.polled_at is not None for held in queued)
        return QueueStats(
            depth=len(queued) - pending,
            pending=pending,
            oldest_queued_at=queued[0].work.created_at if queued else None,
            workers_polling=await self._pollers.count(tenant, environment_id),
        )

    async def tidy(self) -> None:
        """Forget what has stopped long ago; any process may, at any time."""
        upto = to_micros(self._clock() - KEPT)
        old = Wanted(kind=KIND, is_archived=True, created_upto=upto, order="asc", limit=_LOOK)
        while found := await self._drawer.records.list(old):
            try:
                await self._drawer.records.write(*(Remove(record=each) for each in found))
            except (Stale, NotFound):
                continue  # another does the same

    async def _claimed(self, tenant: str, environment_id: str, reclaim: timedelta) -> Work | None:
        now = self._clock()
        upto = to_micros(now + max(RECLAIM - reclaim, timedelta()))
        due = Wanted(kind=KIND, tenant=tenant, label=environment_id, due_upto=upto, limit=_LOOK)
        async with aclosing(self._listed(due)) as found:
            async for record, held in found:
                if not held.is_free(now, reclaim):
                    continue
                if held.work.state == "stopping":  # and whoever was to stop has gone silent
                    await self._written(record, stopped(held, now))
                elif await self._written(record, handed := polled(held, now)):
                    return handed.work
        return None

    async def _listed(self, wanted: Wanted) -> AsyncGenerator[tuple[Record, Held], None]:
        records = self._drawer.records
        while found := await records.list(wanted):
            for record in found:
                yield record, self._drawer.read(record)
            if len(found) < wanted.limit:
                return
            wanted = dataclass_replace(wanted, after=found[-1])

    async def _written(self, record: Record, held: Held) -> bool:
        """Whether nobody else was faster. With what is over, the next one for its session."""
        write, tenant = self._drawer.records.write, record.tenant
        try:
            if held.work.state != "stopped":
                await write(self._drawer.replacing(record, held))
                return True
            wanted = await self._terms.is_wanted(tenant, held.work.data.id)
            more = [self._drawer.putting(tenant, self._next(held))] if wanted else []
            await write(self._drawer.replacing(record, held), *more)
        except (Stale, NotFound):
            return False
        if not wanted and await self._terms.is_wanted(tenant, held.work.data.id):
            # it came to be wanted while this was not yet over, so that nothing was offered
            await self.offer(tenant, held.work.environment_id, held.work.data.id)
        self._arrived(held.work.environment_id)
        return True

    def _next(self, held: Held) -> Held:
        return following(held, self._new_id("work"), self._clock())

    async def _changed(
        self, tenant: str, environment_id: str, work_id: str, change: Callable[[Held], Held]
    ) -> Work:
        await self._found(tenant, environment_id, work_id)
        return (await self._drawer.update(tenant, work_id, change)).work

    async def _found(self, tenant: str, environment_id: str, work_id: str) -> tuple[Record, Held]:
        record = await self._drawer.record(tenant, work_id)
        if record.parent != environment_id:
            raise NotFound(KIND, work_id)
        return record, self._drawer.read(record)

    async def _require(self, tenant: str, environment_id: str) -> None:
        environment = await self._environments.get(tenant, environment_id)
        if not isinstance(environment.config, SelfHostedConfig):
            raise InvalidInput(
                f"environment_id: {environment_id} is not self_hosted; it has no workers of yours"
            )

    def _arrived(self, environment_id: str) -> None:
        if (arrival := self._arrivals.pop(environment_id, None)) is not None:
            arrival.set()
