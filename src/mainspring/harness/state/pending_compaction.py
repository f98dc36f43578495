"""The compaction that was requested and has not happened yet: a fold of the thread's events."""

from __future__ import annotations

from mainspring.core.envelope import AnyPayload
from mainspring.core.events import (
    CompactionRequested,
    LoopContinued,
    SessionForked,
    SessionReceived,
    StatusIdle,
    ThreadStopped,
    UserInterrupt,
)

RELEVANT = frozenset[type](
    (
        CompactionRequested,
        LoopContinued,
        StatusIdle,
        UserInterrupt,
        ThreadStopped,
        SessionForked,
        SessionReceived,
    )
)
"""Types of events that may change what is pending."""


def fold(wanted: CompactionRequested | None, payload: AnyPayload) -> CompactionRequested | None:
    if type(payload) not in RELEVANT:
        return wanted
    match payload:
        case CompactionRequested():
            return payload
        case LoopContinued(reason=reason) if reason != "compacted_retry":
            return wanted
        case StatusIdle(reason=reason) if reason != "compacted":
            return wanted
        case _:
            return None
