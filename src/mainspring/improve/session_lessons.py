"""Extracts lessons from many sessions without a model: statements of people, recurring mistakes,
and successful ways of working. Pure.

An agent's own behaviour counts only if several sessions show it, and a way of working only if it
succeeded. A command that weakens checks or permissions is never a lesson, however often it is used.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.harness.state.utility import fold_utility
from mainspring.runtime.memory.learning.extraction import (
    MemoryCandidate,
    MemoryEvidence,
    extract_candidates,
    is_learned_from,
)

MIN_SIGHTINGS = 3
"""The fewest sessions that must show a behaviour."""
_MIN_SUCCESS = 0.75  # mean reward of the sessions in which a procedure was used
_MIN_STEPS, _MAX_STEPS = 3, 6  # shorter ones are habits, longer ones seldom repeat exactly
_MAX_COMMAND = 200  # characters
_BAD_HABITS = re.compile(
    r"--no-verify|--force\b|\s-f\b.*push|push\b.*\s-f\b|--insecure|curl\s.*\s-k\b|\bchmod\s+(?:-R\s+)?0?777"
    r"|\brm\s+-[a-z]*r[a-z]*f|\brm\s+-[a-z]*f[a-z]*r|\bsudo\b|\|\|\s*true\b|;\s*true\b|\bset\s+\+e\b"
    r"|--skip-?tests?|-DskipTests|--ignore-(?:errors|scripts)|\bSKIP=|HUSKY=0|--no-check"
    r"|(?:curl|wget)\b[^|]*\|\s*(?:sudo\s+)?(?:ba|z)?sh|--privileged|--allow-root|--trust-host"
    r"|--disable-\w*(?:security|sandbox|verification)|git\s+reset\s+--hard|>\s*/dev/null\s+2>&1"
    r"|\bkill(?:all)?\s+-9|eval\s|base64\s+-d|\bexport\s+\w*(?:TOKEN|SECRET|PASSWORD|KEY)\w*=",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class LessonSession:
    session_id: str
    log: Sequence[Event]

    @property
    def is_learned_from(self) -> bool:
        created = next(
            (item.payload for item in self.log if isinstance(item.payload, events.SessionCreated)),
            None,
        )
        return created is None or is_learned_from(created)

    @property
    def success(self) -> float | None:
        """The mean of its rewards: the verdicts of people and graders, or else of its tests; `None`
        if it was not judged."""
        recorded = [
            event.payload for event in self.log if isinstance(event.payload, events.UtilityCredited)
        ]
        credits = [*recorded, *fold_utility(self.log).due()]
        verdicts = {item.outcome_id: item.reward for item in credits if item.source != "test"}
        tests = {item.outcome_id: item.reward for item in credits if item.source == "test"}
        rewards = verdicts or tests
        return fmean(rewards.values()) if rewards else None


def lessons(records: Iterable[LessonSession]) -> list[MemoryCandidate]:
    """The facts worth remembering, each with the sessions that show it."""
    learned_from = [record for record in records if record.is_learned_from]
    candidates = {record.session_id: extract_candidates(record.log) for record in learned_from}
    stated = [item for items in candidates.values() for item in items if item.type != "procedure"]
    return [*stated, *_recurring_mistakes(learned_from, candidates), *_workflows(learned_from)]


def _recurring_mistakes(
    records: Sequence[LessonSession], candidates: Mapping[str, Sequence[MemoryCandidate]]
) -> Iterator[MemoryCandidate]:
    """Commands that failed the same way in several sessions, none of which ended badly."""
    sightings: dict[str, list[MemoryCandidate]] = defaultdict(list)
    for record in records:
        if record.success is not None and record.success < _MIN_SUCCESS:
            continue
        procedures = {
            item.text: item for item in candidates[record.session_id] if item.type == "procedure"
        }
        for text, item in procedures.items():
            sightings[text].append(item)
    for items in sightings.values():
        if len(items) >= MIN_SIGHTINGS and not is_bad_habit(items[0].text):
            yield _merge(items)


def _workflows(records: Sequence[LessonSession]) -> Iterator[MemoryCandidate]:
    """The longest sequences of commands that several sessions share, nearly all successful."""
    commands = {record.session_id: _commands(record) for record in records}
    success = {record.session_id: record.success for record in records}
    sessions: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for session_id, calls in commands.items():
        for length in range(_MIN_STEPS, _MAX_STEPS + 1):
            for start in range(len(calls) - length + 1):
                steps = tuple(text for _, text in calls[start : start + length])
                sessions[steps].add(session_id)
    chosen: list[tuple[str, ...]] = []
    for steps in sorted(sessions, key=lambda item: (-len(item), item)):
        rewards = [value for name in sessions[steps] if (value := success[name]) is not None]
        is_proven = len(rewards) >= MIN_SIGHTINGS and fmean(rewards) >= _MIN_SUCCESS
        if is_proven and not any(map(is_bad_habit, steps)) and not _is_within(steps, chosen):
            chosen.append(steps)
            yield _workflow(steps, [commands[name] for name in sorted(sessions[steps])])


def is_bad_habit(text: str) -> bool:
    """Whether a command weakens checks, permissions or security, or destroys work."""
    return _BAD_HABITS.search(text) is not None


def _commands(record: LessonSession) -> list[tuple[Event, str]]:
    calls = {
        event.id: (event, " ".join(str(event.payload.input.get("command", "")).split()))
        for event in record.log
        if isinstance(event.payload, events.AgentToolUse) and event.payload.name == "bash"
    }
    successful = [
        calls[event.payload.tool_use_id]
        for event in record.log
        if isinstance(event.payload, events.AgentToolResult)
        and event.payload.tool_use_id in calls
        and not event.payload.is_error
    ]
    commands = [item for item in successful if 0 < len(item[1]) <= _MAX_COMMAND]
    return [item for i, item in enumerate(commands) if not i or commands[i - 1][1] != item[1]]


def _is_within(steps: tuple[str, ...], longer: Iterable[tuple[str, ...]]) -> bool:
    return any(
        steps == other[start : start + len(steps)]
        for other in longer
        for start in range(len(other) - len(steps) + 1)
    )


def _workflow(
    steps: tuple[str, ...], sessions: Sequence[Sequence[tuple[Event, str]]]
) -> MemoryCandidate:
    first = [next(event for event, text in calls if text == steps[0]) for calls in sessions]
    numbered = " ".join(f"{number}. `{step}`" for number, step in enumerate(steps, 1))
    return MemoryCandidate(
        text=f"Steps that worked in {len(sessions)} sessions: {numbered}",
        type="procedure",
        trust="agent",
        time=max(event.time for event in first),
        evidence=tuple(
            MemoryEvidence(session_id=event.session_id, event_id=event.id, quote=steps[0])
            for event in first
        ),
        name=f"steps from {steps[0].split()[0]} to {steps[-1].split()[0]}",
        description=f"how to get from {steps[0]} to {steps[-1]}",
    )


def _merge(items: Sequence[MemoryCandidate]) -> MemoryCandidate:
    evidence = tuple(piece for item in items for piece in item.evidence)
    newest = max(items, key=lambda item: item.time)
    return replace(newest, evidence=evidence)
