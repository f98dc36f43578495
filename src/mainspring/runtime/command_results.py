"""Results of slash commands: values, for a screen or for JSON."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events import Usage
from mainspring.harness.context.xray import TokenBreakdown


class SubmittedResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="sent"):
    """It is in the session's inbox."""

    text: str
    """What it means, in words."""
    is_work: bool = False
    """Whether the session has something to do now; else it counts from its next run on."""
    event_ids: tuple[str, ...] = ()


class CostResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="cost"):
    turns: int
    usage: Usage
    cost_usd: str


class ContextResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="context"):
    """Of the newest request of the main thread."""

    model: str
    parts: TokenBreakdown
    messages: int
    window: int | None


class AgentType(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    model: str | None
    scope: str | None
    """`None`: one of ours."""


class ThreadView(Struct, frozen=True, kw_only=True):
    """A subagent that was called."""

    id: str
    agent: str | None
    description: str | None
    parent_id: str | None
    depth: int
    status: str
    turns: int
    cost_usd: str
    """With all that it has called itself."""


class AgentsResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="agents"):
    types: tuple[AgentType, ...]
    threads: tuple[ThreadView, ...]


class AgentSkillView(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    kind: Literal["skill", "command"]
    scope: str
    is_trusted: bool
    for_model: bool
    for_user: bool


class SkillsResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="skills"):
    skills: tuple[AgentSkillView, ...]


class PendingCallView(Struct, frozen=True, kw_only=True):
    number: int
    """From 1: what `/approve` calls it."""
    id: str
    thread_id: str
    path: tuple[str, ...]
    name: str
    input: dict[str, object]
    reason: str | None
    preview: str | None
    is_question: bool
    """It wants a result from the client, not a yes or a no."""


class PendingCallsResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="waiting"):
    calls: tuple[PendingCallView, ...]


class TextResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="said"):
    """Nothing has changed; this is what there is to know."""

    text: str


SlashCommandResult: TypeAlias = (
    SubmittedResult
    | CostResult
    | ContextResult
    | AgentsResult
    | SkillsResult
    | PendingCallsResult
    | TextResult
)
