"""Finds a session by its id, by a part of it that is unique, or as the last one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from difflib import get_close_matches

from mainspring import error_table
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, SessionNotFound
from mainspring.core.sender import OriginType, local_user
from mainspring.error_table import with_hints
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow, all_sessions
from mainspring.runtime.session.recent_sessions import last_conversation, last_run
from mainspring.wiring.stores import has_store, open_log

LAST_SESSION = "last"
"""The name of the person's last conversation, or of the last run of a suite or a workflow."""
_FOREIGN_HINT = (
    "this store has sessions that this installation did not write: it came from elsewhere, or an"
    " earlier version wrote it; `mainspring adopt` shows them"
)
_PAGE_SIZE = 1000  # sessions read at once
_MAX_SUGGESTIONS = 5
"""How many sessions a hint names."""


async def find_session(settings: Settings, log: SessionLog, id_or_part: str) -> SessionRow:
    """Find a session by its id, by part of it, or this user's last conversation by `last`.

    Raises:
        SessionNotFound: no session matches; a note names similar ids.
        InvalidInput: several match; a note names them.
    """
    if id_or_part != LAST_SESSION:
        return await _find_by_id(log, id_or_part)
    session = await last_conversation(log, local_user(settings.user).id, clock.now())
    if session is None:
        error = error_table.NO_LAST_SESSION.error(InvalidInput)
        raise with_hints(error, *[_FOREIGN_HINT] if await _has_foreign(log) else [])
    return session


async def find_run(log: SessionLog, id_or_part: str, origin: OriginType) -> SessionRow:
    """As `find_session`; `last` is the last run of a suite (origin `eval`) or of a workflow.

    Raises: SessionNotFound, InvalidInput.
    """
    if id_or_part != LAST_SESSION:
        return await _find_by_id(log, id_or_part)
    run = await last_run(log, origin, clock.now())
    if run is None:
        raise InvalidInput(f"there is no {origin} run yet")
    return run


async def _has_foreign(log: SessionLog) -> bool:
    async for session in all_sessions(log.store):
        if not log.is_own(session):
            return True
    return False


async def _find_by_id(log: SessionLog, id_or_part: str) -> SessionRow:
    try:
        return await log.session(id_or_part)
    except SessionNotFound:
        sessions = [session async for session in all_sessions(log.store)]
    matches = [session for session in sessions if _matches_id(session.id, id_or_part)]
    matches = matches or [
        session for session in sessions if id_or_part and id_or_part in session.id
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        problem = f"{id_or_part} could be any of {len(matches)} sessions; give more of the id"
        hint = _did_you_mean([session.id for session in matches])
        raise with_hints(InvalidInput(problem), hint)
    similar = _similar_ids(id_or_part, [session.id for session in sessions])
    raise with_hints(SessionNotFound(id_or_part), *[_did_you_mean(similar)] if similar else [])


def _matches_id(session_id: str, id_or_part: str) -> bool:
    _, _, bare = session_id.partition("_")
    return bool(id_or_part) and any(
        (
            session_id.startswith(id_or_part),
            bare.startswith(id_or_part),
            session_id.endswith(id_or_part),
        )
    )


def _similar_ids(id_or_part: str, ids: list[str]) -> list[str]:
    """Ids whose end is similar."""
    ends = {
        session_id[-len(id_or_part) :]: session_id for session_id in ids[:_PAGE_SIZE] if id_or_part
    }
    return [
        ends[end] for end in get_close_matches(id_or_part, ends, n=_MAX_SUGGESTIONS, cutoff=0.7)
    ]


def _did_you_mean(ids: list[str]) -> str:
    remaining = f", and {len(ids) - _MAX_SUGGESTIONS} more" if len(ids) > _MAX_SUGGESTIONS else ""
    return f"did you mean {', '.join(ids[:_MAX_SUGGESTIONS])}{remaining}?"


@asynccontextmanager
async def open_existing_log(settings: Settings) -> AsyncGenerator[SessionLog, None]:
    """Opens the log, but does not create one.

    Raises: InvalidInput: there is none.
    """
    require_store(settings)
    async with open_log(settings) as log:
        yield log


def require_store(settings: Settings) -> None:
    """Raises: InvalidInput."""
    if not has_store(settings):
        raise error_table.NO_STORE.error(InvalidInput, store=settings.store_label)
