"""Which sessions there are: filtered, in pages that can be turned both ways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from mainspring.core.clock import to_micros
from mainspring.core.errors import InvalidInput
from mainspring.core.ids import AgentId, DeploymentId, MemoryStoreId
from mainspring.core.sender import UNKNOWN_ORIGIN, OriginType
from mainspring.log.records import RecordQuery, RecordRow, Records
from mainspring.log.session_log import ENDLESS
from mainspring.service.sessions.resource_types import StoreResource
from mainspring.service.sessions.session_digest import SessionStatus
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_view import LoadedSession
from mainspring.service.storage.pagination import Limit, decode_cursor, encode_cursor
from mainspring.service.storage.repository import SESSION_KIND

T = TypeVar("T")

MAX_SCANNED = 2000
"""Sessions that one request goes through at most; if that is not enough, its page is short."""
_CHUNK = 200
_DECODER = msgspec.json.Decoder(SessionRecord)


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
    """Ours: only those that were made by or for this."""
    page: str | None = None
    statuses: tuple[SessionStatus, ...] = ()


class TwoWayPage(Struct, Generic[T], frozen=True, kw_only=True):
    data: Sequence[T]
    next_page: str | None = None
    prev_page: str | None = None


@dataclass(frozen=True, slots=True)
class PagePosition:
    """Where a page begins, and which way it goes on from there."""

    is_back: bool = False
    after: RecordRow | None = None


@dataclass(frozen=True, slots=True)
class SessionBatch:
    shown: list[tuple[RecordRow, LoadedSession]]
    has_more: bool
    last: RecordRow | None
    """The last one looked at, shown or not."""


class SessionList:
    def __init__(
        self,
        records: Records,
        look: Callable[[SessionRecord], Awaitable[LoadedSession | None]],
    ) -> None:
        """`look` gives `None` for a session that is gone."""
        self._records = records
        self._look = look

    async def page(self, tenant: str, request: ListSessions) -> TwoWayPage[LoadedSession]:
        """Raises: InvalidInput: a cursor of another list."""
        turn = PagePosition() if request.page is None else _decode_position(tenant, request.page)
        found = await self._gather(_records_query(tenant, request, turn), request)
        shown = found.shown[::-1] if turn.is_back else found.shown
        forth = shown[-1][0] if shown else found.last
        back = shown[0][0] if shown else None
        has_next = turn.is_back or found.has_more
        has_previous = found.has_more if turn.is_back else request.page is not None
        return TwoWayPage(
            data=[standing for _, standing in shown],
            next_page=_cursor("next", forth) if has_next else None,
            prev_page=_cursor("prev", back) if has_previous else None,
        )

    async def _gather(self, record_query: RecordQuery, request: ListSessions) -> SessionBatch:
        shown: list[tuple[RecordRow, LoadedSession]] = []
        last = record_query.after
        looked_at = 0
        while looked_at < MAX_SCANNED:
            chunk = await self._records.list(replace(record_query, after=last))
            for record in chunk:
                standing = await self._load_if_matching(record, request)
                if standing is not None and len(shown) == request.limit:
                    return SessionBatch(shown, has_more=True, last=last)
                last = record
                if standing is not None:
                    shown.append((record, standing))
            looked_at += len(chunk)
            if len(chunk) < record_query.limit:
                return SessionBatch(shown, has_more=False, last=last)
        return SessionBatch(shown, has_more=True, last=last)

    async def _load_if_matching(
        self, row: RecordRow, request: ListSessions
    ) -> LoadedSession | None:
        session = _DECODER.decode(row.body)
        if not _matches(session, request):
            return None
        standing = await self._look(session)
        if standing is None or (request.statuses and standing.status not in request.statuses):
            return None
        return standing


def _matches(session: SessionRecord, request: ListSessions) -> bool:
    if request.agent_id is not None and request.agent_version not in (None, session.agent.version):
        return False
    if request.origin not in (None, (session.origin or UNKNOWN_ORIGIN).type):
        return False
    return request.memory_store_id is None or any(
        isinstance(resource, StoreResource) and resource.memory_store_id == request.memory_store_id
        for resource in session.resources
    )


def _records_query(tenant: str, request: ListSessions, page_position: PagePosition) -> RecordQuery:
    froms = [
        *_micros(request.created_at_gte),
        *(micro + 1 for micro in _micros(request.created_at_gt)),
    ]
    uptos = [
        *_micros(request.created_at_lte),
        *(micro - 1 for micro in _micros(request.created_at_lt)),
    ]
    is_ascending = (request.order == "asc") is not page_position.is_back
    is_filtered = (
        request.statuses or request.memory_store_id or request.agent_version or request.origin
    )
    return RecordQuery(
        kind=SESSION_KIND,
        tenant=tenant,
        label=request.agent_id,
        parent=request.deployment_id,
        is_archived=None if request.include_archived else False,
        created_from=max(froms, default=None),
        created_upto=min(uptos, default=None),
        after=page_position.after,
        order="asc" if is_ascending else "desc",
        limit=_CHUNK if is_filtered else request.limit + 1,
    )


def _micros(moment: datetime | None) -> list[int]:
    if moment is None:
        return []
    if moment.tzinfo is None:
        raise InvalidInput("created_at: a time needs its zone, as 2026-11-16T12:00:00Z")
    return [to_micros(moment)]


def _cursor(way: str, row: RecordRow | None) -> str | None:
    return None if row is None else encode_cursor(way, row.created, row.id)


def _decode_position(tenant: str, cursor: str) -> PagePosition:
    match decode_cursor(cursor):
        case ["next" | "prev" as way, int(created), str(id_)] if abs(created) <= ENDLESS:
            after = RecordRow(
                tenant=tenant, kind=SESSION_KIND, id=id_, created=created, updated=created, body=b""
            )
            return PagePosition(way == "prev", after)
        case _:
            raise InvalidInput("page: not a cursor of this list")
