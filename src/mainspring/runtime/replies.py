"""What comes of a slash command: values, for a screen or for JSON."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events import Usage
from mainspring.harness.context.anatomy import Parts


class Sent(Struct, frozen=True, kw_only=True, tag_field="type", tag="sent"):
    """It is in the session's inbox."""

    text: str
    """What it means, in words."""
    is_work: bool = False
    """Whether the session has something to do now; else it counts from its next run on."""
    event_ids: tuple[str, ...] = ()


class Cost(Struct, frozen=True, kw_only=True, tag_field="type", tag="cost"):
    turns: int
    usage: Usage
    cost_usd: str


class Context(Struct, frozen=True, kw_only=True, tag_field="type", tag="context"):
    """Of the newest request of the main thread."""

    model: str
    parts: Parts
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


class Agents(Struct, frozen=True, kw_only=True, tag_field="type", tag="agents"):
    types: tuple[AgentType, ...]
    threads: tuple[ThreadView, ...]


class SkillView(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    kind: Literal["skill", "command"]
    scope: str
    is_trusted: bool
    for_model: bool
    for_user: bool


class Skills(Struct, frozen=True, kw_only=True, tag_field="type", tag="skills"):
    skills: tuple[SkillView, ...]


class WaitingCall(Struct, frozen=True, kw_only=True):
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


class Waiting(Struct, frozen=True, kw_only=True, tag_field="type", tag="waiting"):
    calls: tuple[WaitingCall, ...]


class Said(Struct, frozen=True, kw_only=True, tag_field="type", tag="said"):
    """Nothing has changed; this is what there is to know."""

    text: str


Reply: TypeAlias = Sent | Cost | Context | Agents | Skills | Waiting | Said
