"""An insight: one observation that several places in the logs support, and a suggested action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from mainspring.core.envelope import Event
from mainspring.harness.permissions.tool_names import canonical_name

InsightKind: TypeAlias = Literal["waste", "failure", "missing_rule", "unused"]

BYTES_PER_TOKEN = 4  # of English text, for an estimate
MAX_KEYS = 50_000
"""The limit per kind, so that memory stays bounded for any logs."""
MAX_PLACES = 20  # kept of one finding
_MAX_EVENTS = 5  # kept of one place
_MAX_SUBJECT = 160  # characters
_SUBJECT_KEYS = ("command", "cmd", "file_path", "path", "pattern", "url", "query", "description")


class InsightLocation(Struct, frozen=True, kw_only=True):
    """A place in a session that supports an insight."""

    session_id: str
    events: tuple[int, ...]
    """The sequence numbers of the first supporting events."""


class Insight(Struct, frozen=True, kw_only=True):
    kind: InsightKind
    topic: str
    """The kind of waste, failure and so on: a fixed word for programs."""
    title: str
    count: int
    sessions: int
    """The number of sessions that support it."""
    tokens: int
    """An estimate, if it costs tokens; else 0."""
    places: tuple[InsightLocation, ...]
    action: str
    """The suggested action."""


@dataclass(slots=True)
class InsightGroup:
    """All evidence for the same observation. Sessions are read one after the other."""

    count: int = 0
    tokens: int = 0
    sessions: int = 0
    places: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    _last: str = ""

    def add(self, session_id: str, seq: int, *, tokens: int = 0, count: int = 1) -> None:
        self.count += count
        self.tokens += tokens
        if session_id != self._last:
            self.sessions += 1
            self._last = session_id
        if session_id in self.places or len(self.places) < MAX_PLACES:
            seqs = self.places.setdefault(session_id, [])
            if len(seqs) < _MAX_EVENTS:
                seqs.append(seq)

    def locations(self) -> tuple[InsightLocation, ...]:
        return tuple(
            InsightLocation(session_id=session_id, events=tuple(seqs))
            for session_id, seqs in self.places.items()
        )

    def insight(self, kind: InsightKind, topic: str, *, title: str, action: str) -> Insight:
        return Insight(
            kind=kind,
            topic=topic,
            title=title,
            count=self.count,
            sessions=self.sessions,
            tokens=self.tokens,
            places=self.locations(),
            action=action,
        )


@dataclass(slots=True)
class InsightGroups:
    """Groups by a common key; at most `MAX_KEYS` of them."""

    by_key: dict[str, InsightGroup] = field(default_factory=dict[str, InsightGroup])

    def group(self, key: str) -> InsightGroup:
        """The group of a key; a new one is not stored if there are too many."""
        group = self.by_key.get(key)
        if group is None:
            group = InsightGroup()
            if len(self.by_key) < MAX_KEYS:
                self.by_key[key] = group
        return group


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCall:
    """A tool call as the detectors see it."""

    event: Event
    tool: str
    """The tool's canonical name."""
    input: Mapping[str, object]

    @property
    def subject(self) -> str:
        return subject(self.tool, self.input)

    @property
    def command(self) -> str | None:
        return command_of(self.input)


def observed_call(event: Event, name: str, tool_input: Mapping[str, object]) -> ObservedCall:
    return ObservedCall(event=event, tool=canonical_name(name), input=tool_input)


def command_of(tool_input: Mapping[str, object]) -> str | None:
    """The shell command of a call; `None` if it is another call."""
    value = tool_input.get("command", tool_input.get("cmd"))
    if isinstance(value, list):
        parts = [str(item) for item in cast("list[object]", value)]
        is_wrapped = len(parts) == 3 and parts[1] in ("-c", "-lc")
        value = parts[2] if is_wrapped else " ".join(parts)
    return " ".join(value.split()) if isinstance(value, str) and value.strip() else None


def subject(tool: str, tool_input: Mapping[str, object]) -> str:
    """A short description of a call."""
    values = (str(tool_input[key]) for key in _SUBJECT_KEYS if tool_input.get(key))
    return shorten(f"{tool} {command_of(tool_input) or next(values, '')}".strip())


def shorten(text: str, limit: int = _MAX_SUBJECT) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
