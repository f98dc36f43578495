"""The permission mode of a session, as seen from outside."""

from __future__ import annotations

from mainspring.core import events, facts
from mainspring.core.envelope import event_types
from mainspring.harness.permissions.grant_state import GrantState, apply
from mainspring.harness.permissions.policy import Mode, parse_mode
from mainspring.log.session_log import SessionLog
from mainspring.log.upcast import read_payload

_MODE_EVENT_TYPES = event_types(
    facts.PolicyAdopted, events.PermissionUpdated, facts.SessionReceived
)


async def mode_of(log: SessionLog, session_id: str) -> Mode:
    """The mode according to the log and the inbox."""
    grants, initial_mode = GrantState(), "default"
    for event in await log.read(session_id, types=_MODE_EVENT_TYPES):
        grants = apply(grants, event.payload)
        if isinstance(event.payload, facts.PolicyAdopted):
            initial_mode = event.payload.mode
        elif isinstance(event.payload, facts.SessionReceived):
            initial_mode = "default"
    for item in await log.store.pending(session_id):
        grants = apply(grants, read_payload(item.type, item.body, item.version))
    return grants.mode or parse_mode(initial_mode)
