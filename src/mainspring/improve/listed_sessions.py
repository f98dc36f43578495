"""Sessions that belong to a list, such as the runs of a suite or the dreams of a store: the first
event of each is in its own log and in the log of another session, the list."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio

from mainspring.core.envelope import event_types
from mainspring.core.errors import LeaseHeld, SessionExists, SessionNotFound
from mainspring.core.events import (
    DreamCreated,
    EvalRunCreated,
    EvolutionCreated,
    SessionCreated,
)
from mainspring.core.sender import Sender
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog

_TRIES = 300  # 0.05 s apart, while another process adds to the list
Created = TypeVar("Created", DreamCreated, EvalRunCreated, EvolutionCreated)


async def read_list(log: SessionLog, list_id: str, kind: type[Created]) -> list[Created]:
    """The entries of a list, oldest first; empty if there is no such list."""
    try:
        entries = await log.read(list_id, types=event_types(kind))
    except SessionNotFound:
        return []
    return [event.payload for event in entries if isinstance(event.payload, kind)]


async def create_listed(
    log: SessionLog,
    created: Created,
    sessions: dict[str, SessionCreated],
    *,
    key: Callable[[Created], str],
    sender: Sender,
) -> None:
    """Write the first event of a session into its log and into its list, and create both if needed.
    Call it again after a crash: it writes nothing twice.

    Raises: LeaseHeld: another process does not release the list.
    """
    for session_id, session in sessions.items():
        with suppress(SessionExists):
            await log.create(session, session_id=session_id, sender=sender)
        for attempt in range(_TRIES + 1):
            try:
                async with hold_session(log, session_id) as writer:
                    entries = await read_list(log, session_id, type(created))
                    if key(created) not in map(key, entries):
                        await writer.append(created)
                break
            except LeaseHeld:  # another process adds to the list
                if attempt == _TRIES:
                    raise
            await anyio.sleep(0.05)
