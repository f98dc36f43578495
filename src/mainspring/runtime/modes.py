"""The permission mode that a session is in, for whoever looks at it from outside."""

from __future__ import annotations

from mainspring.core import events, facts
from mainspring.harness.permissions.grant_state import GrantState, apply
from mainspring.harness.permissions.policy import Mode, parse_mode
from mainspring.log.session_log import SessionLog
from mainspring.log.upcast import read_payload

_MODE_EVENT_TYPES = [
    str(kind.__struct_config__.tag)
    for kind in (facts.PolicyAdopted, events.PermissionUpdated, facts.SessionReceived)
]


async def mode_of(log: SessionLog, session_id: str) -> Mode:
    """As its log and its inbox tell it."""
    standing, begun_in = GrantState(), "default"
    for event in await log.read(session_id, types=_MODE_EVENT_TYPES):
        standing = apply(standing, event.payload)
        if isinstance(event.payload, facts.PolicyAdopted):
            begun_in = event.payload.mode
        elif isinstance(event.payload, facts.SessionReceived):
            begun_in = "default"
    for item in await log.store.pending(session_id):
        standing = apply(standing, read_payload(item.type, item.body, item.version))
    return standing.mode or parse_mode(begun_in)
