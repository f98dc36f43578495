"""Finds the session that the user meant by its id or an unambiguous part of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from difflib import get_close_matches

from mainspring.config import Settings
from mainspring.core import error_table
from mainspring.core.errors import InvalidInput, SessionNotFound
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.wiring.stores import has_store, open_log

_PAGE_SIZE = 1000
_MAX_SUGGESTIONS = 5
"""How many sessions a hint names."""


async def find_session(log: SessionLog, meant: str) -> SessionRow:
    """
    Raises:
        SessionNotFound: none is called so; a note names those that nearly are.
        InvalidInput: several are; a note names them.
    """
    try:
        return await log.session(meant)
    except SessionNotFound:
        known = [session async for session in all_sessions(log)]
    found = [session for session in known if _matches_id(session.id, meant)]
    found = found or [session for session in known if meant and meant in session.id]
    if len(found) == 1:
        return found[0]
    if found:
        several = InvalidInput(
            f"{meant} could be any of {len(found)} sessions; give more of the id"
        )
        several.add_note(_did_you_mean([session.id for session in found]))
        raise several
    unknown = SessionNotFound(meant)
    if near := _similar_ids(meant, [session.id for session in known]):
        unknown.add_note(_did_you_mean(near))
    raise unknown


async def all_sessions(log: SessionLog) -> AsyncGenerator[SessionRow, None]:
    """All sessions, newest first."""
    before: SessionRow | None = None
    while page := await log.sessions(before=before, limit=_PAGE_SIZE):
        for session in page:
            yield session
        before = page[-1]


def _matches_id(session_id: str, meant: str) -> bool:
    _, _, bare = session_id.partition("_")
    return bool(meant) and any(
        (session_id.startswith(meant), bare.startswith(meant), session_id.endswith(meant))
    )


def _similar_ids(meant: str, ids: list[str]) -> list[str]:
    """By the whole id or by its end, whichever was mistyped."""
    ends = {session_id[-len(meant) :]: session_id for session_id in ids[:_PAGE_SIZE] if meant}
    return [ends[end] for end in get_close_matches(meant, ends, n=_MAX_SUGGESTIONS, cutoff=0.7)]


def _did_you_mean(ids: list[str]) -> str:
    more = f", and {len(ids) - _MAX_SUGGESTIONS} more" if len(ids) > _MAX_SUGGESTIONS else ""
    return f"did you mean {', '.join(ids[:_MAX_SUGGESTIONS])}{more}?"


@asynccontextmanager
async def open_existing_log(settings: Settings) -> AsyncGenerator[SessionLog, None]:
    """The log, if there is one: to look at nothing must not create anything."""
    require_store(settings)
    async with open_log(settings) as log:
        yield log


def require_store(settings: Settings) -> None:
    """Raises: InvalidInput."""
    if not has_store(settings):
        raise error_table.NO_STORE.error(InvalidInput, store=settings.store_label)
