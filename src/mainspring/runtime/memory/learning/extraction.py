"""Extracts facts from a session without a model: what a person said about themselves, their project
and how to work, and commands that failed until they were changed.

Only a person's own words and the outcome of commands count. Text of pages, tools and other agents
never becomes a fact here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.harness.state.utility import NOT_LEARNED_FROM
from mainspring.retrieval.stems import stems
from mainspring.runtime.memory.learning.absolute_dates import make_dates_absolute
from mainspring.runtime.memory.learning.own_words import own_words
from mainspring.runtime.memory.learning.statements import (
    anaphoric_value,
    exchange_of,
    forgotten,
    is_durable,
    title_of,
    without_correction,
)
from mainspring.runtime.memory.note import NoteType, Trust

MAX_CANDIDATES = 20
"""The most candidates of one session; the latest are kept."""
# Of a sentence, and characters: shorter ones say nothing, longer ones are documents.
_MIN_WORDS, _MAX_CHARS = 3, 400


class MemoryEvidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The event that a fact was learned from."""

    session_id: str
    event_id: str
    quote: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCandidate:
    """A fact that may become a memory."""

    text: str
    type: NoteType
    trust: Trust
    time: datetime
    evidence: tuple[MemoryEvidence, ...]
    name: str = ""
    description: str = ""
    is_correction: bool = False
    retracts: bool = False
    """It is to be forgotten."""
    value: str = ""
    """What a correction states that names its subject only by a pronoun."""

    @property
    def title(self) -> str:
        return self.name or title_of(self.text) or "note"


