"""The Managed Agents events: what clients send and what a session tells them. Names are forever.

A payload is what happened; its envelope (who, where, when) is `envelope.Event`. Optional fields
that the Managed Agents API does not have are ours and may be absent.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.content import Block
from mainspring.core.ids import FileId


class Payload(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    """Shared settings of all payloads: frozen, told apart by `type`, defaults not written.

    Without cycles, as JSON is, and so without `gc`: a quarter off the time to open a long session.
    """


class UserMessage(Payload, frozen=True, kw_only=True, tag="user.message"):
    content: tuple[Block, ...]
    skill: str | None = None
    """The one that it calls, by `/name`; its text is in the content."""


class UserInterrupt(Payload, frozen=True, kw_only=True, tag="user.interrupt"):
    session_thread_id: str | None = None


class UserToolConfirmation(Payload, frozen=True, kw_only=True, tag="user.tool_confirmation"):
    tool_use_id: str
    result: Literal["allow", "deny"]
    deny_message: str | None = None
    session_thread_id: str | None = None
    answered_by: str | None = None
    """Who it was, as the service knows them: a client cannot say it."""


class UserCustomToolResult(Payload, frozen=True, kw_only=True, tag="user.custom_tool_result"):
    custom_tool_use_id: str
    content: tuple[Block, ...] = ()
    is_error: bool = False
    session_thread_id: str | None = None


class UserToolResult(Payload, frozen=True, kw_only=True, tag="user.tool_result"):
    tool_use_id: str
    content: tuple[Block, ...] = ()
    is_error: bool = False
    session_thread_id: str | None = None


class TextRubric(Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    content: str


class FileRubric(Struct, frozen=True, kw_only=True, tag_field="type", tag="file"):
    file_id: FileId


class UserDefineOutcome(Payload, frozen=True, kw_only=True, tag="user.define_outcome"):
    description: str
    rubric: TextRubric | FileRubric
    outcome_id: str | None = None
    max_iterations: int | None = None


class SystemMessage(Payload, frozen=True, kw_only=True, tag="system.message"):
    content: tuple[Block, ...]


class RuleText(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    tool_name: str
    rule_content: str | None = None


class PermissionUpdate(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """As Claude Code's hooks write it; `paths`, `grant_id`, `expires_at` and `max_uses` are
    ours."""

    type: Literal[
        "addRules",
        "replaceRules",
        "removeRules",
        "setMode",
        "addDirectories",
        "removeDirectories",
        "allowProtected",  # ours: counts only if it is the operator's
    ]
    rules: tuple[RuleText, ...] = ()
    behavior: Literal["allow", "ask", "deny"] | None = None
    mode: str | None = None
    directories: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Protected paths that file tools may change: absolute, links followed, each for itself."""
    destination: Literal["session", "localSettings", "projectSettings", "userSettings"] = "session"
    grant_id: str | None = None
    expires_at: str | None = None
    max_uses: int | None = None


class PermissionUpdated(Payload, frozen=True, kw_only=True, tag="permission.updated"):
    """From here on other rules, or another mode, hold in this session."""

    updates: tuple[PermissionUpdate, ...]
    by: Literal["person", "hook", "operator"] = "person"
    tool_use_id: str | None = None
    """The call whose approval brought it."""


class SessionUpdated(Payload, frozen=True, kw_only=True, tag="session.updated"):
    """Somebody has changed how the session was asked for; what is absent has not changed."""

    title: str | None = None
    metadata: dict[str, str] | None = None
    agent: dict[str, object] | None = None
    """All of it, as it is from the next turn on."""
    budget: dict[str, object] | None = None


class CompactionRequested(Payload, frozen=True, kw_only=True, tag="compaction.requested"):
    """Somebody wants what is old to be summed up now, whether or not there is room."""

    instructions: str | None = None
    """What the summary must keep."""


class ThreadStatusTerminated(
    Payload, frozen=True, kw_only=True, tag="session.thread_status_terminated"
):
    """A thread is put away: it is not run again, and what it is sent it does not get."""

    session_thread_id: str
    agent_name: str


ClientPayload: TypeAlias = (
    UserMessage
    | UserInterrupt
    | UserToolConfirmation
    | UserCustomToolResult
    | UserToolResult
    | UserDefineOutcome
    | SystemMessage
    | PermissionUpdated
    | SessionUpdated
    | CompactionRequested
    | ThreadStatusTerminated
)

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
"""What kind of failure a tool's result is."""


class AgentMessage(Payload, frozen=True, kw_only=True, tag="agent.message"):
    content: tuple[Block, ...]


