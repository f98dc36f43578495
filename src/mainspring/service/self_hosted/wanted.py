"""Whether a session has a use for a worker: what `WorkQueue` asks before it lets one go."""

from __future__ import annotations

from mainspring.core.errors import NotFound
from mainspring.service.access.principal import Principal
from mainspring.service.self_hosted.queue import IsWanted
from mainspring.service.sessions.sessions import Sessions


def wanted_by(sessions: Sessions) -> IsWanted:
    async def is_wanted(tenant: str, session_id: str) -> bool:
        """It runs, or something was sent to it, or it waits for somebody's word or result."""
        who = Principal(tenant=tenant, key_id="work", role="viewer", name="the work queue")
        try:
            standing = await sessions.find(who, session_id)
        except NotFound:
            return False
        if standing.record.archived_at is not None or standing.status == "terminated":
            return False
        is_waiting = any(thread.calls for thread in standing.digest.threads.values())
        return is_waiting or standing.status != "idle" or standing.is_called_for

    return is_wanted
