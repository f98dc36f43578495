"""Lists of sessions: filtered, in pages with cursors in both directions. A page costs as much as
its sessions, whatever the number of all sessions and whatever they are filtered by.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar, get_args

from msgspec import Meta, Struct

from mainspring.core.ids import AgentId, DeploymentId, MemoryStoreId
from mainspring.core.sender import OriginType
from mainspring.log.records import SESSION_KIND, STATUS_FILTER, RecordFilter, RecordQuery, RecordRow
from mainspring.log.session_log import ENDLESS
from mainspring.log.session_status import ThreadStatus
from mainspring.service.sessions.session_record import (
    AGENT_FILTER,
    DEPLOYMENT_FILTER,
    ORIGIN_FILTER,
    STORE_FILTER,
    VERSION_FILTER,
    SessionRecord,
    version_value,
)
from mainspring.service.sessions.session_view import LoadedSession
from mainspring.service.storage.pagination import (
    Limit,
    created_bounds,
    decode_cursor,
    encode_cursor,
)
from mainspring.service.storage.repository import Repository, optional_micros, row_at

T = TypeVar("T")
_CursorType = tuple[Literal["next", "prev"], Annotated[int, Meta(ge=-ENDLESS, le=ENDLESS)], str]
_STATUSES: tuple[ThreadStatus, ...] = get_args(ThreadStatus)


class ListSessions(Struct, frozen=True, kw_only=True):
    agent_id: AgentId | None = None
    agent_version: int | None = None
    created_at_gt: datetime | None = None
    created_at_gte: datetime | None = None
    created_at_lt: datetime | None = None
    created_at_lte: datetime | None = None
    deployment_id: DeploymentId | None = None
    include_archived: bool = False
    limit: Limit = 20
    memory_store_id: MemoryStoreId | None = None
    order: Literal["asc", "desc"] = "desc"
    origin: OriginType | None = None
    """An extension: only sessions with this origin."""
    page: str | None = None
    statuses: tuple[ThreadStatus, ...] = ()


class TwoWayPage(Struct, Generic[T], frozen=True, kw_only=True):
    data: Sequence[T]
    next_page: str | None = None
    prev_page: str | None = None


@dataclass(frozen=True, slots=True)
class PagePosition:
    """Where a page begins, and in which direction it continues."""

    is_back: bool = False
    after: RecordRow | None = None


class SessionList:
    def __init__(
        self,
        repository: Repository[SessionRecord],
        load: Callable[[Sequence[SessionRecord]], Awaitable[list[LoadedSession]]],
    ) -> None:
        """`load` leaves out sessions that no longer exist."""
        self._repository = repository
        self._load = load

    async def page(self, tenant: str, request: ListSessions) -> TwoWayPage[LoadedSession]:
        """Raises: InvalidInput: a cursor of another list."""
        start = PagePosition() if request.page is None else _decode_position(request.page)
        rows = await self._repository.records.list(sessions_query(tenant, request, start))
        has_more = len(rows) > request.limit
        rows = rows[: request.limit][:: -1 if start.is_back else 1]
        has_next = start.is_back or has_more
        has_previous = has_more if start.is_back else request.page is not None
        return TwoWayPage(
            data=await self._load([self._repository.read(row) for row in rows]),
            next_page=_cursor("next", rows[-1]) if rows and has_next else None,
            prev_page=_cursor("prev", rows[0]) if rows and has_previous else None,
        )


def sessions_query(tenant: str, request: ListSessions, start: PagePosition) -> RecordQuery:
    """The records of a page, and one more if there are any. Raises: InvalidInput."""
    lower, upper = created_bounds(request)
    is_ascending = (request.order == "asc") is not start.is_back
    filters = tuple(_filters(request))
    return RecordQuery(
        kind=SESSION_KIND,
        tenant=tenant,
        is_archived=None if request.include_archived or filters else False,
        filters=filters,
        created_from=optional_micros(lower),
        created_upto=optional_micros(upper),
        after=start.after,
        order="asc" if is_ascending else "desc",
        limit=request.limit + 1,
    )


def _filters(request: ListSessions) -> Iterator[RecordFilter]:
    agent_id, version = request.agent_id, request.agent_version
    if agent_id is not None and version is not None:  # a version counts only with its agent
        value = version_value(agent_id, version)
        yield RecordFilter(VERSION_FILTER, _archived_too(value, request))
    elif agent_id is not None:
        yield RecordFilter(AGENT_FILTER, _archived_too(agent_id, request))
    for name, value in (
        (DEPLOYMENT_FILTER, request.deployment_id),
        (ORIGIN_FILTER, request.origin),
        (STORE_FILTER, request.memory_store_id),
    ):
        if value is not None:
            yield RecordFilter(name, _archived_too(value, request))
    if request.statuses:
        statuses = dict.fromkeys(request.statuses)
        values = [(status, False) for status in statuses]
        if "terminated" in statuses and request.include_archived:  # whatever its log says
            values += [(status, True) for status in _STATUSES]
        yield RecordFilter(STATUS_FILTER, tuple(values))


def _archived_too(value: str, request: ListSessions) -> tuple[tuple[str, bool], ...]:
    return ((value, False), (value, True)) if request.include_archived else ((value, False),)


def _cursor(direction: str, row: RecordRow) -> str:
    return encode_cursor(direction, row.created, row.id)


def _decode_position(cursor: str) -> PagePosition:
    direction, created, id_ = decode_cursor(cursor, _CursorType)
    return PagePosition(direction == "prev", row_at(created, id_))