class AgentThinking(Payload, frozen=True, kw_only=True, tag="agent.thinking"):
    text: str = ""
    signature: str | None = None
    """What the provider wants back, unread, with the text it signed."""


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


class StopReason(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["end_turn", "requires_action", "retries_exhausted", "budget_reached", "refusal"]
    event_ids: tuple[str, ...] = ()
    """What is waited for, with `requires_action`."""


class RetryStatus(Struct, frozen=True, kw_only=True):
    type: Literal["retrying", "exhausted", "terminal"]


class ErrorDetail(Struct, frozen=True, kw_only=True):
    type: str
    """`model_overloaded_error`, `unknown_error` and the like."""
    message: str
    retry_status: RetryStatus


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens by what they cost: plain input, written to cache, read from cache, output."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class StatusRunning(Payload, frozen=True, kw_only=True, tag="session.status_running"):
    pass


class StatusIdle(Payload, frozen=True, kw_only=True, tag="session.status_idle"):
    stop_reason: StopReason
    reason: str | None = None
    """The loop's own terminal reason, finer than the API's."""
    detail: str | None = None
    """Which limit it was, what the provider said, and the like."""


class StatusRescheduled(Payload, frozen=True, kw_only=True, tag="session.status_rescheduled"):
    pass


class StatusTerminated(Payload, frozen=True, kw_only=True, tag="session.status_terminated"):
    pass


class SessionFailed(Payload, frozen=True, kw_only=True, tag="session.error"):
    error: ErrorDetail


class SessionUsage(Payload, frozen=True, kw_only=True, tag="session.usage"):
    usage: Usage


class SessionDeleted(Payload, frozen=True, kw_only=True, tag="session.deleted"):
    pass


class ThreadCreated(Payload, frozen=True, kw_only=True, tag="session.thread_created"):
    session_thread_id: str
    agent_name: str
    parent_thread_id: str | None = None
    workflow_run_id: str | None = None
    tool_use_id: str | None = None
    """The call that asked for it."""
    mode: Literal["foreground", "background"] | None = None
    is_fork: bool = False
    """It begins with all that its parent has read and said."""
    model: str | None = None
    """Which it runs with, if the call said so."""
    isolation: Literal["shared", "worktree"] | None = None
    description: str | None = None
    """What it is to do, in a few words."""


class ThreadStatusRunning(Payload, frozen=True, kw_only=True, tag="session.thread_status_running"):
    session_thread_id: str
    agent_name: str


class ThreadStatusIdle(Payload, frozen=True, kw_only=True, tag="session.thread_status_idle"):
    session_thread_id: str
    agent_name: str
    stop_reason: StopReason


class ThreadStatusRescheduled(
    Payload, frozen=True, kw_only=True, tag="session.thread_status_rescheduled"
):
    session_thread_id: str
    agent_name: str


class ModelRequestStarted(Payload, frozen=True, kw_only=True, tag="span.model_request_start"):
    model: str | None = None
    purpose: str | None = None
    """`summary` and the like: a call beside the conversation. Absent: a turn of it."""
    request_id: str | None = None
    """Ours, sent to the provider, so that both sides' records can be matched."""
    estimated_input_tokens: int | None = None
    max_tokens: int | None = None
    prefix: str | None = None
    """The blob with what stands before the messages: model, tools, system."""
    cache_break: str | None = None
    """Why this request does not extend the one before it; absent when it does."""


class ModelRequestEnded(Payload, frozen=True, kw_only=True, tag="span.model_request_end"):
    model_request_start_id: str
    model_usage: Usage
    is_error: bool = False
    purpose: str | None = None
    """The same as at its start."""
    model: str | None = None
    """The one that answered."""
    stop_reason: str | None = None
    cost_usd: str | None = None
    """A decimal, written out: money is not a float."""


class OutcomeEvaluationStarted(
    Payload, frozen=True, kw_only=True, tag="span.outcome_evaluation_start"
):
    outcome_id: str
    iteration: int


class OutcomeEvaluationOngoing(
    Payload, frozen=True, kw_only=True, tag="span.outcome_evaluation_ongoing"
):
    outcome_id: str
    iteration: int


class OutcomeEvaluationEnded(Payload, frozen=True, kw_only=True, tag="span.outcome_evaluation_end"):
    outcome_evaluation_start_id: str
    outcome_id: str
    iteration: int
    result: Literal[
        "satisfied", "needs_revision", "max_iterations_reached", "failed", "interrupted"
    ]
    explanation: str
    usage: Usage
