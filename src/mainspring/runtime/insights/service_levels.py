"""Measures how well an agent serves real requests: errors, latency, work without a person, ratings.
Folded from logs; sessions of evals, graders and dreams do not count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import Struct

from mainspring.core import events
from mainspring.core.clock import from_micros
from mainspring.core.envelope import Event, event_types
from mainspring.core.events import Failure
from mainspring.core.sender import OriginType
from mainspring.log.session_log import SessionLog
from mainspring.log.store import all_sessions
from mainspring.runtime.agent_folder.production_settings import ServiceObjectives
from mainspring.runtime.session.session_summary import origin_of

_LAB: frozenset[OriginType] = frozenset(("eval", "grader", "dream", "campaign"))
_FAULTS: frozenset[Failure | None] = frozenset(("timed_out", "in_doubt", "unavailable"))
"""Failures of the agent's environment. A denied call or a failed test is part of the work."""
_TYPES = event_types(
    events.SessionCreated,
    events.StatusRunning,
    events.StatusIdle,
    events.ModelRequestEnded,
    events.AgentToolResult,
    events.AgentMcpToolResult,
    events.ToolCallAuthorized,
    events.ApprovalRequested,
    events.UserInterrupt,
    events.FeedbackGiven,
)


class ServiceLevels(Struct, frozen=True, kw_only=True):
    agent: str
    sessions: int
    calls: int
    """The number of model and tool calls."""
    errors: int
    runs: int
    p95_seconds: float | None
    """The 95th percentile of runs that did not wait for a person."""
    without_person: int
    """The number of sessions in which nobody was asked and nobody interrupted."""
    good: int
    bad: int

    @property
    def errors_per_10000_calls(self) -> float | None:
        return 10_000 * self.errors / self.calls if self.calls else None

    @property
    def share_without_person(self) -> float | None:
        return self.without_person / self.sessions if self.sessions else None

    def missed(self, objectives: ServiceObjectives) -> Iterator[str]:
        """Yield each objective that is not met, as text. An unmeasured one is not missed."""
        rate, max_rate = self.errors_per_10000_calls, objectives.max_errors_per_10000_calls
        if rate is not None and max_rate is not None and rate > max_rate:
            yield f"{rate:.1f} errors per 10,000 calls, at most {max_rate:g}"
        seconds, max_seconds = self.p95_seconds, objectives.max_p95_seconds
        if seconds is not None and max_seconds is not None and seconds > max_seconds:
            yield f"95 % of runs within {seconds:.1f} s, at most {max_seconds:g} s"
        share, min_share = self.share_without_person, objectives.min_share_without_person
        if share is not None and min_share is not None and share < min_share:
            yield f"{share:.0%} of sessions without a person, at least {min_share:.0%}"


@dataclass(slots=True)
class _Tally:
    sessions: int = 0
    calls: int = 0
    errors: int = 0
    seconds: list[float] = field(default_factory=list[float])
    without_person: int = 0
    good: int = 0
    bad: int = 0


async def includes_all(session_id: str) -> bool:
    return True


async def service_levels(
    log: SessionLog,
    *,
    since: datetime | None = None,
    includes: Callable[[str], Awaitable[bool]] = includes_all,
) -> list[ServiceLevels]:
    """The levels of each agent, by name. `since` limits them to sessions created then or later;
    `includes` decides by a session's id whether it counts."""
    tallies: dict[str, _Tally] = {}
    async for row in all_sessions(log.store):
        if since is not None and from_micros(row.created) < since:
            break  # they come newest first
        if (await origin_of(log, row)).type in _LAB or not await includes(row.id):
            continue
        log_events = await log.read(row.id, types=_TYPES)
        payloads = (event.payload for event in log_events)
        names = (item.agent_name for item in payloads if isinstance(item, events.SessionCreated))
        tally = tallies.setdefault(next(names, None) or "unnamed", _Tally())
        _count_session(tally, [event for event in log_events if event.seq > row.parent_seq])
    return [_levels(name, tallies[name]) for name in sorted(tallies)]


def _count_session(tally: _Tally, session: list[Event]) -> None:
    tally.sessions += 1
    started: dict[str, datetime] = {}
    has_person = False
    for event in session:
        match event.payload:
            case events.StatusRunning():
                started[event.thread_id] = event.time
            case events.StatusIdle(stop_reason=stop) if event.thread_id in started:
                seconds = (event.time - started.pop(event.thread_id)).total_seconds()
                if stop.type != "requires_action":
                    tally.seconds.append(seconds)
            case events.ToolCallAuthorized(decision="ask"):
                has_person = True
            case events.ApprovalRequested() | events.UserInterrupt():
                has_person = True
            case _:
                _count_call(tally, event)
    tally.without_person += not has_person


def _count_call(tally: _Tally, event: Event) -> None:
    match event.payload:
        case events.ModelRequestEnded(is_error=is_error):
            tally.calls += 1
            tally.errors += is_error
        case events.AgentToolResult(error=error) | events.AgentMcpToolResult(error=error):
            tally.calls += 1
            tally.errors += error in _FAULTS
        case events.FeedbackGiven(rating=rating):
            tally.good += rating == "good"
            tally.bad += rating == "bad"
        case _:
            pass


def _levels(agent: str, tally: _Tally) -> ServiceLevels:
    ordered = sorted(tally.seconds)
    return ServiceLevels(
        agent=agent,
        sessions=tally.sessions,
        calls=tally.calls,
        errors=tally.errors,
        runs=len(ordered),
        p95_seconds=ordered[-(-95 * len(ordered) // 100) - 1] if ordered else None,
        without_person=tally.without_person,
        good=tally.good,
        bad=tally.bad,
    )
