"""Messages and tool calls of the agent, and their results."""

from __future__ import annotations

from typing import Literal, TypeAlias

from mainspring.core.content import Block
from mainspring.core.events.payload import Payload

Effort: TypeAlias = Literal["none", "low", "medium", "high", "xhigh", "max"]
Permission: TypeAlias = Literal["allow", "ask", "deny"]


Failure: TypeAlias = Literal[
    "invalid",  # the input is wrong: another one may do
    "unknown_tool",
    "denied",  # a gate said no
    "failed",  # it ran and did not succeed
    "timed_out",
    "cancelled",
    "in_doubt",  # a crash came between its start and its result
    "unavailable",  # what it needs is not there: no sandbox, no network
]
"""The kind of failure of a tool result."""


class AgentMessage(Payload, frozen=True, kw_only=True, tag="agent.message"):
    content: tuple[Block, ...]


class AgentThinking(Payload, frozen=True, kw_only=True, tag="agent.thinking"):
    text: str = ""
    signature: str | None = None
    """Opaque data that the provider wants back together with the text."""


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
    """As the model calls the tool."""
    mcp_tool_name: str | None = None
    """As the server calls it."""
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
    """The event by which it was sent; absent for what a thread is given when it is made."""


class ContextCompacted(Payload, frozen=True, kw_only=True, tag="agent.thread_context_compacted"):
    """An overlay: events `first_seq..last_seq` are read as `summary` from here on.

    With the layer `media`, only images and documents go from those events.
    """

    layer: Literal["results", "snip", "micro", "collapse", "auto", "media"] | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    dropped_event_ids: tuple[str, ...] = ()
    """Calls whose results are not shown any more, or only in part."""
    kept_bytes: int | None = None
    """How much of each of these results is still shown; absent: none."""
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
