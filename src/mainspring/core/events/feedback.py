"""People's ratings of an agent's work."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events.payload import Payload

RatedType: TypeAlias = Literal[
    "session",
    "message",  # a message of the agent; `id` is the id of its event
    "tool_call",
    "memory",
    "skill",
    "prompt_fragment",
    "tool",
]


class RatedSubject(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The subject of a rating, and its version."""

    type: RatedType
    id: str
    version: str | None = None


class FeedbackGiven(Payload, frozen=True, kw_only=True, tag="feedback.given"):
    """A person rated the agent's work. The model does not read it."""

    subject: RatedSubject
    rating: Literal["good", "bad"]
    text: str | None = None
    """Why, in the person's own words."""
