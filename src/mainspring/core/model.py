"""The interface between the harness and a model: a request, deltas, exactly one reply.

Providers translate it to and from their wire formats; nothing here is specific to one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from mainspring.core.content import Block, TextBlock
from mainspring.core.errors import ProviderFailure
from mainspring.core.events import Effort, Usage

ReplyReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "refusal", "pause_turn"]
INVALID_JSON = "__invalid_json__"
"""The only key of a tool input that is not a JSON object; its value is the raw text."""


class Thinking(Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    text: str
    signature: str | None = None
    """Opaque: sent back to the provider that created it, and to no other."""


class ToolUse(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, object]

    @property
    def invalid_json(self) -> str | None:
        """The raw input, if it is not a JSON object: the call fails without running."""
        raw_input = self.input.get(INVALID_JSON)
        return raw_input if isinstance(raw_input, str) else None


class ToolResultBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: tuple[Block, ...]
    is_error: bool = False


class User(Struct, frozen=True, tag_field="role", tag="user"):
    content: tuple[Block | ToolResultBlock, ...]
    """Tool results first, in the order of the calls, then the user's message."""


class Assistant(Struct, frozen=True, tag_field="role", tag="assistant"):
    content: tuple[TextBlock | Thinking | ToolUse, ...]


Message: TypeAlias = User | Assistant


class ToolSpec(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    input_schema: dict[str, object]


class Request(Struct, frozen=True, kw_only=True):
    """One model call. All bytes before a cache breakpoint are the same in the next call."""

    model: str
    """The provider's name of the model."""
    system: tuple[str, ...]
    """The static part first, then the part that may change during a session."""
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    max_tokens: int
    effort: Effort = "none"
    cache_messages: tuple[int, ...] = ()
    """Indices of messages that end with a cache breakpoint; tools and static system always do."""
    request_id: str = ""
    """Sent to the provider and stored in the log."""
    stream: bool = True
    """False to get the whole reply at once, after a stream has stalled."""


class TextDelta(Struct, frozen=True, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    text: str


class EventAnnounced(Struct, frozen=True, kw_only=True, tag_field="type", tag="announced"):
    """The id of the event that the following deltas of this kind will become. Sent by the harness,
    not by models; if the reply breaks off, there may be no such event."""

    event_id: str
    kind: Literal["agent.message", "agent.thinking"]


class ToolInputDelta(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_input_delta"):
    id: str
    name: str
    json: str
    """A piece of the input; empty in the first one, which announces the call."""


class ToolUseReady(Struct, frozen=True, tag_field="type", tag="tool_use_ready"):
    """The input of a call is complete; the call may start before the reply ends.

    Optional, and only for valid inputs: the reply is authoritative.
    """

    use: ToolUse


class Stalled(Struct, frozen=True, kw_only=True, tag_field="type", tag="stalled"):
    """The stream has been silent for a while but has not timed out."""

    seconds: float


class FailedOver(Struct, frozen=True, kw_only=True, tag_field="type", tag="failed_over"):
    """A different model answers than last time; sent before any part of its reply."""

    from_model: str
    to_model: str
    reason: str


class RetryScheduled(Struct, frozen=True, kw_only=True, tag_field="type", tag="retry_scheduled"):
    """No model answers; they are asked again after a wait. Sent before any part of a reply."""

    model: str
    """The model that failed, or that failed last."""
    kind: ProviderFailure
    reason: str
    """What the provider answered, without its name."""
    attempt: int
    """The number of the attempt after the wait, from 2."""
    attempts: int
    """After so many attempts the call fails."""
    seconds: float
    """How long the wait is."""
    waited_seconds: float
    """How long the call has taken so far."""
    limit_seconds: float
    """How long it may take, with all its waits."""


class ToolOutput(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_output"):
    """Progress of a running call."""

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
    | RetryScheduled
    | ToolOutput
    | EventAnnounced
)


class Reply(Struct, frozen=True, kw_only=True):
    content: tuple[TextBlock | Thinking | ToolUse, ...]
    usage: Usage
    reason: ReplyReason
    model: str
    """The model that answered."""
    provider_request_id: str | None = None
    usage_is_estimated: bool = False
    """The provider sent no usage, so this is our estimate."""


class Model(Protocol):
    """Anything that answers requests."""

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Deltas as they arrive, then exactly one `Reply`.

        Raises:
            ProviderFailed: there is no reply. It says why, and whether a retry can help.
        """
        ...
