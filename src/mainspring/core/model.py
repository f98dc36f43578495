"""What the harness and a model say to each other: a request, deltas, exactly one reply.

Providers translate this to and from their wire formats; nothing here is any provider's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from mainspring.core.content import Block, TextBlock
from mainspring.core.events import Effort, Usage

ReplyReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "refusal", "pause_turn"]
INVALID_JSON = "__invalid_json__"
"""The only key of a tool's input that was no JSON object; its value is what the model wrote."""


class Thinking(Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    text: str
    signature: str | None = None
    """Opaque: returned to the provider that made it, dropped for others."""


class ToolUse(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, object]

    @property
    def invalid_json(self) -> str | None:
        """What the model wrote, if that was no JSON object: tell it so, do not run the call."""
        written = self.input.get(INVALID_JSON)
        return written if isinstance(written, str) else None


class ToolResultBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: tuple[Block, ...]
    is_error: bool = False


class User(Struct, frozen=True, tag_field="role", tag="user"):
    content: tuple[Block | ToolResultBlock, ...]
    """Tool results first, in the order asked, then what the user said."""


class Assistant(Struct, frozen=True, tag_field="role", tag="assistant"):
    content: tuple[TextBlock | Thinking | ToolUse, ...]


Message: TypeAlias = User | Assistant


class ToolSpec(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    input_schema: dict[str, object]


class Request(Struct, frozen=True, kw_only=True):
    """One model call. Everything before a breakpoint is the same bytes in the next call."""

    model: str
    """As the provider names it."""
    system: tuple[str, ...]
    """Static part first; what may change during a session stands behind it."""
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    max_tokens: int
    effort: Effort = "none"
    cache_messages: tuple[int, ...] = ()
    """Indices of messages that end with a cache breakpoint; tools and static system always do."""
    request_id: str = ""
    """Sent to the provider and kept in the log."""
    stream: bool = True
    """False to ask for the whole reply at once, after a stream has stalled."""


class TextDelta(Struct, frozen=True, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    text: str


class EventAnnounced(Struct, frozen=True, kw_only=True, tag_field="type", tag="announced"):
    """The deltas of this kind that follow will be an event, with this id. The harness says so, no
    model does; if the reply breaks off, there may be no such event."""

    event_id: str
    kind: Literal["agent.message", "agent.thinking"]


class ToolInputDelta(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_input_delta"):
    id: str
    name: str
    json: str
    """A piece of the input; empty in the first one, which announces the call."""


class ToolUseReady(Struct, frozen=True, tag_field="type", tag="tool_use_ready"):
    """The input of a call is complete; the call may start before the reply ends.

    Comes for calls whose input is valid, and not for every one: what counts is the reply.
    """

    use: ToolUse


class Stalled(Struct, frozen=True, kw_only=True, tag_field="type", tag="stalled"):
    """Nothing has come for a while; the stream is not given up yet."""

    seconds: float


class FailedOver(Struct, frozen=True, kw_only=True, tag_field="type", tag="failed_over"):
    """Another model than last time answers; comes before any part of its reply."""

    from_model: str
    to_model: str
    reason: str


class ToolOutput(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_output"):
    """Something that a running call has to show."""

    id: str
    name: str
    text: str


Delta: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | ToolInputDelta
    | ToolUseReady
    | Stalled
    | FailedOver
    | ToolOutput
    | EventAnnounced
)


class Reply(Struct, frozen=True, kw_only=True):
    content: tuple[TextBlock | Thinking | ToolUse, ...]
    usage: Usage
    reason: ReplyReason
    model: str
    """The one that answered."""
    provider_request_id: str | None = None
    usage_is_estimated: bool = False
    """The provider sent no usage; ours stands in for it."""


class Model(Protocol):
    """Anything that answers requests."""

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Deltas as they come, then exactly one `Reply`, last.

        Raises:
            ProviderFailed: there will be no reply; it says why and whether trying again can help.
        """
        ...
