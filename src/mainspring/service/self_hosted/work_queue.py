"""The work queue of self-hosted environments: items are offered, leased to one worker, and
reclaimed when it goes silent; which workers have polled lately.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from datetime import datetime, timedelta
from typing import TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import AlreadyExists, InvalidInput, NotFound, StaleVersion
from mainspring.log.records import RecordQuery, RecordRow, Records, Remove
from mainspring.service.access.principal import Principal
from mainspring.service.resources.environments import Environments, SelfHostedConfig
from mainspring.service.self_hosted.work_item import (
    RECLAIM,
    Heartbeat,
    HeartbeatParams,
    LeaseTimes,
    PollParams,
    QueueStats,
    StoredWorkItem,
    UpdateWorkItem,
    WorkItem,
    acknowledge,
    apply_heartbeat,
    heartbeat_reply,
    index_columns,
    mark_polled,
    mark_stopped,
    new_work_item,
    next_work_item,
    request_stop,
)
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.metadata import patch_metadata
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import IndexColumns, ListQuery, Repository

POLLER_KIND = "work_poller"
POLLER_WINDOW = timedelta(seconds=30)
_WRITE_INTERVAL = timedelta(seconds=10)
_MAX_POLLERS = 10_000


class Poller(Struct, frozen=True, kw_only=True):
    id: str
    environment_id: str
    seen_at: datetime


class Pollers:
    def __init__(self, records: Records, *, clock: Clock) -> None:
        self._repository = Repository(
            records, POLLER_KIND, Poller, columns=_poller_index_columns, clock=clock
        )
        self._clock = clock
        self._noted: dict[str, datetime] = {}

    async def note(self, tenant: str, environment_id: str, worker_id: str) -> None:
        now = self._clock()
        digest = hashlib.sha256(f"{tenant}\0{environment_id}\0{worker_id}".encode()).hexdigest()
        if (noted := self._noted.get(digest)) is not None and now - noted < _WRITE_INTERVAL:
            return
        if len(self._noted) >= _MAX_POLLERS:
            self._noted.clear()  # they are noted once more than they need be
        self._noted[digest] = now
        seen = Poller(id=digest, environment_id=environment_id, seen_at=now)
        try:
            await self._repository.update(
                tenant, digest, lambda current: replace(current, seen_at=now)
            )
        except NotFound:
            await self._forget_gone(tenant, environment_id)
            try:
                await self._repository.put(tenant, seen)
            except AlreadyExists:
                return  # by another process, just now

    async def count(self, tenant: str, environment_id: str) -> int:
        everyone = RecordQuery(kind=POLLER_KIND, tenant=tenant, parent=environment_id)
        every = await self._repository.records.count(everyone)
        return every - await self._repository.records.count(self._gone(tenant, environment_id))

    async def _forget_gone(self, tenant: str, environment_id: str) -> None:
        for gone in await self._repository.records.list(self._gone(tenant, environment_id)):
            try:
                await self._repository.records.write(Remove(record_row=gone))
            except (StaleVersion, NotFound):
                continue  # it is back, or gone already

    def _gone(self, tenant: str, environment_id: str) -> RecordQuery:
        upto = to_micros(self._clock() - POLLER_WINDOW)
        return RecordQuery(kind=POLLER_KIND, tenant=tenant, parent=environment_id, due_upto=upto)


def _poller_index_columns(poller: Poller) -> IndexColumns:
    return IndexColumns(parent=poller.environment_id, due=poller.seen_at)


WORK_KIND = "work"
RETENTION = timedelta(days=30)
"""How long items that have stopped are still shown."""
_BATCH = 50
_TRIES = 8

NeedsWorker: TypeAlias = Callable[[str, str], Awaitable[bool]]
"""Tenant and session: whether it runs, or waits for something that its worker has a part in."""
IssueToken: TypeAlias = Callable[[str, WorkItem], str]
"""Tenant and item: what its worker is told, and nobody else; see `WorkTokens.secret`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkQueueOptions:
    """What work is handed out on."""

    needs_worker: NeedsWorker
    issue_token: IssueToken
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)


