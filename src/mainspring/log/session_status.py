"""The statuses of threads and sessions: which events change them, and their names for every
reader. A new status is a name here; the type checker points to what is missing."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, assert_never

from msgspec import Struct

from mainspring.core import events
from mainspring.core.envelope import Event

ThreadStatus: TypeAlias = Literal["rescheduling", "running", "idle", "terminated"]
"""The status of a thread in the log; also that of a session in the API."""
SessionState: TypeAlias = Literal[
    "new",
    "running",
    "unfinished",
    "requires_action",
    "idle",
    "rescheduling",
    "terminated",
    "moved",
]
"""All that can be said about a thread or session: the other names follow from it."""
Status: TypeAlias = Literal["new", "running", "unfinished", "requires_action", "idle", "moved"]
"""On the command line. `unfinished`: according to the log it runs or has work, but no process runs
it."""
SubagentState: TypeAlias = Literal["waiting", "running", "asking", "ended"]
"""In the tree of subagents. `waiting`: it has not started."""


WAKING_TYPES = frozenset(
    {
        "user.message",
        "user.tool_confirmation",
        "user.custom_tool_result",
        "user.tool_result",
        "user.define_outcome",
    }
)
"""Events of clients that make a session run: while one waits in its inbox, lists show an idle
session as running. The view `listed_status` of both stores has the same types."""


class StatusNames(Struct, frozen=True):
    api: ThreadStatus
    command_line: Status
    subagent: SubagentState


def status_names(state: SessionState) -> StatusNames:
    match state:
        case "new":
            return StatusNames("idle", "new", "waiting")
        case "running" | "unfinished":
            return StatusNames("running", state, "running")
        case "requires_action":
            return StatusNames("idle", "requires_action", "asking")
        case "idle":
            return StatusNames("idle", "idle", "ended")
        case "rescheduling":
            return StatusNames("rescheduling", "idle", "running")
        case "terminated":
            return StatusNames("terminated", "idle", "ended")
        case "moved":
            return StatusNames("terminated", "moved", "ended")
        case _:
            assert_never(state)


def state_of(status: ThreadStatus, reason: str | None, *, has_begun: bool) -> SessionState:
    """`reason`: why the last run stopped."""
    match status:
        case "idle":
            if not has_begun:
                return "new"
            return "requires_action" if reason == "requires_action" else "idle"
        case "running" | "rescheduling" | "terminated":
            return status
        case _:
            assert_never(status)


StatusPayload: TypeAlias = (
    events.StatusRunning
    | events.StatusIdle
    | events.StatusRescheduled
    | events.StatusTerminated
    | events.ThreadStatusRunning
    | events.ThreadStatusIdle
    | events.ThreadStatusRescheduled
    | events.ThreadStatusTerminated
)
STATUS_EVENTS: tuple[type[StatusPayload], ...] = (
    events.StatusRunning,
    events.StatusIdle,
    events.StatusRescheduled,
    events.StatusTerminated,
    events.ThreadStatusRunning,
    events.ThreadStatusIdle,
    events.ThreadStatusRescheduled,
    events.ThreadStatusTerminated,
)
"""The events that change the status of a thread."""


class StatusChange(NamedTuple):
    thread_id: str
    """The thread that the event is about; it may be in the log of another one."""
    status: ThreadStatus
    stop: events.StopReason | None = None
    """Why it is idle."""
    reason: str | None = None
    """The same, as the loop reports it if it does."""


def status_change(event: Event, payload: StatusPayload) -> StatusChange:
    thread_id: str = getattr(payload, "session_thread_id", event.thread_id)
    match payload:
        case events.StatusRunning() | events.ThreadStatusRunning():
            return StatusChange(thread_id, "running")
        case events.StatusIdle(stop_reason=stop, reason=reason):
            return StatusChange(thread_id, "idle", stop, reason or stop.type)
        case events.ThreadStatusIdle(stop_reason=stop):
            return StatusChange(thread_id, "idle", stop, stop.type)
        case events.StatusRescheduled() | events.ThreadStatusRescheduled():
            return StatusChange(thread_id, "rescheduling")
        case events.StatusTerminated() | events.ThreadStatusTerminated():
            return StatusChange(thread_id, "terminated")
        case _:
            assert_never(payload)
