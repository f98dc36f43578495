"""The compaction that was requested and has not happened yet: a fold of the thread's events."""

from __future__ import annotations

from mainspring.core.envelope import AnyPayload
from mainspring.core.events import CompactionRequested, StatusIdle, UserInterrupt
from mainspring.core.facts import LoopContinued, SessionForked, SessionReceived, ThreadStopped

_RELEVANT = (
    CompactionRequested,
    LoopContinued,
    StatusIdle,
    UserInterrupt,
    ThreadStopped,
    SessionForked,
    SessionReceived,
)


def fold(wanted: CompactionRequested | None, payload: AnyPayload) -> CompactionRequested | None:
    if not isinstance(payload, _RELEVANT):
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
