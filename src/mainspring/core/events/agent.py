"""Messages and tool calls of the agent, and their results."""

from __future__ import annotations

from typing import Literal, TypeAlias

from mainspring.core.content import Block
from mainspring.core.events.payload import Payload

Effort: TypeAlias = Literal["none", "low", "medium", "high", "xhigh", "max"]
Permission: TypeAlias = Literal["allow", "ask", "deny"]


Failure: TypeAlias = Literal[
    "invalid",  # the input is wrong; a corrected one may succeed
    "unknown_tool",
    "denied",  # permission was denied
    "failed",  # it ran and did not succeed
    "timed_out",
    "cancelled",
    "in_doubt",  # a crash came between its start and its result
    "unavailable",  # something it needs is missing: the sandbox, the network
]
"""The kind of failure of a tool result."""


class AgentMessage(Payload, frozen=True, kw_only=True, tag="agent.message"):
    content: tuple[Block, ...]


class AgentThinking(Payload, frozen=True, kw_only=True, tag="agent.thinking"):
    text: str = ""
    signature: str | None = None
    """Opaque data that must be sent back to the provider with the text."""


class AgentToolUse(Payload, frozen=True, kw_only=True, tag="agent.tool_use"):
    name: str
    input: dict[str, object]
    evaluated_permission: Permission | None = None


class AgentToolResult(Payload, frozen=True, kw_only=True, tag="agent.tool_result"):
    tool_use_id: str
    content: tuple[Block, ...] = ()
    is_error: bool = False
    error: Failure | None = None


class AgentMcpToolUse(Payload, frozen=True, kw_only=True, tag="agent.mcp_tool_use"):
    mcp_server_name: str
    name: str
    """The name that the model uses."""
    mcp_tool_name: str | None = None
    """The tool's name on the server."""
    input: dict[str, object]
    evaluated_permission: Permission | None = None


class AgentMcpToolResult(Payload, frozen=True, kw_only=True, tag="agent.mcp_tool_result"):
    mcp_tool_use_id: str
    content: tuple[Block, ...] = ()
    is_error: bool = False
    error: Failure | None = None


class AgentCustomToolUse(Payload, frozen=True, kw_only=True, tag="agent.custom_tool_use"):
    name: str
    input: dict[str, object]


class ThreadMessageSent(Payload, frozen=True, kw_only=True, tag="agent.thread_message_sent"):
    to_session_thread_id: str
    content: tuple[Block, ...]
    to_agent_name: str | None = None


class ThreadMessageReceived(
    Payload, frozen=True, kw_only=True, tag="agent.thread_message_received"
):
    from_session_thread_id: str
    content: tuple[Block, ...]
    from_agent_name: str | None = None
    sent_id: str | None = None
    """The id of the event that sent it; absent for the first assignment of a thread."""


class ContextCompacted(Payload, frozen=True, kw_only=True, tag="agent.thread_context_compacted"):
    """An overlay: events `first_seq..last_seq` are read as `summary` from here on.

    With the layer `media`, only images and documents are removed from those events.
    """

    layer: Literal["results", "snip", "micro", "collapse", "auto", "media"] | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    dropped_event_ids: tuple[str, ...] = ()
    """Calls whose results are no longer shown, or only in part."""
    kept_bytes: int | None = None
    """How many bytes of each of these results are still shown; absent: none."""
    summary: str | None = None
    freed_tokens: int | None = None


AgentPayload: TypeAlias = (
    AgentMessage
    | AgentThinking
    | AgentToolUse
    | AgentToolResult
    | AgentMcpToolUse
    | AgentMcpToolResult
    | AgentCustomToolUse
    | ThreadMessageSent
    | ThreadMessageReceived
    | ContextCompacted
)
