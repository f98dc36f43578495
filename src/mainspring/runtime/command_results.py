"""Results of slash commands, which clients print or encode as JSON."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events import Usage
from mainspring.harness.context.xray import TokenBreakdown


class SubmittedResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="sent"):
    """The event is in the session's inbox."""

    text: str
    """A description for people."""
    is_work: bool = False
    """Whether the session has work to do now; otherwise it takes effect in the next run."""
    event_ids: tuple[str, ...] = ()


class CostResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="cost"):
    turns: int
    usage: Usage
    cost_usd: str


class ContextResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="context"):
    """The parts of the latest request of the main thread."""

    model: str
    parts: TokenBreakdown
    messages: int
    window: int | None


class AgentType(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    model: str | None
    scope: str | None
    """`None`: a built-in one."""


class ThreadView(Struct, frozen=True, kw_only=True):
    """A subagent that is running or has run."""

    id: str
    agent: str | None
    description: str | None
    parent_id: str | None
    depth: int
    status: str
    turns: int
    cost_usd: str
    """Including its own subagents."""


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
    """Counts from 1, for `/approve`."""
    id: str
    thread_id: str
    path: tuple[str, ...]
    name: str
    input: dict[str, object]
    reason: str | None
    preview: str | None
    is_question: bool
    """It needs a result from the client, or an answer with a form, not yes or no."""


class PendingCallsResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="waiting"):
    calls: tuple[PendingCallView, ...]


class TextResult(Struct, frozen=True, kw_only=True, tag_field="type", tag="said"):
    """Nothing has changed; this is information only."""

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
