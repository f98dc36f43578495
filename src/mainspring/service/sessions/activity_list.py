"""What the sessions of a tenant do now, or why they wait. It reads no log: a page takes three
statements, whatever its length."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from mainspring.core.ids import AgentId
from mainspring.log.session_activity import ThreadStatus
from mainspring.runtime.session.activity_line import ActivityLine, WaitsFor, read_lines
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.session_listing import ListSessions, PagePosition, sessions_query
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Limit, Page, cut_page, decode_cursor
from mainspring.service.storage.repository import row_at


class ListActivity(Struct, frozen=True, kw_only=True):
    agent_id: AgentId | None = None
    limit: Limit = 100
    page: str | None = None


class SessionNow(Struct, frozen=True, kw_only=True):
    session_id: str
    status: ThreadStatus
    """As the session has it."""
    text: str
    """What it does, or what it waits for."""
    waits_for: WaitsFor | None
    """`null`: it works."""
    since: datetime
    type: Literal["session_activity"] = "session_activity"


class ActivityList:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def page(self, principal: Principal, request: ListActivity) -> Page[SessionNow]:
        """Sessions that are not archived, newest first. Raises: InvalidInput: a wrong cursor."""
        log = self._sessions.log
        agent_id = principal.agent_id or request.agent_id
        if request.agent_id not in (None, agent_id):
            return Page(data=[])
        query = sessions_query(
            principal.tenant, ListSessions(agent_id=agent_id, limit=request.limit), _start(request)
        )
        page = cut_page(await log.store.records.ids(query), request.limit, lambda item: item)
        rows = {row.id: row for row in await log.store.rows([id_ for _, id_ in page.data])}
        present = [rows[id_] for _, id_ in page.data if id_ in rows]  # one may just be deleted
        lines = await read_lines(log, present)
        views = [
            _view(line, (await log.activity(row)).status)
            for line, row in zip(lines, present, strict=True)
        ]
        return Page(data=views, next_page=page.next_page)


def _start(request: ListActivity) -> PagePosition:
    if request.page is None:
        return PagePosition()
    return PagePosition(after=row_at(*decode_cursor(request.page, tuple[int, str])))


def _view(line: ActivityLine, status: ThreadStatus) -> SessionNow:
    return SessionNow(
        session_id=line.session_id,
        status=status,
        text=line.text,
        waits_for=line.waits_for,
        since=line.since,
    )
