"""A new title for a session, whether or not it runs."""

from __future__ import annotations

from contextlib import suppress

from mainspring.core.envelope import AnyPayload
from mainspring.core.errors import LeaseHeld
from mainspring.core.events import SessionUpdated
from mainspring.core.sender import Sender
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.lease import hold_session

_NOT_APPLIED = ""
"""Instead of a thread: what else waits in the inbox is for the next run."""


def _select_updates(payload: AnyPayload, thread_id: str) -> str:
    return thread_id if isinstance(payload, SessionUpdated) else _NOT_APPLIED


async def set_title(log: SessionLog, session_id: str, title: str, *, sender: Sender) -> None:
    """Put the title into the inbox, and into the log if nobody else writes there: the process that
    runs the session does it otherwise."""
    await log.submit(session_id, SessionUpdated(title=title), sender=sender)
    with suppress(LeaseHeld):
        async with hold_session(log, session_id) as writer:
            await writer.stage_inbox(_select_updates, lambda thread_id: thread_id != _NOT_APPLIED)
            await writer.commit()