class WorkQueue:
    def __init__(
        self,
        records: Records,
        environments: Environments,
        work_queue_options: WorkQueueOptions,
        *,
        clock: Clock = clocks.now,
        new_id: Callable[[str], str] = ids.new_id,
    ) -> None:
        self._repository = Repository(
            records, WORK_KIND, StoredWorkItem, columns=index_columns, clock=clock
        )
        self._environments = environments
        self._pollers = Pollers(records, clock=clock)
        self._work_queue_options = work_queue_options
        self._clock = clock
        self._new_id = new_id
        self._arrivals: dict[str, anyio.Event] = {}

    async def offer(self, tenant: str, environment_id: str, session_id: str) -> None:
        """Have a worker look after a session; nothing changes if one is to already."""
        held = new_work_item(self._new_id("work"), environment_id, session_id, self._clock())
        try:
            await self._repository.put(tenant, held)
        except AlreadyExists:
            return
        self._work_event(environment_id)

    async def offer_session(self, tenant: str, session: SessionRecord) -> None:
        """Offer a session whose tools the client runs; others need no worker of a client."""
        if isinstance(session.environment, SelfHostedConfig):
            await self.offer(tenant, session.environment_id, session.id)

    async def withdraw(self, tenant: str, environment_id: str, session_id: str) -> None:
        """Of a session that is over: whoever works on it is told to stop."""
        try:
            held = await self._repository.named(tenant, session_id, parent=environment_id)
            await self._repository.update(
                tenant, held.id, lambda current: request_stop(current, self._clock())
            )
        except (NotFound, StaleVersion):
            return  # nobody was

    async def poll(
        self, tenant: str, environment_id: str, params: PollParams, *, worker_id: str | None = None
    ) -> WorkItem | None:
        """The item that has waited longest, for one who asks; `None` if there is none so long.

        Raises: NotFound, InvalidInput: it is no environment for workers.
        """
        await self._require(tenant, environment_id)
        if worker_id is not None:
            await self._pollers.note(tenant, environment_id, worker_id)
        deadline = time.monotonic() + (params.block_ms or 0) / 1000
        while True:
            arrival = self._arrivals.setdefault(environment_id, anyio.Event())
            left = deadline - time.monotonic()
            if (work := await self._claim(tenant, environment_id, params.reclaim)) is not None:
                return replace(work, secret=self._work_queue_options.issue_token(tenant, work))
            if left <= 0:
                return None
            with anyio.move_on_after(left):  # never around a claim: it would be lost with it
                await arrival.wait()

    async def acknowledge(self, tenant: str, environment_id: str, work_id: str) -> WorkItem:
        """Raises: NotFound, Stale: another has it."""
        return await self._changed(
            tenant,
            environment_id,
            work_id,
            lambda held: acknowledge(held, self._clock(), self._work_queue_options.lease_times),
        )

    async def heartbeat(
        self, tenant: str, environment_id: str, work_id: str, params: HeartbeatParams
    ) -> Heartbeat:
        """Raises: NotFound, HeartbeatRefused."""
        beating: StoredWorkItem | None = None

        def change(item: StoredWorkItem) -> StoredWorkItem:
            nonlocal beating
            beating = apply_heartbeat(
                item, self._clock(), params, self._work_queue_options.lease_times
            )
            return beating

        await self._changed(tenant, environment_id, work_id, change)
        assert beating is not None
        return heartbeat_reply(beating)

    async def stop(
        self, tenant: str, environment_id: str, work_id: str, *, force: bool = False
    ) -> WorkItem:
        """At once with `force`; else whoever works on it is told. If its session is not done, the
        next item for it is queued: what ends a session's work is an interrupt.

        Raises: NotFound, Stale: it has stopped already.
        """
        for _ in range(_TRIES):
            record, held = await self._load(tenant, environment_id, work_id)
            now = self._clock()
            over = mark_stopped(held, now) if force else request_stop(held, now)
            if await self._write(record, over):
                return over.work
        raise StaleVersion(f"work {work_id}: others kept changing it; try again")

    async def get(self, tenant: str, environment_id: str, work_id: str) -> WorkItem:
        """Raises: NotFound."""
        return (await self._load(tenant, environment_id, work_id))[1].work

    async def update(
        self, tenant: str, environment_id: str, work_id: str, request: UpdateWorkItem
    ) -> WorkItem:
        """Raises: NotFound, InvalidInput."""
        return await self._changed(
            tenant,
            environment_id,
            work_id,
            lambda held: replace(
                held,
                work=replace(
                    held.work, metadata=patch_metadata(held.work.metadata, request.metadata)
                ),
            ),
        )

    async def page(self, tenant: str, environment_id: str, list_query: ListQuery) -> Page[WorkItem]:
        """Raises: NotFound, InvalidInput."""
        await self._require(tenant, environment_id)
        found = await self._repository.page(tenant, list_query)
        return Page(data=[held.work for held in found.data], next_page=found.next_page)

    async def stats(self, tenant: str, environment_id: str) -> QueueStats:
        """Raises: NotFound, InvalidInput."""
        await self._require(tenant, environment_id)
        alive = RecordQuery(
            kind=WORK_KIND, tenant=tenant, label=environment_id, order="asc", limit=1000
        )
        queued: list[StoredWorkItem] = []
        async with aclosing(self._list_items(alive)) as found:
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

    async def delete_expired(self) -> None:
        """Forget what has stopped long ago; any process may, at any time."""
        upto = to_micros(self._clock() - RETENTION)
        old = RecordQuery(
            kind=WORK_KIND, is_archived=True, created_upto=upto, order="asc", limit=_BATCH
        )
        while found := await self._repository.records.list(old):
            try:
                await self._repository.records.write(*(Remove(record_row=item) for item in found))
            except (StaleVersion, NotFound):
                continue  # another does the same

    async def _claim(self, tenant: str, environment_id: str, reclaim: timedelta) -> WorkItem | None:
        now = self._clock()
        upto = to_micros(now + max(RECLAIM - reclaim, timedelta()))
        due = RecordQuery(
            kind=WORK_KIND, tenant=tenant, label=environment_id, due_upto=upto, limit=_BATCH
        )
        async with aclosing(self._list_items(due)) as found:
            async for record, held in found:
                if not held.is_free(now, reclaim):
                    continue
                if held.work.state == "stopping":  # and whoever was to stop has gone silent
                    await self._write(record, mark_stopped(held, now))
                elif await self._write(record, handed := mark_polled(held, now)):
                    return handed.work
        return None

    async def _list_items(
        self, record_query: RecordQuery
    ) -> AsyncGenerator[tuple[RecordRow, StoredWorkItem], None]:
        records = self._repository.records
        while found := await records.list(record_query):
            for record in found:
                yield record, self._repository.read(record)
            if len(found) < record_query.limit:
                return
            record_query = dataclass_replace(record_query, after=found[-1])

    async def _write(self, row: RecordRow, item: StoredWorkItem) -> bool:
        """Whether nobody else was faster. With what is over, the next one for its session."""
        write, tenant = self._repository.records.write, row.tenant
        try:
            if item.work.state != "stopped":
                await write(self._repository.replace_change(row, item))
                return True
            wanted = await self._work_queue_options.needs_worker(tenant, item.work.data.id)
            more = [self._repository.put_change(tenant, self._next(item))] if wanted else []
            await write(self._repository.replace_change(row, item), *more)
        except (StaleVersion, NotFound):
            return False
        if not wanted and await self._work_queue_options.needs_worker(tenant, item.work.data.id):
            # it came to be wanted while this was not yet over, so that nothing was offered
            await self.offer(tenant, item.work.environment_id, item.work.data.id)
        self._work_event(item.work.environment_id)
        return True

    def _next(self, item: StoredWorkItem) -> StoredWorkItem:
        return next_work_item(item, self._new_id("work"), self._clock())

    async def _changed(
        self,
        tenant: str,
        environment_id: str,
        work_id: str,
        change: Callable[[StoredWorkItem], StoredWorkItem],
    ) -> WorkItem:
        await self._load(tenant, environment_id, work_id)
        return (await self._repository.update(tenant, work_id, change)).work

    async def _load(
        self, tenant: str, environment_id: str, work_id: str
    ) -> tuple[RecordRow, StoredWorkItem]:
        record = await self._repository.record(tenant, work_id)
        if record.parent != environment_id:
            raise NotFound(WORK_KIND, work_id)
        return record, self._repository.read(record)

    async def _require(self, tenant: str, environment_id: str) -> None:
        environment = await self._environments.get(tenant, environment_id)
        if not isinstance(environment.config, SelfHostedConfig):
            raise InvalidInput(
                f"environment_id: {environment_id} is not self_hosted; it has no workers of yours"
            )

    def _work_event(self, environment_id: str) -> None:
        if (arrival := self._arrivals.pop(environment_id, None)) is not None:
            arrival.set()


def needs_worker(sessions: Sessions) -> NeedsWorker:
    async def is_wanted(tenant: str, session_id: str) -> bool:
        """It runs, or something was sent to it, or it waits for somebody's word or result."""
        who = Principal(tenant=tenant, key_id="work", role="viewer", name="the work queue")
        try:
            standing = await sessions.find(who, session_id)
        except NotFound:
            return False
        if standing.record.archived_at is not None or standing.status == "terminated":
            return False
        is_waiting = any(thread.calls for thread in standing.digest.threads.values())
        return is_waiting or standing.status != "idle" or standing.has_pending_input

    return is_wanted
