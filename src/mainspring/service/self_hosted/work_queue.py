"""The work queue of self-hosted environments: items are offered, leased to one worker, and
reclaimed when it goes silent; and which workers have polled recently."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
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
from mainspring.log.records import RecordChange, RecordQuery, RecordRow, Records, Remove
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
POLLER_WINDOW = timedelta(seconds=30)  # since its last request a worker counts as connected
_WRITE_INTERVAL = timedelta(seconds=10)  # between two writes of that time
_MAX_POLLERS = 10_000  # remembered
_TRIES = 8  # updates of an item that others claim, too


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
        if (noted_at := self._noted.get(digest)) is not None and now - noted_at < _WRITE_INTERVAL:
            return
        if len(self._noted) >= _MAX_POLLERS:
            self._noted.clear()  # some are written more often than needed
        self._noted[digest] = now
        if await self._repository.find(tenant, digest) is None:
            for row in await self._repository.records.list(self._gone(tenant, environment_id)):
                await self._repository.remove_row(row)
        poller = Poller(id=digest, environment_id=environment_id, seen_at=now)
        await self._repository.save(tenant, poller)

    async def count(self, tenant: str, environment_id: str) -> int:
        query = RecordQuery(kind=POLLER_KIND, tenant=tenant, parent=environment_id)
        total = await self._repository.records.count(query)
        return total - await self._repository.records.count(self._gone(tenant, environment_id))

    def _gone(self, tenant: str, environment_id: str) -> RecordQuery:
        upto = to_micros(self._clock() - POLLER_WINDOW)
        return RecordQuery(kind=POLLER_KIND, tenant=tenant, parent=environment_id, due_upto=upto)


def _poller_index_columns(poller: Poller) -> IndexColumns:
    return IndexColumns(parent=poller.environment_id, due=poller.seen_at)


WORK_KIND = "work"
_LEASE_TIMES = LeaseTimes()
RETENTION = timedelta(days=30)
"""How long stopped items are still shown."""
_BATCH = 50  # items read at once

NeedsWorker: TypeAlias = Callable[[str, str], Awaitable[bool]]
"""Whether a session (of a tenant) runs, or waits for something that involves its worker."""
IssueToken: TypeAlias = Callable[[str, WorkItem], str]
"""The secret for the worker of a tenant's item; see `WorkTokens.secret`."""