def _cue(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_REMEMBER = _cue(
    r"^(?:please\s+|and\s+|also\s+)?(?:remember|note|keep in mind|don'?t forget|memorize)"
    r"(?:\s+(?:this|please))?(?:\s+that\b|\s*[:,]|\s)\s*(?P<rest>.+)$"
)
_TO_DO = _cue(r"^(?:to\s+\w+|me\s+to\b|about\b|it\b|this\b)")
_CUES: tuple[tuple[NoteType, re.Pattern[str]], ...] = (
    (
        "user",
        _cue(r"\b(?:my name is|call me|i am an?|i'm an?|i work (?:as|at|for|in)|i live in)\b"),
    ),
    (
        "feedback",
        _cue(
            r"^(?:no[,.!]?\s+|please\s+)?(?:always|never|don'?t|do not|stop|avoid)\s+\w"
            r"|\bfrom now on\b|\bin (?:the )?future\b|\bi (?:don'?t |do not )?"
            r"(?:prefer|like|want|hate|expect)\b|\bi'?d rather\b"
            r"|\buse\s+\S+(?:\s+\S+)?\s+(?:instead of|rather than|not)\b"
        ),
    ),
    (
        "project",
        _cue(
            r"\bwe (?:have |also |now |all |both |mostly )?"
            r"(?:decided|agreed|use|deploy|release|ship|run|support|require)\b"
            r"|\b(?:the|our) (?:\w+ )?(?:team|project|company|service|backend|frontend|app)"
            r" (?:now |also |mostly )?(?:uses?|deploys?|releases?|ships?|supports?|requires?)\b"
            r"|\b(?:is|are|'re) (?:currently |now |slowly )?(?:migrating|moving|switching)"
            r" (?:over |away )?from\b"
            r"|\bour \w+(?: \w+){0,2} (?:is|are|was|runs?|lives?)\b"
            r"|\bthe (?:deadline|budget|release|launch|owner|password policy|port|version)"
            r"(?: \w+){0,3} (?:is|are|was|moved|changed)\b"
        ),
    ),
)
_ABOUT_ME = _cue(r"^(?:i|i'm|i am|my (?:name|manager|email|team|time ?zone|phone|pronouns))\b")
_CHANGED = _cue(
    r"^(?:we|i)(?:'ve| have)? "
    r"(?:(?:do|did|are|were)(?:n't| not)|no longer|stopped|switched|migrated|moved)\b"
    r".*\b(?:any ?more|no longer|stopped|from|to)\b|^we (?:no longer|stopped)\b"
)
"""The project works in another way than before."""
_QUESTION = re.compile(r"\?\s*$|^(?:can|could|would|will|do|does|did|is|are|what|how|why)\b", re.I)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def extract_candidates(log: Iterable[Event]) -> list[MemoryCandidate]:
    """Return the facts in a session's events."""
    candidates: list[MemoryCandidate] = []
    commands = _Commands()
    for event in log:
        payload = event.payload
        if isinstance(payload, events.SessionCreated) and not is_learned_from(payload):
            return []
        if text := own_words(event):
            candidates += _from_message(event, text)
        else:
            candidates += commands.apply(event)
    unique = {tuple(stems(item.text)): item for item in candidates}
    return list(unique.values())[-MAX_CANDIDATES:]


def is_learned_from(created: events.SessionCreated) -> bool:
    return created.origin is None or created.origin.type not in NOT_LEARNED_FROM


def is_from_person(event: Event) -> bool:
    return event.sender is not None and event.sender.kind == "person"


def _from_message(event: Event, text: str) -> Iterator[MemoryCandidate]:
    for sentence in _SENTENCE.split(text):
        plain = " ".join(sentence.split()).strip(" -*")
        if (fact := _fact(plain)) is None:
            continue
        stated = fact.text[:1].upper() + fact.text[1:]
        yield MemoryCandidate(
            text=make_dates_absolute(stated, event.time.date()),
            type=fact.type,
            trust="agent",
            time=event.time,
            evidence=(_evidence(event, plain),),
            is_correction=fact.is_correction,
            retracts=fact.retracts,
            value=fact.value,
        )


class _Fact(NamedTuple):
    text: str
    type: NoteType
    is_correction: bool = False
    retracts: bool = False
    value: str = ""


def _fact(sentence: str) -> _Fact | None:
    """What a sentence teaches; `None` if nothing."""
    if len(sentence) > _MAX_CHARS:
        return None
    if what := forgotten(sentence):
        return _Fact(what, "reference", retracts=True)
    stated = without_correction(sentence)
    is_correction = stated != sentence
    if is_correction and not _QUESTION.search(stated):
        if value := anaphoric_value(stated):
            return _Fact(stated, "reference", is_correction=True, value=value)
        if kind := _kind(stated):
            return _Fact(stated.strip(" ,:.!"), kind, is_correction=True)
    if (kind := _kind(sentence)) is None:
        return None
    match = _REMEMBER.match(sentence)
    return _Fact(match["rest"] if match else sentence, kind, is_correction)


def _kind(sentence: str) -> NoteType | None:
    if len(sentence.split()) < _MIN_WORDS:
        return None
    if (match := _REMEMBER.match(sentence)) and not _TO_DO.match(match["rest"]):
        return _stated_kind(match["rest"]) or "reference"
    if _QUESTION.search(sentence) or (match is not None):
        return None
    return _stated_kind(sentence)


def _stated_kind(sentence: str) -> NoteType | None:
    for kind, cue in _CUES:
        if cue.search(sentence):
            return kind
    if is_durable(sentence):
        return "user" if _ABOUT_ME.search(sentence) else "project"
    return "project" if exchange_of(sentence) or _CHANGED.search(sentence) else None


def _evidence(event: Event, quote: str) -> MemoryEvidence:
    return MemoryEvidence(session_id=event.session_id, event_id=event.id, quote=quote[:_MAX_CHARS])


class _Commands:
    """Finds commands that failed and the similar command that then succeeded."""

    def __init__(self) -> None:
        self._open_calls: dict[str, tuple[Event, str]] = {}
        self._failed: dict[str, tuple[Event, str]] = {}
        """The failed call and its command, by program."""

    def apply(self, event: Event) -> Iterator[MemoryCandidate]:
        match event.payload:
            case events.AgentToolUse(name="bash", input=call_input):
                self._open_calls[event.id] = event, str(call_input.get("command", ""))
            case events.AgentToolResult(tool_use_id=call_id) as result if (
                call_id in self._open_calls
            ):
                called, command = self._open_calls.pop(call_id)
                yield from self._settle(called, command, result)
            case _:
                return

    def _settle(
        self, called: Event, command: str, result: events.AgentToolResult
    ) -> Iterator[MemoryCandidate]:
        program = " ".join(command.split()[:1])
        if not program or "\n" in command or len(command) > _MAX_CHARS:
            return
        if result.is_error and result.error == "failed":
            self._failed[program] = called, command
        elif not result.is_error and program in self._failed:
            before, failed = self._failed.pop(program)
            if failed != command and len(set(failed.split()) & set(command.split())) > 1:
                yield MemoryCandidate(
                    text=f"`{failed}` fails here; `{command}` works.",
                    type="procedure",
                    trust="agent",
                    time=called.time,
                    evidence=(_evidence(before, failed), _evidence(called, command)),
                    name=f"how to run {program} {' '.join(command.split()[1:3])}".strip(),
                    description=f"which arguments {program} needs here",
                )
