"""Tools and skills that cost tokens in every request and are never used."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from mainspring.core.envelope import Event
from mainspring.core.errors import BlobNotFound, InvalidInput
from mainspring.core.events import ModelRequestStarted
from mainspring.harness.context.xray import decode_prefix
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.log.session_log import SessionLog
from mainspring.runtime.insights.insight import (
    BYTES_PER_TOKEN,
    MAX_PLACES,
    Insight,
    InsightGroup,
    InsightGroups,
    InsightLocation,
)
from mainspring.runtime.session.pinned_agent import AgentDefinition
from mainspring.runtime.skills.catalogue import tokens_of

_MIN_REQUESTS = 10
"""With fewer requests, an unused tool proves nothing."""


@dataclass(slots=True)
class UnusedDetector:
    prefixes: InsightGroups = field(default_factory=InsightGroups)
    """Requests by their prompt prefix."""
    definitions: InsightGroups = field(default_factory=InsightGroups)
    """Requests by the agent's definition."""
    called: Counter[str] = field(default_factory=Counter[str])
    skills_used: Counter[str] = field(default_factory=Counter[str])
    _sessions: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """The sessions by prefix or definition."""
    _definition: str | None = None

    def end_session(self) -> None:
        self._definition = None

    def adopted(self, definition: str) -> None:
        self._definition = definition

    def request(self, event: Event, payload: ModelRequestStarted) -> None:
        if payload.prefix is None or payload.purpose is not None:
            return
        self._count(self.prefixes, payload.prefix, event)
        if self._definition is not None:
            self._count(self.definitions, self._definition, event)

    def _count(self, groups: InsightGroups, digest: str, event: Event) -> None:
        groups.group(digest).add(event.session_id, event.seq)
        self._sessions.setdefault(digest, set()).add(event.session_id)

    async def insights(self, log: SessionLog) -> list[Insight]:
        return [*await self._tools(log), *await self._skills(log)]

    async def _tools(self, log: SessionLog) -> list[Insight]:
        groups: dict[str, _UnusedItem] = {}
        for digest, group in self.prefixes.by_key.items():
            try:
                prefix = decode_prefix(await log.blob(digest))
            except (BlobNotFound, InvalidInput):
                continue
            for spec in prefix.tools:
                if not self.called[canonical_name(spec.name)]:
                    size = len(msgspec.json.encode(spec)) // BYTES_PER_TOKEN
                    groups.setdefault(spec.name, _UnusedItem()).add(
                        group, self._sessions[digest], size
                    )
        return [
            group.insight("unused_tool", f"tool that was never called: {name}", _tool_action(name))
            for name, group in groups.items()
            if group.count >= _MIN_REQUESTS
        ]

    async def _skills(self, log: SessionLog) -> list[Insight]:
        groups: dict[str, _UnusedItem] = {}
        for digest, group in self.definitions.by_key.items():
            try:
                definition = msgspec.json.decode(await log.blob(digest), type=AgentDefinition)
            except (BlobNotFound, msgspec.DecodeError, RecursionError):
                continue
            for skill in definition.skills:
                if skill.is_listed and not self.skills_used[skill.name]:
                    cost = tokens_of(skill)
                    groups.setdefault(skill.name, _UnusedItem()).add(
                        group, self._sessions[digest], cost
                    )
        return [
            group.insight("unused_skill", f"skill that was never used: {name}", _skill_action(name))
            for name, group in groups.items()
            if group.count >= _MIN_REQUESTS
        ]


@dataclass(slots=True)
class _UnusedItem:
    """A tool or skill that requests paid for."""

    count: int = 0
    tokens: int = 0
    sessions: set[str] = field(default_factory=set[str])
    places: dict[str, InsightLocation] = field(default_factory=dict[str, InsightLocation])

    def add(self, group: InsightGroup, sessions: set[str], tokens: int) -> None:
        """`tokens` is its cost in each request."""
        self.count += group.count
        self.tokens += tokens * group.count
        self.sessions |= sessions
        for place in group.locations():
            if len(self.places) < MAX_PLACES:
                self.places.setdefault(place.session_id, place)

    def insight(self, topic: str, title: str, action: str) -> Insight:
        return Insight(
            kind="unused",
            topic=topic,
            title=title,
            count=self.count,
            sessions=len(self.sessions),
            tokens=self.tokens,
            places=tuple(self.places.values()),
            action=action,
        )


def _skill_action(name: str) -> str:
    return f"mainspring skill disable {name}, or improve its description of when to use it"


def _tool_action(name: str) -> str:
    if name.startswith("mcp__"):
        server = name.split("__")[1]
        return f"remove the server {server} from .mcp.json, or deny the tool by its name"
    return "remove it from `tools:` in agent.yaml, or deny it by its name in permissions.deny"
