"""Whether a session goes on here: one that was moved ends with the event that says so."""

from __future__ import annotations

from mainspring.core.errors import SessionGone
from mainspring.core.facts import SessionMoved, SessionReceived
from mainspring.log.store import Lease, Span, Store

MOVED = str(SessionMoved.__struct_config__.tag)
RECEIVED = str(SessionReceived.__struct_config__.tag)


async def require_here(store: Store, session_id: str, lease: Lease | None = None) -> None:
    """Looks at the last event only: nothing comes after a move until the session is received.

    Raises: SessionGone; the lease was given back.
    """
    newest = Span(session_id=session_id, after=0, upto=2**62, limit=1, backwards=True)
    last = await store.read(newest)
    if last and last[0].type == MOVED:
        if lease is not None:
            await store.release(lease)
        raise SessionGone(session_id)
