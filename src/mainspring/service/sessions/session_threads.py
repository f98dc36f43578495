"""Threads of a session: the main one and those of its subagents."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.errors import InvalidInput, NotFound, StaleVersion
from mainspring.core.events import ThreadStatusTerminated
from mainspring.harness.state.session_projection import ThreadProjection
from mainspring.log.session_status import ThreadStatus
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.session_agent import InlineAgent, ThreadAgent, thread_agent
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_view import LoadedSession, UsageView, usage_view
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.metadata import copy_fields
from mainspring.service.storage.pagination import Page, Position, cut_page, decode_cursor


class ThreadStats(Struct, frozen=True, kw_only=True):
    active_seconds: float
    duration_seconds: float
    startup_seconds: float = 0.0


class ThreadObject(Struct, frozen=True, kw_only=True):
    id: str
    agent: ThreadAgent | InlineAgent
    session_id: str
    status: ThreadStatus
    created_at: datetime
    updated_at: datetime
    parent_thread_id: str | None
    workflow_run_id: str | None
    archived_at: datetime | None
    stats: ThreadStats | None
    usage: UsageView | None
    type: Literal["session_thread"] = "session_thread"


class Threads:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def page(
        self,
        principal: Principal,
        session_id: str,
        *,
        statuses: tuple[ThreadStatus, ...] = (),
        limit: int = 1000,
        page: str | None = None,
    ) -> Page[ThreadObject]:
        """The threads, oldest first. Raises: NotFound, InvalidInput."""
        session = await self._sessions.find(principal, session_id)
        all_ = [self._view(session, thread) for thread in session.projection.threads.values()]
        threads = [item for item in all_ if not statuses or item.status in statuses]
        start = 0 if page is None else decode_cursor(page, tuple[Position])[0]
        return cut_page(threads[start:], limit, lambda _: (start + limit,))

    async def get(self, principal: Principal, session_id: str, thread_id: str) -> ThreadObject:
        """Raises: NotFound."""
        session = await self._sessions.find(principal, session_id)
        return self._view(session, _find_thread(session, thread_id))

    async def archive(self, principal: Principal, session_id: str, thread_id: str) -> ThreadObject:
        """Archive a thread, so that it accepts no more events.

        Raises: NotFound, InvalidInput, StaleVersion: it runs.
        """
        session = await self._sessions.find(principal, session_id)
        thread = _find_thread(session, thread_id)
        if thread_id == session.projection.main_thread_id:
            raise InvalidInput("the main thread is archived with its session")
        if thread.status in ("running", "rescheduling"):
            raise StaleVersion(f"thread {thread_id} is running: interrupt it, then archive it")
        now = self._sessions.clock()

        def change(current: SessionRecord) -> SessionRecord:
            archived = {thread_id: now} | current.archived_threads
            return replace(current, archived_threads=archived)

        await self._sessions.repository.update(principal.tenant, session_id, change)
        terminated = ThreadStatusTerminated(
            session_thread_id=thread_id, agent_name=thread.agent_name or ""
        )
        await self._sessions.submit(
            principal, session.record, terminated, client_ids=[f"{thread_id} archived"]
        )
        return await self.get(principal, session_id, thread_id)

    def _view(self, session: LoadedSession, thread: ThreadProjection) -> ThreadObject:
        record = session.record
        is_main = thread.id == session.projection.main_thread_id
        archived_at = record.archived_threads.get(thread.id, record.archived_at)
        status: ThreadStatus = "terminated" if archived_at is not None else thread.status
        until = thread.updated_at if status == "terminated" else self._sessions.clock()
        seconds = thread.active_seconds(until)
        duration = max(0.0, (until - thread.created_at).total_seconds())
        stats = ThreadStats(active_seconds=seconds, duration_seconds=duration)
        return copy_fields(
            ThreadObject,
            thread,
            agent=thread_agent(record.agent, None if is_main else thread.agent_name),
            session_id=record.id,
            status=status,
            parent_thread_id=thread.parent_id,
            archived_at=archived_at,
            stats=stats if thread.has_begun else None,
            usage=usage_view(thread.usage, thread.cost_usd, seconds) if thread.has_idled else None,
        )


def _find_thread(session: LoadedSession, thread_id: str) -> ThreadProjection:
    thread = session.projection.threads.get(thread_id)
    if thread is None:
        raise NotFound("thread", thread_id)
    return thread
