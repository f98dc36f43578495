"""How skills are used, folded from the log: how often, by whom, how successfully, and at what
cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from msgspec import Struct, field

from mainspring.core import events
from mainspring.core.envelope import Event, event_types
from mainspring.log.session_log import SessionLog
from mainspring.log.store import all_sessions

_USED = event_types(events.SkillUsed)
_TYPES = event_types(events.SkillUsed, events.BudgetSettled, events.StatusIdle)


class SkillUse(Struct, kw_only=True):
    """The use of one skill in all sessions."""

    uses: int = 0
    by_model: int = 0
    by_user: int = 0
    sessions: int = 0
    succeeded: int = 0
    """Uses whose run completed. A use in a running session counts as neither succeeded nor
    failed."""
    failed: int = 0
    cost_usd: Decimal = Decimal(0)
    """The spending of the threads that used it, from the use to the end of the run."""
    last: datetime | None = None


async def read_skill_usage(log: SessionLog) -> Mapping[str, SkillUse]:
    """The usage by skill name. Events that a fork inherits count for its parent."""
    usage: dict[str, SkillUse] = {}
    async for session in all_sessions(log.store):
        if log.is_own(session) and await log.read(
            session.id, after=session.parent_seq, types=_USED, limit=1
        ):
            add_session(usage, await log.read(session.id, after=session.parent_seq, types=_TYPES))
    return usage


def add_session(usage: dict[str, SkillUse], session: Iterable[Event]) -> None:
    """Add the events of one session."""
    tally = _Tally(usage)
    for event in session:
        match event.payload:
            case events.SkillUsed() as fact:
                tally.use(event, fact)
            case events.BudgetSettled(cost_usd=cost):
                tally.spend(event.thread_id, Decimal(cost))
            case events.StatusIdle(reason=reason) if reason != "requires_action":
                tally.end(event.thread_id, is_done=reason == "completed")
            case _:
                pass


class _Tally(Struct):
    """The count within one session."""

    usage: dict[str, SkillUse]
    _names: set[str] = field(default_factory=set[str])
    _calls: set[str] = field(default_factory=set[str])
    _open: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The skills in use, by thread; a skill that is used twice is listed twice."""

    def use(self, event: Event, fact: events.SkillUsed) -> None:
        if fact.tool_use_id is not None and fact.tool_use_id in self._calls:
            return  # the same call, repeated after a crash
        self._calls.add(fact.tool_use_id or "")
        use = self.usage.setdefault(fact.name, SkillUse())
        use.uses += 1
        use.by_model += fact.by == "model"
        use.by_user += fact.by == "user"
        use.sessions += fact.name not in self._names
        use.last = event.time if use.last is None else max(use.last, event.time)
        self._names.add(fact.name)
        self._open.setdefault(event.thread_id, []).append(fact.name)

    def spend(self, thread_id: str, cost_usd: Decimal) -> None:
        for name in dict.fromkeys(self._open.get(thread_id, ())):
            self.usage[name].cost_usd += cost_usd

    def end(self, thread_id: str, *, is_done: bool) -> None:
        for name in self._open.pop(thread_id, ()):
            self.usage[name].succeeded += is_done
            self.usage[name].failed += not is_done
