"""Credits memories, skills and tools for the result of the work: a fold of a session's log. It
collects their uses, and the outcomes, tests and ratings that came after.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from mainspring.core import events
from mainspring.core.envelope import AnyPayload, Event, event_types
from mainspring.core.sender import OriginType

NOT_LEARNED_FROM: frozenset[OriginType] = frozenset(
    ("eval", "grader", "dream", "campaign", "command")
)
"""Origins of sessions that no person started: nothing is credited or learned from them."""

RELEVANT = (
    events.SessionCreated,
    events.MemoryRecalled,
    events.SkillUsed,
    events.AgentToolUse,
    events.AgentMcpToolUse,
    events.AgentToolResult,
    events.OutcomeEvaluationEnded,
    events.StatusIdle,
    events.UtilityCredited,
    events.FeedbackGiven,
)
"""Payloads that may change the credits that are due."""
RELEVANT_TYPES = event_types(*RELEVANT)

_REWARDS = {"satisfied": 1.0, "failed": 0.0, "max_iterations_reached": 0.0}
_SHELL_TOOLS = frozenset(("bash", "Bash"))
_RUNS_TESTS = re.compile(
    r"(?:^|[\s;&|(/])(?:pytest|py\.test|tox|nox|jest|vitest|rspec|ctest|phpunit|"
    r"(?:npm|pnpm|yarn|bun)\s+(?:run\s+)?test|(?:cargo|go|make|mvn|gradle|dotnet|mix|swift)\s+"
    r"(?:[\w:=-]+\s+)*?(?:test|check)|(?:-m\s+)unittest)(?=$|[\s;&|)])"
)
_RUNS_NOTHING = re.compile(r"--(?:version|help|collect-only|list|dry-run)\b|\s-n\b(?!\s*\d)")


@dataclass(frozen=True, slots=True)
class _Reward:
    outcome_id: str
    source: Literal["outcome", "test", "eval", "person"]
    value: float
    subjects: tuple[events.UtilitySubject, ...]


@dataclass(slots=True)
class UtilityFold:
    """Any prefix of a log is valid. A credit is due until the log records it."""

    is_learned_from: bool = True
    _uses: list[events.UtilitySubject] = field(default_factory=list[events.UtilitySubject])
    _credited_uses: dict[str, int] = field(default_factory=dict[str, int])
    """The number of uses at the last reward of a source: the next reward is for later uses."""
    _rewards: dict[str, _Reward] = field(default_factory=dict[str, _Reward])
    _test_calls: set[str] = field(default_factory=set[str])
    _last_test: tuple[str, float] | None = None

    def apply(self, event: Event) -> None:
        match event.payload:
            case events.MemoryRecalled() as recalled:
                self._use("memory", f"{recalled.store_id}/{recalled.path}", recalled.version)
            case events.SkillUsed(name=name, hash=version):
                self._use("skill", name, version)
            case events.AgentToolUse() | events.AgentMcpToolUse() as call:
                self._call(event.id, call.name, call.input)
            case events.AgentToolResult() as result if result.tool_use_id in self._test_calls:
                if result.error in (None, "failed"):
                    self._last_test = result.tool_use_id, float(not result.is_error)
            case events.FeedbackGiven() as feedback:
                if event.sender is None or event.sender.kind == "person":
                    self._rate(event.id, feedback)
            case _:
                self._apply_ending(event.payload)

    def _apply_ending(self, payload: AnyPayload) -> None:
        match payload:
            case events.SessionCreated(origin=origin) if origin is not None:
                self.is_learned_from = origin.type not in NOT_LEARNED_FROM
            case events.OutcomeEvaluationEnded(result=result) if result in _REWARDS:
                self._reward(payload.outcome_id, "outcome", _REWARDS[result])
            case events.StatusIdle(reason=reason) if reason != "requires_action":
                # Only the last tests of a run count, not those that failed on the way.
                if self._last_test is not None:
                    self._reward(self._last_test[0], "test", self._last_test[1])
                    self._last_test = None
            case events.UtilityCredited(outcome_id=outcome_id):
                self._rewards.pop(outcome_id, None)
            case _:
                pass

    def due(self) -> list[events.UtilityCredited]:
        """The credits to record now."""
        if not self.is_learned_from:
            return []
        return [
            events.UtilityCredited(
                subject=subject,
                reward=reward.value,
                source=reward.source,
                outcome_id=reward.outcome_id,
            )
            for reward in self._rewards.values()
            for subject in reward.subjects
        ]

    def _use(
        self, kind: Literal["memory", "skill", "tool"], id_: str, version: str | None = None
    ) -> None:
        self._uses.append(events.UtilitySubject(type=kind, id=id_, version=version))

    def _call(self, call_id: str, name: str, args: dict[str, object]) -> None:
        self._use("tool", name)
        command = str(args.get("command", "")) if name in _SHELL_TOOLS else ""
        if _RUNS_TESTS.search(command) and not _RUNS_NOTHING.search(command):
            self._test_calls.add(call_id)

    def _rate(self, event_id: str, feedback: events.FeedbackGiven) -> None:
        """A rating of a memory, skill or tool credits it; any other rating, all recent uses."""
        value = float(feedback.rating == "good")
        rated = feedback.subject
        if rated.type in ("session", "message", "tool_call"):
            self._reward(event_id, "person", value)
        else:
            subject = events.UtilitySubject(type=rated.type, id=rated.id, version=rated.version)
            self._rewards[event_id] = _Reward(event_id, "person", value, (subject,))

    def _reward(
        self, outcome_id: str, source: Literal["outcome", "test", "eval", "person"], value: float
    ) -> None:
        new_uses = self._uses[self._credited_uses.get(source, 0) :]
        self._credited_uses[source] = len(self._uses)
        if new_uses:
            subjects = tuple(dict.fromkeys(new_uses))
            self._rewards[outcome_id] = _Reward(outcome_id, source, value, subjects)


def fold_utility(log: Iterable[Event]) -> UtilityFold:
    fold = UtilityFold()
    for event in log:
        fold.apply(event)
    return fold
