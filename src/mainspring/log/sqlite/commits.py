"""Writing to a SQLite file: jobs in shared transactions, retries while other processes hold the
lock, and short calls run inline or in a thread.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar, cast

import anyio
from msgspec import Struct

from mainspring.core.errors import LogError, ServiceError, StoreUnavailable
from mainspring.log.group_commit import GroupCommit
from mainspring.log.sqlite.connect import BUSY_SECONDS, translate_errors

R = TypeVar("R")

_QUICK_SECONDS = 0.003  # the event loop may be blocked so long; a slower call moves the next ones
_QUICK_SECONDS_ALONE = 0.01
"""For a lone writer, which delays nobody: switching to a thread and back costs as much as a
commit."""
_MIN_PENALTY, _MAX_PENALTY = 8, 1024  # calls in a thread after a slow one, and at most


class AdaptiveThreads:
    """Runs short calls inline. After a slow call, the next calls run in a thread; each further slow
    call doubles their number."""

    def __init__(self) -> None:
        self._in_thread = 0
        self._penalty = _MIN_PENALTY

    async def run(self, work: Callable[[], R], *, quick_seconds: float = _QUICK_SECONDS) -> R:
        if self._in_thread:
            self._in_thread -= 1
            return await anyio.to_thread.run_sync(work)
        start = time.perf_counter()
        try:
            return work()
        finally:
            if time.perf_counter() - start > quick_seconds:
                self._in_thread = self._penalty
                self._penalty = min(self._penalty * 2, _MAX_PENALTY)
            else:
                self._penalty = max(self._penalty - 1, _MIN_PENALTY)


T = TypeVar("T")

_LOCKED_SECONDS = 0.002  # between attempts while another process writes
_DATA_VERSION = "pragma data_version"


class _Job(Struct, Generic[T]):
    """One writer's statements and, afterwards, their result."""

    work: Callable[[sqlite3.Connection], T]
    is_long: bool
    outcome: tuple[T] | Exception | None = None


class CommitQueue:
    """The writing connection. Concurrent writers share one transaction."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, is_alone: Callable[[], bool]
    ) -> None:
        """`is_alone`: whether no other task of this process needs the event loop."""
        self.is_alone = is_alone
        self.count = 0
        """The number of committed jobs."""
        self._path = path
        self._connection = connection
        self._group: GroupCommit[_Job[object]] = GroupCommit(self._commit, is_alone=is_alone)
        self._adaptive_threads = AdaptiveThreads()
        self._is_committing = False
        self._is_version_due = False
        self._foreign_version = 0
        connection.execute("pragma busy_timeout = 0")  # we wait without blocking the event loop

    def foreign_version(self) -> int:
        """SQLite's data version, which changes with every commit of another connection."""
        if self._is_committing:  # a thread may use the connection: the next commit reads it
            self._is_version_due = True
        else:
            with translate_errors(self._path):
                self._foreign_version = self._connection.execute(_DATA_VERSION).fetchone()[0]
        return self._foreign_version

    async def run(self, work: Callable[[sqlite3.Connection], T], *, is_long: bool = False) -> T:
        """Do `work` in a transaction that is on disk when this returns.

        `is_long`: the work would block the event loop, so it runs in a thread.
        """
        job = _Job(work, is_long)
        await self._group.run(cast("_Job[object]", job))
        assert job.outcome is not None
        if isinstance(job.outcome, Exception):
            raise job.outcome
        return job.outcome[0]

    def close(self) -> None:
        self._connection.close()

    async def _commit(self, jobs: Sequence[_Job[object]]) -> None:
        """Retry until the commit succeeds or takes too long."""
        deadline = time.monotonic() + BUSY_SECONDS
        is_long = any(job.is_long for job in jobs)
        quick_seconds = _QUICK_SECONDS_ALONE if self.is_alone() else _QUICK_SECONDS
        run = (
            anyio.to_thread.run_sync
            if is_long
            else partial(self._adaptive_threads.run, quick_seconds=quick_seconds)
        )
        self._is_committing = True
        try:
            while not await run(partial(self._attempt, jobs)):
                if time.monotonic() > deadline:
                    locked = f"another process kept it locked for {BUSY_SECONDS:.0f} s"
                    for job in jobs:
                        job.outcome = job.outcome or StoreUnavailable(f"{self._path}: {locked}")
                    return
                await anyio.sleep(_LOCKED_SECONDS)
            self.count += len(jobs)
        finally:
            self._is_committing = False

    def _attempt(self, jobs: Sequence[_Job[object]]) -> bool:
        """Run all jobs in one transaction; if it fails, each in its own, so that a job fails alone.

        Returns false while another process has the file locked. Jobs that have not run have no
        outcome.
        """
        pending = [job for job in jobs if job.outcome is None]
        try:
            with translate_errors(self._path):
                return self._transact(pending)
        except Exception as error:  # noqa: BLE001 (raised again in `run`)
            if len(pending) == 1:
                pending[0].outcome = error
                return True
        return all(self._attempt([job]) for job in pending)

    def _note_version(self, db: sqlite3.Connection) -> None:
        """For `foreign_version`, which must not use the connection meanwhile."""
        if self._is_version_due:
            self._is_version_due = False
            self._foreign_version = db.execute(_DATA_VERSION).fetchone()[0]

    def _transact(self, jobs: Sequence[_Job[object]]) -> bool:
        db = self._connection
        try:
            db.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return False
            raise
        outcomes: list[tuple[object] | LogError | ServiceError] = []
        try:
            self._note_version(db)
            for job in jobs:
                try:
                    outcomes.append((job.work(db),))
                except (LogError, ServiceError) as error:  # raised before anything is written
                    outcomes.append(error)
            db.execute("commit")
        except BaseException:
            if db.in_transaction:
                db.execute("rollback")
            raise
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.outcome = outcome
        return True
