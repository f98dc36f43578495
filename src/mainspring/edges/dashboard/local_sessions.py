"""Runs the sessions of one person's machine when the dashboard has sent them something, and keeps
the list of what waits for the person.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from datetime import datetime

import anyio
from anyio import CapacityLimiter, Event
from anyio.abc import TaskGroup

from mainspring.core.errors import LeaseHeld, MainspringError, NotFound, SessionNotFound
from mainspring.edges.cli.run.session_runner import SessionRunner
from mainspring.log.store import all_sessions
from mainspring.service.jobs.dispatcher import Backlog, FailureHandler, Job, JobHandler
from mainspring.service.jobs.worker import WAKE_TASK
from mainspring.service.service import Service
from mainspring.service.sessions.events.preview_deltas import PreviewPublisher
from mainspring.service.views.local_records import LOCAL_TENANT

_LOG = logging.getLogger("mainspring.ui")
_MAX_RUNNING = 4  # sessions at once on one laptop
_POLL_SECONDS = 0.5  # between looks for sessions that have changed
_MAX_FIRST = 300
"""Sessions that are looked through for questions at the start; older ones rarely wait."""
OpenRunner = Callable[[str], AbstractAsyncContextManager[SessionRunner]]


@dataclass(slots=True)
class LocalDispatcher:
    """Implements `Dispatcher`: wakes sessions; there are no other jobs here."""

    _woken: list[str] = field(default_factory=list[str])
    _changed: Event = field(default_factory=Event)

    async def put(self, job: Job, *, at: datetime | None = None) -> None:
        del at
        if job.task == WAKE_TASK:
            self._woken.append(job.key)
            self._changed.set()

    async def remind(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            await self.put(job)

    async def cancel(self, task: str, key: str) -> None:
        """Nothing here waits for long."""

    async def backlog(self) -> Backlog:
        return Backlog(len(self._woken), 0.0)

    async def work(
        self,
        handle: JobHandler,
        *,
        concurrency: int,
        closing: Event,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """Not used: `LocalSessions` runs what was woken."""
        await closing.wait()

    async def next(self) -> str:
        """Wait for the next session to run."""
        while not self._woken:
            self._changed = Event()
            await self._changed.wait()
        return self._woken.pop(0)


@dataclass(slots=True)
class LocalSessions:
    service: Service
    dispatcher: LocalDispatcher
    open_runner: OpenRunner
    run_workflow: Callable[[str], Awaitable[None]]
    """Runs the nodes of a workflow run, until it has ended or waits."""
    _running: set[str] = field(default_factory=set[str], init=False)
    _limiter: CapacityLimiter = field(
        default_factory=lambda: CapacityLimiter(_MAX_RUNNING), init=False
    )

    async def work(self) -> None:
        """Run what is woken, and follow the questions of all sessions, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow_questions)
            await self._run_woken(group)

    async def _run_woken(self, group: TaskGroup) -> None:
        while True:
            session_id = await self.dispatcher.next()
            if session_id not in self._running:
                self._running.add(session_id)
                group.start_soon(self._run, session_id)

    async def _run(self, session_id: str) -> None:
        try:
            async with self._limiter:
                record = await self.service.sessions.sessions.repository.get(
                    LOCAL_TENANT, session_id
                )
                if record.workflow_run_id == session_id:
                    await self.run_workflow(session_id)
                else:
                    await self._run_session(session_id)
        except LeaseHeld:  # another process runs it, and reads what was sent
            pass
        except MainspringError as error:
            _LOG.error("%s could not be continued: %s", session_id, error)
        finally:
            self._running.discard(session_id)
        await self._catch_up(session_id)

    async def _run_session(self, session_id: str) -> None:
        async with self.open_runner(session_id) as runner:
            session = runner.session
            if session is None:
                return
            infrastructure = self.service.infrastructure
            row = await infrastructure.log.session(session_id)
            previews = PreviewPublisher(infrastructure.deltas, row, scrub=infrastructure.log.scrub)
            await session.run(previews.emit, tell=previews.on_event)

    async def _follow_questions(self) -> None:
        store = self.service.infrastructure.store
        since = self.service.views.feed.now()
        count = 0
        async for row in all_sessions(store):
            await self._catch_up(row.id)
            count += 1
            if count == _MAX_FIRST:
                break
        seen: dict[str, tuple[int, int]] = {}
        while True:
            for row in await store.changed(since=since):
                state = (row.head.seq, row.updated)
                if seen.get(row.id) != state:
                    seen[row.id] = state
                    await self._catch_up(row.id)
                since = max(since, row.updated)
            await anyio.sleep(_POLL_SECONDS)

    async def _catch_up(self, session_id: str) -> None:
        with suppress(NotFound, SessionNotFound):
            await self.service.sessions.approvals.keeper.catch_up(LOCAL_TENANT, session_id)
