"""Lists of sessions: filtered, in pages with cursors in both directions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from mainspring.core.ids import AgentId, DeploymentId, MemoryStoreId
from mainspring.core.sender import UNKNOWN_ORIGIN, OriginType
from mainspring.log.records import RecordQuery, RecordRow
from mainspring.log.session_log import ENDLESS
from mainspring.log.session_status import ThreadStatus
from mainspring.service.sessions.resource_types import StoreResource
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_view import LoadedSession
from mainspring.service.storage.pagination import (
    Limit,
    created_bounds,
    decode_cursor,
    encode_cursor,
)
from mainspring.service.storage.repository import SESSION_KIND, Repository, optional_micros, row_at

T = TypeVar("T")
_CursorType = tuple[Literal["next", "prev"], Annotated[int, Meta(ge=-ENDLESS, le=ENDLESS)], str]

MAX_SCANNED = 2000
"""The maximum number of sessions that one request reads; after that, its page is short."""
_CHUNK = 200  # sessions read at once


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


@dataclass(frozen=True, slots=True)
class SessionBatch:
    shown: list[tuple[RecordRow, LoadedSession]]
    has_more: bool
    last: RecordRow | None
    """The last row that was read, shown or not."""


class SessionList:
    def __init__(
        self,
        repository: Repository[SessionRecord],
        load: Callable[[SessionRecord], Awaitable[LoadedSession | None]],
        read_statuses: Callable[[Sequence[str]], Awaitable[Mapping[str, Collection[ThreadStatus]]]],
    ) -> None:
        """`load` returns `None` if the session no longer exists. `read_statuses` returns those
        that sessions may have, by id, without reading their logs; it may leave sessions out."""
        self._repository = repository
        self._load = load
        self._read_statuses = read_statuses

    async def page(self, tenant: str, request: ListSessions) -> TwoWayPage[LoadedSession]:
        """Raises: InvalidInput: a cursor of another list."""
        start = PagePosition() if request.page is None else _decode_position(request.page)
        batch = await self._gather(_records_query(tenant, request, start), request)
        sessions = batch.shown[::-1] if start.is_back else batch.shown
        last_row = sessions[-1][0] if sessions else batch.last
        first_row = sessions[0][0] if sessions else None
        has_next = start.is_back or batch.has_more
        has_previous = batch.has_more if start.is_back else request.page is not None
        return TwoWayPage(
            data=[session for _, session in sessions],
            next_page=_cursor("next", last_row) if has_next else None,
            prev_page=_cursor("prev", first_row) if has_previous else None,
        )

    async def _gather(self, query: RecordQuery, request: ListSessions) -> SessionBatch:
        sessions: list[tuple[RecordRow, LoadedSession]] = []
        last = query.after
        scanned = 0
        while scanned < MAX_SCANNED:
            chunk = await self._repository.records.list(replace(query, after=last))
            others = await self._with_other_status(chunk, request)
            for row in chunk:
                is_other = row.id in others
                session = None if is_other else await self._load_if_matching(row, request)
                if session is not None and len(sessions) == request.limit:
                    return SessionBatch(sessions, has_more=True, last=last)
                last = row
                if session is not None:
                    sessions.append((row, session))
            scanned += len(chunk)
            if len(chunk) < query.limit:
                return SessionBatch(sessions, has_more=False, last=last)
        return SessionBatch(sessions, has_more=True, last=last)

    async def _with_other_status(
        self, chunk: Sequence[RecordRow], request: ListSessions
    ) -> set[str]:
        """The sessions of a chunk that cannot have one of the statuses, so that their logs need not
        be read."""
        if not request.statuses:
            return set()
        possible = await self._read_statuses([row.id for row in chunk])
        archived = {row.id for row in chunk if row.is_archived}
        return {
            id_
            for id_, statuses in possible.items()
            if not any(status in request.statuses for status in statuses)
            and not (id_ in archived and "terminated" in request.statuses)
        }

    async def _load_if_matching(
        self, row: RecordRow, request: ListSessions
    ) -> LoadedSession | None:
        record = self._repository.read(row)
        if not _matches(record, request):
            return None
        session = await self._load(record)
        if session is None or (request.statuses and session.status not in request.statuses):
            return None
        return session


def _matches(session: SessionRecord, request: ListSessions) -> bool:
    if request.agent_id is not None and request.agent_version not in (None, session.agent.version):
        return False
    if request.origin not in (None, (session.origin or UNKNOWN_ORIGIN).type):
        return False
    return request.memory_store_id is None or any(
        isinstance(resource, StoreResource) and resource.memory_store_id == request.memory_store_id
        for resource in session.resources
    )


def _records_query(tenant: str, request: ListSessions, start: PagePosition) -> RecordQuery:
    lower, upper = created_bounds(request)
    is_ascending = (request.order == "asc") is not start.is_back
    is_filtered = (
        request.statuses or request.memory_store_id or request.agent_version or request.origin
    )
    return RecordQuery(
        kind=SESSION_KIND,
        tenant=tenant,
        label=request.agent_id,
        parent=request.deployment_id,
        is_archived=None if request.include_archived else False,
        created_from=optional_micros(lower),
        created_upto=optional_micros(upper),
        after=start.after,
        order="asc" if is_ascending else "desc",
        limit=_CHUNK if is_filtered else request.limit + 1,
    )


def _cursor(direction: str, row: RecordRow | None) -> str | None:
    return None if row is None else encode_cursor(direction, row.created, row.id)


def _decode_position(cursor: str) -> PagePosition:
    direction, created, id_ = decode_cursor(cursor, _CursorType)
    return PagePosition(direction == "prev", row_at(created, id_))
