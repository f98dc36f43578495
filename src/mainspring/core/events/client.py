"""Events that clients send through the inbox."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.content import Block
from mainspring.core.events.approval import ApprovalAnswered
from mainspring.core.events.feedback import FeedbackGiven
from mainspring.core.events.payload import Payload
from mainspring.core.events.workflow import (
    WorkflowRunControlled,
    WorkflowRunEnded,
    WorkflowRunFailed,
    WorkflowRunIdle,
    WorkflowRunRunning,
)
from mainspring.core.ids import FileId


class UserMessage(Payload, frozen=True, kw_only=True, tag="user.message"):
    content: tuple[Block, ...]
    skill: str | None = None
    """The skill that it calls with `/name`; the skill's text is in the content."""


class UserInterrupt(Payload, frozen=True, kw_only=True, tag="user.interrupt"):
    session_thread_id: str | None = None


class UserToolConfirmation(Payload, frozen=True, kw_only=True, tag="user.tool_confirmation"):
    tool_use_id: str
    result: Literal["allow", "deny"]
    deny_message: str | None = None
    session_thread_id: str | None = None
    answered_by: str | None = None
    """The person as authenticated by the service; a client cannot set it."""


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
        "allowProtected",  # ours: valid only from the operator
    ]
    rules: tuple[RuleText, ...] = ()
    behavior: Literal["allow", "ask", "deny"] | None = None
    mode: str | None = None
    directories: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Protected paths that file tools may change: absolute, links resolved, compared exactly."""
    destination: Literal["session", "localSettings", "projectSettings", "userSettings"] = "session"
    grant_id: str | None = None
    expires_at: str | None = None
    max_uses: int | None = None


class PermissionUpdated(Payload, frozen=True, kw_only=True, tag="permission.updated"):
    """The permission rules or the mode of the session change from here on."""

    updates: tuple[PermissionUpdate, ...]
    by: Literal["person", "hook", "operator"] = "person"
    tool_use_id: str | None = None
    """The call whose approval caused the update."""


class SessionUpdated(Payload, frozen=True, kw_only=True, tag="session.updated"):
    """The configuration of the session changes; absent fields stay the same."""

    title: str | None = None
    metadata: dict[str, str] | None = None
    agent: dict[str, object] | None = None
    """The whole definition that applies from the next turn on."""
    budget: dict[str, object] | None = None


class CompactionRequested(Payload, frozen=True, kw_only=True, tag="compaction.requested"):
    """A request to compact the context now, even if there is room."""

    instructions: str | None = None
    """What the summary must keep."""


class ThreadStatusTerminated(
    Payload, frozen=True, kw_only=True, tag="session.thread_status_terminated"
):
    """A thread is archived: it does not run again and receives no more messages."""

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
    | ApprovalAnswered
    | FeedbackGiven
    | WorkflowRunControlled
    | WorkflowRunRunning
    | WorkflowRunIdle
    | WorkflowRunEnded
    | WorkflowRunFailed
)
"""Events of the inbox. Those of workflow runs come from a run that the session's agent started;
the API takes none from its clients."""
