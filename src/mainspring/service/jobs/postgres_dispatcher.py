"""A dispatcher for any number of processes and machines: Procrastinate's queue in PostgreSQL."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, TypeVar
from weakref import WeakSet

import anyio
import psycopg
from anyio import CancelScope, Event
from procrastinate.connector import BaseAsyncConnector, Notify
from procrastinate.jobs import Job as Fetched
from procrastinate.jobs import Notification
from procrastinate.manager import JobManager
from procrastinate.schema import SchemaManager
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import StoreFailed
from mainspring.log.postgres.connect import Address, Connection, Pool, connect
from mainspring.log.task_groups import retry_unavailable, run_in_background
from mainspring.service.jobs import postgres_statements as sql
from mainspring.service.jobs.dispatcher import (
    Backlog,
    Backoff,
    FailureHandler,
    Job,
    JobHandler,
    backoff_seconds,
)
from mainspring.service.jobs.executor import ClaimedJob, JobExecutor

T = TypeVar("T")

BEAT_SECONDS = 1.0  # between signs of life; many fit into a claim
STALLED_SECONDS = 3.0
"""After this time without a heartbeat, a worker counts as dead and others take its jobs."""
_POLL_SECONDS = 1.0  # in case a notice was lost
_LOOKAHEAD_SECONDS = 60.0  # jobs due later are left in the table
_WAKE_MARGIN_SECONDS = 0.01
"""Wait slightly longer, so that a job is due when it is taken."""
_QUEUE_BYTES = 40
"""A queue's name is part of a channel's, which PostgreSQL limits to 63 bytes."""
_LOG = logging.getLogger("mainspring.worker")


class ProcrastinateConnector(BaseAsyncConnector):
    """Connects Procrastinate through our pool, which survives restarts of the database."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._ready: WeakSet[Connection] = WeakSet()

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        async def prepared(db: Connection) -> T:
            if db not in self._ready:
                await db.execute(f"set search_path to {sql.SCHEMA}")
                self._ready.add(db)
            return await work(db)

        return await self._pool.run(prepared)

    async def rows(self, statement: str, **values: object) -> list[dict[str, Any]]:
        async def ask(db: Connection) -> list[dict[str, Any]]:
            async with db.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(statement.encode(), values, prepare=True)
                return await cursor.fetchall() if cursor.description else []

        return await self.run(ask)

    async def execute_query_async(self, query: str, **arguments: object) -> None:
        await self.rows(query, **arguments)

    async def execute_query_one_async(self, query: str, **arguments: object) -> dict[str, Any]:
        [row] = await self.rows(query, **arguments)
        return row

    async def execute_query_all_async(
        self, query: str, **arguments: object
    ) -> list[dict[str, Any]]:
        return await self.rows(query, **arguments)

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        """Pass on notifications until the connection breaks."""
        connection = await connect(self._pool.address)
        try:
            for channel in channels:
                await connection.execute(f'listen "{channel}"'.encode())
            async for notification in connection.notifies():
                await on_notification(channel=notification.channel, payload=notification.payload)
        finally:
            with CancelScope(shield=True):
                await connection.close()


