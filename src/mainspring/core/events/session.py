"""The origin and the status of a session, and the status of its threads."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from mainspring.core.events.payload import Payload
from mainspring.core.sender import Origin, Sender


class StopReason(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["end_turn", "requires_action", "retries_exhausted", "budget_reached", "refusal"]
    event_ids: tuple[str, ...] = ()
    """With `requires_action`: the calls that need an answer."""


class RetryStatus(Struct, frozen=True, kw_only=True):
    type: Literal["retrying", "exhausted", "terminal"]


class ErrorDetail(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: str
    """`model_overloaded_error`, `unknown_error`, ..."""
    message: str
    retry_status: RetryStatus
    mcp_server_name: str | None = None
    """The MCP server that the error is about."""
    failure: str | None = None
    """How a model failed, such as `rate_limited`: the kind of `ProviderFailed`."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens by price class: plain input, written to cache, read from cache, output."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
    thinking_tokens: int | UnsetType = UNSET
    """The part of the output that is thinking, as counted by the provider or estimated."""

    @property
    def thought_tokens(self) -> int:
        return 0 if self.thinking_tokens is UNSET else self.thinking_tokens


class SessionCreated(Payload, frozen=True, kw_only=True, tag="session.created"):
    """Always the first event of a session that is not a fork."""

    agent_name: str | None = None
    agent_version: str | None = None
    title: str | None = None
    metadata: dict[str, str] | None = None
    origin: Origin | None = None
    """Where it comes from; `None` in logs from before origins were recorded."""


class SessionImported(Payload, frozen=True, kw_only=True, tag="session.imported"):
    """The events before this one were read from a file of another tool. They are history: they
    give no permission and count against no limit."""

    format: str
    path: str
    source_session_id: str
    sha256: str
    source_ids: str | None = None
    """Hash of the blob that maps each event's id to the id of its entry in the file."""
    note: str | None = None
    """A note about the import, for the model."""
    metadata: dict[str, str] | None = None


class SessionForked(Payload, frozen=True, kw_only=True, tag="session.forked"):
    """The first event of a fork itself; the events before it belong to the parent."""

    parent_session_id: str
    parent_seq: int
    title: str | None = None


class SessionMoved(Payload, frozen=True, kw_only=True, tag="session.moved"):
    """The last event in this store: the session continues in another one."""

    transfer_id: str
    """Chosen by the one store that may receive it."""


class SessionReceived(Payload, frozen=True, kw_only=True, tag="session.received"):
    """The session continues in this store. Its former rules, hooks, grants and approvals end."""

    transfer_id: str
    workspace: str


class SessionWoken(Payload, frozen=True, kw_only=True, tag="session.woken"):
    """A worker took over the session. Too many of these without progress end it."""

    owner: str
    epoch: int
    attempt: int


class StatusRunning(Payload, frozen=True, kw_only=True, tag="session.status_running"):
    pass


class StatusIdle(Payload, frozen=True, kw_only=True, tag="session.status_idle"):
    stop_reason: StopReason
    reason: str | None = None
    """The loop's own terminal reason, finer than the API's."""
    detail: str | None = None
    """Details, such as the limit that was reached or the provider's error."""


class StatusRescheduled(Payload, frozen=True, kw_only=True, tag="session.status_rescheduled"):
    pass


class StatusTerminated(Payload, frozen=True, kw_only=True, tag="session.status_terminated"):
    pass


class SessionFailed(Payload, frozen=True, kw_only=True, tag="session.error"):
    error: ErrorDetail


class SessionUsage(Payload, frozen=True, kw_only=True, tag="session.usage"):
    usage: Usage


class Redaction(Struct, frozen=True, kw_only=True):
    """An event whose text was removed; the hash chain stays valid."""

    seq: int
    digest: str
    """Hash of the original event, which the next one carries; hexadecimal."""
    body_sha256: str
    """Hash of its JSON without the text; hexadecimal."""


class EventsRedacted(Payload, frozen=True, kw_only=True, tag="events.redacted"):
    """Text was removed permanently from earlier events of this log."""

    redactions: tuple[Redaction, ...]
    reason: str
    by: Sender
    blobs: tuple[str, ...] = ()
    """Hashes of blobs that were removed with it."""


class SessionDeleted(Payload, frozen=True, kw_only=True, tag="session.deleted"):
    pass


class ThreadCreated(Payload, frozen=True, kw_only=True, tag="session.thread_created"):
    session_thread_id: str
    agent_name: str
    parent_thread_id: str | None = None
    workflow_run_id: str | None = None
    tool_use_id: str | None = None
    """The call that created it."""
    mode: Literal["foreground", "background", "handoff"] | None = None
    """`handoff`: the conversation continues in it, and its parent is done."""
    is_fork: bool = False
    """It starts with the whole conversation of its parent."""
    model: str | None = None
    """The model that it runs with, if the call named one."""
    isolation: Literal["shared", "worktree"] | None = None
    description: str | None = None
    """Its task in a few words."""


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


SessionPayload: TypeAlias = (
    SessionCreated
    | SessionImported
    | SessionForked
    | SessionMoved
    | SessionReceived
    | SessionWoken
    | StatusRunning
    | StatusIdle
    | StatusRescheduled
    | StatusTerminated
    | SessionFailed
    | SessionUsage
    | SessionDeleted
    | EventsRedacted
    | ThreadCreated
    | ThreadStatusRunning
    | ThreadStatusIdle
    | ThreadStatusRescheduled
)