class WorkQueue:
    def __init__(
        self,
        records: Records,
        environments: Environments,
        *,
        needs_worker: NeedsWorker,
        issue_token: IssueToken,
        lease_times: LeaseTimes = _LEASE_TIMES,
        clock: Clock = clocks.now,
    ) -> None:
        self._repository = Repository(
            records, WORK_KIND, StoredWorkItem, columns=index_columns, clock=clock
        )
        self._environments = environments
        self._pollers = Pollers(records, clock=clock)
        self._needs_worker = needs_worker
        self._issue_token = issue_token
        self._lease_times = lease_times
        self._clock = clock
        self._arrivals: dict[str, anyio.Event] = {}

    async def offer(self, tenant: str, environment_id: str, session_id: str) -> None:
        """Queue a session for a worker, unless there is already an item for it."""
        item = new_work_item(ids.new_id("work"), environment_id, session_id, self._clock())
        with suppress(AlreadyExists):
            await self._repository.put(tenant, item)
            self._signal(environment_id)

    async def offer_session(self, tenant: str, session: SessionRecord) -> None:
        """Offer a session whose tools the client runs; others need no client's worker."""
        if isinstance(session.environment, SelfHostedConfig):
            await self.offer(tenant, session.environment_id, session.id)

    async def withdraw(self, tenant: str, environment_id: str, session_id: str) -> None:
        """Stop the worker of a session that has ended."""
        with suppress(NotFound, StaleVersion):  # it has no worker
            item = await self._repository.named(tenant, session_id, parent=environment_id)
            await self._repository.update(
                tenant, item.id, lambda current: request_stop(current, self._clock())
            )

    async def poll(
        self, tenant: str, environment_id: str, params: PollParams, *, worker_id: str | None = None
    ) -> WorkItem | None:
        """The item that has waited longest; `None` if none arrives in time.

        Raises: NotFound, InvalidInput: the environment is not self-hosted.
        """
        await self._require(tenant, environment_id)
        if worker_id is not None:
            await self._pollers.note(tenant, environment_id, worker_id)
        deadline = time.monotonic() + (params.block_ms or 0) / 1000
        while True:
            arrival = self._arrivals.setdefault(environment_id, anyio.Event())
            remaining = deadline - time.monotonic()
            if (work := await self._claim(tenant, environment_id, params.reclaim)) is not None:
                return replace(work, secret=self._issue_token(tenant, work))
            if remaining <= 0:
                return None
            with anyio.move_on_after(remaining):  # not around a claim, which would be lost
                await arrival.wait()

    async def acknowledge(self, tenant: str, environment_id: str, work_id: str) -> WorkItem:
        """Raises: NotFound, StaleVersion: another worker has it."""
        return await self._update(
            tenant,
            environment_id,
            work_id,
            lambda item: acknowledge(item, self._clock(), self._lease_times),
        )

    async def heartbeat(
        self, tenant: str, environment_id: str, work_id: str, params: HeartbeatParams
    ) -> Heartbeat:
        """Raises: NotFound, HeartbeatRefused."""
        updated: StoredWorkItem | None = None

        def change(item: StoredWorkItem) -> StoredWorkItem:
            nonlocal updated
            updated = apply_heartbeat(item, self._clock(), params, self._lease_times)
            return updated

        await self._update(tenant, environment_id, work_id, change)
        assert updated is not None
        return heartbeat_reply(updated)

    async def stop(
        self, tenant: str, environment_id: str, work_id: str, *, force: bool = False
    ) -> WorkItem:
        """Stop an item: at once with `force`, otherwise with the next heartbeat of its worker. If
        its session is not done, the next item for it is queued: to end the work of a session,
        interrupt it.

        Raises: NotFound, StaleVersion: it has already stopped.
        """
        for _ in range(_TRIES):
            row = await self._repository.row(tenant, work_id, parent=environment_id)
            item, now = self._repository.read(row), self._clock()
            stopped = mark_stopped(item, now) if force else request_stop(item, now)
            if await self._write(row, stopped):
                return stopped.work
        raise StaleVersion(f"work {work_id}: other requests kept changing it; try again")

    async def get(self, tenant: str, environment_id: str, work_id: str) -> WorkItem:
        """Raises: NotFound."""
        return (await self._repository.get(tenant, work_id, parent=environment_id)).work

    async def update(
        self, tenant: str, environment_id: str, work_id: str, request: UpdateWorkItem
    ) -> WorkItem:
        """Raises: NotFound, InvalidInput."""

        def change(item: StoredWorkItem) -> StoredWorkItem:
            metadata = patch_metadata(item.work.metadata, request.metadata)
            return replace(item, work=replace(item.work, metadata=metadata))

        return await self._update(tenant, environment_id, work_id, change)

    async def page(self, tenant: str, environment_id: str, query: ListQuery) -> Page[WorkItem]:
        """Raises: NotFound, InvalidInput."""
        await self._require(tenant, environment_id)
        return (await self._repository.page(tenant, query)).map(lambda item: item.work)

    async def stats(self, tenant: str, environment_id: str) -> QueueStats:
        """Raises: NotFound, InvalidInput."""
        await self._require(tenant, environment_id)
        query = RecordQuery(
            kind=WORK_KIND, tenant=tenant, label=environment_id, order="asc", limit=1000
        )
        async with aclosing(self._list_items(query)) as items:
            queued = [item async for _, item in items if item.work.state == "queued"]
        pending = sum(item.polled_at is not None for item in queued)
        return QueueStats(
            depth=len(queued) - pending,
            pending=pending,
            oldest_queued_at=queued[0].work.created_at if queued else None,
            workers_polling=await self._pollers.count(tenant, environment_id),
        )

    async def delete_expired(self) -> None:
        """Delete items that stopped long ago. Any process may call it, at any time."""
        upto = to_micros(self._clock() - RETENTION)
        old = RecordQuery(
            kind=WORK_KIND, is_archived=True, created_upto=upto, order="asc", limit=_BATCH
        )
        while rows := await self._repository.records.list(old):
            with suppress(StaleVersion, NotFound):  # another process does the same
                await self._repository.records.write(*(Remove(row=row) for row in rows))

    async def _claim(self, tenant: str, environment_id: str, reclaim: timedelta) -> WorkItem | None:
        now = self._clock()
        upto = to_micros(now + max(RECLAIM - reclaim, timedelta()))
        due = RecordQuery(
            kind=WORK_KIND, tenant=tenant, label=environment_id, due_upto=upto, limit=_BATCH
        )
        async with aclosing(self._list_items(due)) as items:
            async for row, item in items:
                if not item.is_free(now, reclaim):
                    continue
                if item.work.state == "stopping":  # and its worker went silent
                    await self._write(row, mark_stopped(item, now))
                elif await self._write(row, polled := mark_polled(item, now)):
                    return polled.work
        return None

    async def _list_items(
        self, query: RecordQuery
    ) -> AsyncGenerator[tuple[RecordRow, StoredWorkItem], None]:
        while rows := await self._repository.records.list(query):
            for row in rows:
                yield row, self._repository.read(row)
            if len(rows) < query.limit:
                return
            query = dataclass_replace(query, after=rows[-1])

    async def _write(self, row: RecordRow, item: StoredWorkItem) -> bool:
        """Write an item; False if another process was faster. If a stopped item's session still
        needs a worker, the next item is queued."""
        records, tenant, session_id = self._repository.records, row.tenant, item.work.data.id
        changes: list[RecordChange] = [self._repository.replace_change(row, item)]
        is_stopped = item.work.state == "stopped"
        is_needed = is_stopped and await self._needs_worker(tenant, session_id)
        if is_needed:
            following = next_work_item(item, ids.new_id("work"), self._clock())
            changes.append(self._repository.put_change(tenant, following))
        try:
            await records.write(*changes)
        except (StaleVersion, NotFound):
            return False
        if is_stopped and not is_needed and await self._needs_worker(tenant, session_id):
            # it was needed before this item had stopped, so nothing was offered
            await self.offer(tenant, item.work.environment_id, session_id)
        if is_stopped:
            self._signal(item.work.environment_id)
        return True

    async def _update(
        self,
        tenant: str,
        environment_id: str,
        work_id: str,
        change: Callable[[StoredWorkItem], StoredWorkItem],
    ) -> WorkItem:
        item = await self._repository.update(tenant, work_id, change, parent=environment_id)
        return item.work

    async def _require(self, tenant: str, environment_id: str) -> None:
        environment = await self._environments.get(tenant, environment_id)
        if not isinstance(environment.config, SelfHostedConfig):
            raise InvalidInput(
                f"environment_id: {environment_id} is not self_hosted and has no work queue"
            )

    def _signal(self, environment_id: str) -> None:
        if (arrival := self._arrivals.pop(environment_id, None)) is not None:
            arrival.set()


def needs_worker(sessions: Sessions) -> NeedsWorker:
    async def check(tenant: str, session_id: str) -> bool:
        """Whether it runs, has input, or waits for an answer or a result."""
        who = Principal(tenant=tenant, key_id="work", role="viewer", name="the work queue")
        try:
            session = await sessions.find(who, session_id)
        except NotFound:
            return False
        if session.record.archived_at is not None or session.status == "terminated":
            return False
        is_waiting = any(thread.calls for thread in session.projection.threads.values())
        return is_waiting or session.status != "idle" or session.has_pending_input

    return check
