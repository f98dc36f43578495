"""Titles, metadata and ratings of a session, which people change without a run."""

from __future__ import annotations

from contextlib import suppress

from mainspring.core.envelope import AnyPayload, event_types
from mainspring.core.errors import LeaseHeld
from mainspring.core.events import FeedbackGiven, SessionCreated, SessionUpdated
from mainspring.core.sender import Sender
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog

_NOT_APPLIED = ""
"""No thread: other inbox items stay there for the next run."""


def _select_updates(payload: AnyPayload, thread_id: str) -> str:
    return thread_id if isinstance(payload, SessionUpdated | FeedbackGiven) else _NOT_APPLIED


async def set_title(log: SessionLog, session_id: str, title: str, *, sender: Sender) -> None:
    await log.submit(session_id, SessionUpdated(title=title), sender=sender)
    await record_updates(log, session_id)


async def read_metadata(log: SessionLog, session_id: str) -> dict[str, str]:
    metadata: dict[str, str] | None = None
    for event in await log.read(session_id, types=event_types(SessionCreated, SessionUpdated)):
        if isinstance(event.payload, SessionCreated | SessionUpdated):
            changed = event.payload.metadata
            metadata = metadata if changed is None else changed
    return metadata or {}


async def record_updates(log: SessionLog, session_id: str) -> None:
    """Take titles, metadata and ratings from the inbox into the log, if no process runs the
    session; otherwise the process that runs it does that. They start no run."""
    with suppress(LeaseHeld):
        async with hold_session(log, session_id) as writer:
            await writer.stage_inbox(_select_updates, lambda thread_id: thread_id != _NOT_APPLIED)
            await writer.commit()