class PostgresDispatcher:
    """Created by `open_fleet`. One `work` at a time."""

    def __init__(
        self,
        connector: ProcrastinateConnector,
        *,
        tenant_limit: int | None,
        backoff: Backoff,
        clock: Clock = clocks.now,
    ) -> None:
        self._db = connector
        self._manager = JobManager(connector)
        self._tenant_limit = tenant_limit
        self._backoff = backoff
        self._me = 0
        self._running: set[int] = set()
        self._taking = anyio.Lock()  # a job that is being taken is not in `_running` yet
        self._changed = Event()
        self._looked = self._changed
        self._looks: list[float] = []
        """When jobs that were put here become due, within the next minute."""
        self._clock = clock

    async def put(self, job: Job, *, at: datetime | None = None) -> None:
        # a duration, not a time: the server's clock may differ from ours
        seconds = 0.0 if at is None else max((at - self._clock()).total_seconds(), 0.0)
        await retry_unavailable(lambda: self._db.rows(sql.PUT, **_job_values(job), seconds=seconds))
        if seconds:
            self._poll_in(seconds)

    async def remind(self, jobs: Sequence[Job]) -> None:
        names = [job.name for job in jobs]
        if not names:
            return
        current = {row["queueing_lock"] for row in await self._db.rows(sql.FIND_JOBS, names=names)}
        for job in jobs:
            if job.name not in current:
                await self._db.rows(sql.REMIND, **_job_values(job))

    async def cancel(self, task: str, key: str) -> None:
        name = Job(task=task, key=key, tenant="").name
        await retry_unavailable(lambda: self._db.rows(sql.CANCEL, name=name))

    async def backlog(self) -> Backlog:
        [row] = await self._db.rows(sql.BACKLOG)
        return Backlog(row["jobs"], max(0.0, row["oldest_seconds"]))

    async def work(
        self,
        handle: JobHandler,
        *,
        concurrency: int,
        closing: Event,
        on_failure: FailureHandler | None = None,
    ) -> None:
        executor = JobExecutor(self, handle, on_failure=on_failure, backoff=self._backoff)
        try:
            async with run_in_background(self._keep_up, self._listen):
                await executor.run(concurrency=concurrency, closing=closing)
        finally:
            with CancelScope(shield=True), suppress(StoreFailed):
                me, self._me = self._me, 0
                if me:
                    await self._manager.unregister_worker(me)

    async def take(self) -> ClaimedJob | None:
        async with self._taking:
            self._looked = self._changed  # later signals may be too late for this query
            if not self._me:
                self._me = await self._manager.register_worker()
            is_any, queues = await self._open_queues()
            fetched = await self._manager.fetch_job(queues, self._me) if is_any else None
            if fetched is None:
                return None
            job = _taken_job(fetched)
            self._running.add(job.ticket)
            return job

    async def finish(self, claim: ClaimedJob) -> None:
        try:
            await self._db.rows(sql.FINISH, id=claim.ticket, me=self._me)
        finally:
            self._running.discard(claim.ticket)  # at the latest, `_rescue` finds it
        self._signal()  # a job of the same name may be waiting

    async def postpone(self, claim: ClaimedJob, *, seconds: float, is_failure: bool) -> None:
        try:
            await self._db.rows(
                sql.POSTPONE,
                id=claim.ticket,
                me=self._me,
                seconds=seconds,
                failures=int(is_failure),
                queue=_queue(claim.job.tenant),
            )
        finally:
            self._running.discard(claim.ticket)
        self._poll_in(seconds)

    async def changed(self) -> None:
        """Wait for new jobs. Other processes signal jobs that are due now; later ones are found by
        polling, and on time if they were put here."""
        now = anyio.current_time()
        while self._looks and self._looks[0] <= now:
            heappop(self._looks)
        until = min([now + _POLL_SECONDS, *self._looks[:1]])
        with anyio.move_on_after(until - now):
            await self._looked.wait()

    def _poll_in(self, seconds: float) -> None:
        if self._me and seconds <= _LOOKAHEAD_SECONDS:
            heappush(self._looks, anyio.current_time() + max(seconds, 0) + _WAKE_MARGIN_SECONDS)
            self._signal()

    async def _open_queues(self) -> tuple[bool, list[str] | None]:
        """The tenants below their limit of running jobs, over the whole fleet; two workers that
        check at once may each start one more."""
        if self._tenant_limit is None:
            return True, None
        [row] = await self._db.rows(sql.OPEN_QUEUES, limit=self._tenant_limit)
        return row["array_agg"] is not None, row["array_agg"]

    def _signal(self) -> None:
        self._changed.set()
        self._changed = Event()

    async def _keep_up(self) -> None:
        while True:
            try:
                await self._beat()
                await self._rescue()
                await self._db.rows(sql.PROMOTE)
            except StoreFailed as error:
                _LOG.warning("the job queue is unavailable: %s", error)
            await anyio.sleep(BEAT_SECONDS)

    async def _beat(self) -> None:
        """Send a heartbeat. A worker that was declared dead registers as a new one."""
        async with self._taking:
            if not self._me or not await self._db.rows(sql.BEAT, me=self._me):
                self._me = await self._manager.register_worker()

    async def _rescue(self) -> None:
        """Release jobs of dead workers, and jobs that this one failed to settle. Every worker does
        this, so that one survivor is enough."""
        await self._manager.prune_stalled_workers(STALLED_SECONDS)
        async with self._taking:
            try:
                rescued = await self._db.rows(sql.RESCUE, me=self._me, running=list(self._running))
            except StoreFailed as error:
                if not isinstance(error.__cause__, psycopg.errors.UniqueViolation):
                    raise
                return  # the same name was just put: next time
        if rescued:
            self._signal()

    async def _listen(self) -> None:
        while True:
            with suppress(psycopg.Error, OSError, ValueError):  # invalid JSON: not from us
                await self._manager.listen_for_jobs(on_notification=self._on_notification)
            await anyio.sleep(BEAT_SECONDS)

    async def _on_notification(self, *, channel: str, notification: Notification) -> None:
        del channel, notification
        self._signal()


def _job_values(job: Job) -> dict[str, Any]:
    return {
        "queue": _queue(job.tenant),
        "task": job.task,
        "name": job.name,
        "args": Jsonb({"key": job.key, "tenant": job.tenant}),
    }


def _queue(tenant: str) -> str:
    if len(tenant.encode()) <= _QUEUE_BYTES:
        return tenant
    return hashlib.sha256(tenant.encode()).hexdigest()[:_QUEUE_BYTES]


def _taken_job(fetched: Fetched) -> ClaimedJob:
    assert fetched.id is not None
    arguments = fetched.task_kwargs
    job = Job(task=fetched.task_name, key=str(arguments["key"]), tenant=str(arguments["tenant"]))
    return ClaimedJob(job=job, attempt=fetched.attempts + 1, ticket=fetched.id)


@asynccontextmanager
async def open_fleet(
    url: str,
    *,
    tenant_limit: int | None = None,
    backoff: Backoff = backoff_seconds,
    max_connections: int = 4,
    clock: Clock = clocks.now,
) -> AsyncGenerator[PostgresDispatcher, None]:
    """A dispatcher on the database at `url`; Procrastinate's tables are created if necessary, in
    their own schema. `work` uses one connection more than `max_connections`.

    `tenant_limit`: how many jobs of one tenant all workers together run at once, approximately.

    Raises: InvalidInput, StoreFailed.
    """
    pool = Pool(Address.of(url), size=max_connections)
    try:
        await retry_unavailable(lambda: pool.run(_prepare))
        yield PostgresDispatcher(
            ProcrastinateConnector(pool), tenant_limit=tenant_limit, backoff=backoff, clock=clock
        )
    finally:
        with CancelScope(shield=True):
            await pool.close()


async def _prepare(db: Connection) -> None:
    async with db.transaction():
        await db.execute(sql.LOCK)
        await db.execute(sql.PREPARE)
        [is_there] = await (await db.execute(sql.TABLE_EXISTS)).fetchone() or [None]
        if is_there is None:
            await db.execute(SchemaManager.get_schema())
        await db.execute(sql.INDEX)
