"""Which sessions are conversations of people, and which one a person or a program used last. A time
in the future never counts, and no foreign session: whoever wrote it could decide which session is
the last one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import get_args

from mainspring.core.clock import to_micros
from mainspring.core.envelope import event_types
from mainspring.core.events import (
    EvalRunCreated,
    SessionReceived,
    UserMessage,
    WorkflowRunCreated,
)
from mainspring.core.sender import OriginType
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow, SessionScope

PEOPLES_ORIGINS: tuple[OriginType, ...] = ("user", "api", "import")
"""The origins of sessions that people began, here, through the API or in another program."""
_PAGES = (100, 10_000, 2**31)
"""How many of the latest sessions to search, until one is found."""
_RECEIVED = event_types(SessionReceived)
_MESSAGES = event_types(UserMessage)
_RUNS = event_types(EvalRunCreated, WorkflowRunCreated)


def without_others(
    *origins: OriginType, user: str | None = None, any_tenant: bool = False
) -> SessionScope:
    """The scope of the sessions with these origins."""
    others = tuple(origin for origin in get_args(OriginType) if origin not in origins)
    return SessionScope(tenant=None, any_tenant=any_tenant, user=user, without_origins=others)


async def last_conversation(log: SessionLog, user: str, now: datetime) -> SessionRow | None:
    """The conversation of this person, by sender id, that changed last. A session that another
    installation wrote does not count; one that was received counts once the person has continued
    it."""
    async for row in _latest(log, without_others("user", user=user), now):
        if log.store.provenance.is_own(row) and await _is_continued_by(log, row, user):
            return row
    return None


async def last_run(log: SessionLog, origin: OriginType, now: datetime) -> SessionRow | None:
    """The run of a suite (origin `eval`) or a workflow that changed last."""
    async for row in _latest(log, without_others(origin), now):
        for event in await log.read(row.id, types=_RUNS, limit=1):
            match event.payload:
                case EvalRunCreated(run_id=run_id) | WorkflowRunCreated(workflow_run_id=run_id) if (
                    run_id == row.id
                ):
                    return row
                case _:  # a list of runs
                    pass
    return None


async def sessions_of_origins(
    log: SessionLog,
    origins: Sequence[OriginType],
    page_size: int = 1000,
    *,
    any_tenant: bool = True,
) -> AsyncGenerator[SessionRow, None]:
    """All sessions with these origins, newest first; a fork has the origin of its parent. Without
    `any_tenant`, only those that belong to no tenant."""
    scope = without_others(*origins, any_tenant=any_tenant)
    rows = await log.store.sessions(limit=page_size)
    while rows:
        for row in await _in_scope(log, scope, rows):
            yield row
        rows = await log.store.sessions(before=rows[-1], limit=page_size)


async def _latest(
    log: SessionLog, scope: SessionScope, now: datetime
) -> AsyncGenerator[SessionRow, None]:
    seen = 0
    for limit in _PAGES:
        rows = await log.store.latest(upto=to_micros(now), limit=limit)
        own = [row for row in rows[seen:] if log.is_own(row)]
        for row in await _in_scope(log, scope, own):
            yield row
        if len(rows) < limit:
            return
        seen = limit


async def _in_scope(
    log: SessionLog, scope: SessionScope, rows: Sequence[SessionRow]
) -> list[SessionRow]:
    ids = set(await log.store.in_scope(scope, [row.id for row in rows]))
    return [row for row in rows if row.id in ids]


async def _is_continued_by(log: SessionLog, row: SessionRow, user: str) -> bool:
    receipts = await log.read(row.id, types=_RECEIVED)
    if not receipts:
        return True
    later = await log.read(row.id, after=receipts[-1].seq, types=_MESSAGES)
    return any(event.sender is not None and event.sender.id == user for event in later)
