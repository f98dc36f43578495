"""Events that the Managed Agents API has no word for, and workflow runs.

A tool call lives in the log as: proposed (`agent.tool_use`), `tool_call.authorized`,
`tool_call.started`, settled (`agent.tool_result`); `tool_call.in_doubt` after a crash.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mainspring.core.events import ErrorDetail, Payload
from mainspring.core.model import Effort
from mainspring.core.sender import Origin


class Todo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class WorkflowPhase(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    name: str
    description: str | None = None


class WorkflowResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["completed", "error", "stopped"]
    error: ErrorDetail | None = None


class WorkflowRunCreated(Payload, frozen=True, kw_only=True, tag="workflow_run.created"):
    workflow_run_id: str
    name: str
    phases: tuple[WorkflowPhase, ...]
    description: str | None = None


class WorkflowRunRunning(Payload, frozen=True, kw_only=True, tag="workflow_run.status_running"):
    workflow_run_id: str


class WorkflowRunIdle(Payload, frozen=True, kw_only=True, tag="workflow_run.status_idle"):
    workflow_run_id: str


class WorkflowRunEnded(Payload, frozen=True, kw_only=True, tag="workflow_run.status_ended"):
    workflow_run_id: str
    result: WorkflowResult


class WorkflowRunFailed(Payload, frozen=True, kw_only=True, tag="workflow_run.error"):
    error: ErrorDetail
    workflow_run_id: str | None = None


class WorkflowPhaseStarted(Payload, frozen=True, kw_only=True, tag="workflow_run.phase_started"):
    workflow_run_id: str
    workflow_run_phase_id: str


class WorkflowPhaseEnded(Payload, frozen=True, kw_only=True, tag="workflow_run.phase_ended"):
    workflow_run_id: str
    workflow_run_phase_id: str
    phase_started_id: str


class SessionCreated(Payload, frozen=True, kw_only=True, tag="session.created"):
    """Always the first event of a session that is not a fork."""

    agent_name: str | None = None
    agent_version: str | None = None
    title: str | None = None
    metadata: dict[str, str] | None = None
    origin: Origin | None = None
    """What it was made by or for; `None` in logs from before it was noted."""


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
    """What the model is told about it."""
    metadata: dict[str, str] | None = None


class SessionForked(Payload, frozen=True, kw_only=True, tag="session.forked"):
    """The first event of a fork's own: what stands before it is the parent's, by reference."""

    parent_session_id: str
    parent_seq: int
    title: str | None = None


class SessionMoved(Payload, frozen=True, kw_only=True, tag="session.moved"):
    """The last event here: the session goes on in another store, after `session.received`."""

    transfer_id: str
    """Chosen by the one store that may receive it."""


class SessionReceived(Payload, frozen=True, kw_only=True, tag="session.received"):
    """It goes on here. Rules, hooks, grants and approvals of where it was hold no more."""

    transfer_id: str
    workspace: str


class SessionWoken(Payload, frozen=True, kw_only=True, tag="session.woken"):
    """A worker took the session over. Wakes since the last progress count towards giving up."""

    owner: str
    epoch: int
    attempt: int


class LoopContinued(Payload, frozen=True, kw_only=True, tag="loop.continued"):
    reason: str
    detail: str | None = None


class ContextStatus(Payload, frozen=True, kw_only=True, tag="context.status"):
    """What the model was told about where it stands: what is left of its budget."""

    text: str


class ContextAdded(Payload, frozen=True, kw_only=True, tag="context.added"):
    """What a hook wants the model to know."""

    text: str
    source: str


class MessageWithheld(Payload, frozen=True, kw_only=True, tag="message.withheld"):
    """A hook has kept a user's message from the model."""

    event_id: str
    reason: str | None = None


class ToolCallAuthorized(Payload, frozen=True, kw_only=True, tag="tool_call.authorized"):
    """A gate's decision on one call, naming what decided."""

    tool_use_id: str
    decision: Literal["allow", "ask", "deny"]
    gate: Literal["rule", "mode", "hook", "guardrail", "person", "grant", "default"]
    rule: str | None = None
    reason: str | None = None
    call_hash: str | None = None
    """Of the exact call that was judged and of what it would do: approval of another is void."""
    preview: str | None = None
    """What it would do, as the person who is asked sees it."""
    updated_input: dict[str, object] | None = None
    """What a gate has made of the input: this is what runs."""


class ToolCallStarted(Payload, frozen=True, kw_only=True, tag="tool_call.started"):
    tool_use_id: str
    idempotency_key: str
    attempt: int = 1
    sandbox: str | None = None
    """Backend, level and hash of the flags of what it runs in."""
    by_client: bool = False
    """Handed to the client: its result comes as an event."""


class ToolCallInDoubt(Payload, frozen=True, kw_only=True, tag="tool_call.in_doubt"):
    """Started and not settled when the session woke; `policy` says how it is settled."""

    tool_use_id: str
    policy: Literal["retry", "probe", "ask", "report"]


class BudgetReserved(Payload, frozen=True, kw_only=True, tag="budget.reserved"):
    reservation_id: str
    cost_usd: str
    input_tokens: int = 0
    output_tokens: int = 0


class BudgetSettled(Payload, frozen=True, kw_only=True, tag="budget.settled"):
    reservation_id: str
    cost_usd: str


class HookRan(Payload, frozen=True, kw_only=True, tag="hook.ran"):
    hook_event: str
    handler: str
    outcome: Literal["ok", "blocked", "failed", "timed_out"]
    tool_use_id: str | None = None
    reason: str | None = None
    milliseconds: int | None = None


class MemoryWritten(Payload, frozen=True, kw_only=True, tag="memory.written"):
    store_id: str
    path: str
    operation: Literal["created", "modified", "deleted"]
    version: str | None = None


class ProviderFailedOver(Payload, frozen=True, kw_only=True, tag="provider.failed_over"):
    from_model: str
    to_model: str
    reason: str


class PolicyAdopted(Payload, frozen=True, kw_only=True, tag="policy.adopted"):
    """The rules and hooks that hold in this session, whatever becomes of their files."""

    policy: str
    """Hash of the blob that has them."""
    mode: str


class AgentAdopted(Payload, frozen=True, kw_only=True, tag="agent.adopted"):
    """What the agent is in this session, whatever becomes of its files."""

    definition: str
    """Hash of the blob that has it."""
    version: str | None = None


class ThreadStopped(Payload, frozen=True, kw_only=True, tag="thread.stopped"):
    """Another thread has ended this one, as a user's interrupt would."""

    by_session_thread_id: str


class SkillUsed(Payload, frozen=True, kw_only=True, tag="skill.used"):
    """The model has the text of a skill from here on."""

    name: str
    hash: str
    by: Literal["model", "user", "path", "agent"]
    """`agent`: a subagent that always begins with it."""
    tool_use_id: str | None = None
    allowed_tools: tuple[str, ...] = ()
    """Permission rules that allow until the run ends."""
    disallowed_tools: tuple[str, ...] = ()
    model: str | None = None
    """It and `effort` hold until the run ends."""
    effort: Effort | None = None


class WorktreeOpened(Payload, frozen=True, kw_only=True, tag="worktree.opened"):
    """A thread works in a folder of its own, a git worktree of the workspace."""

    path: str
    branch: str
    commit: str


class WorktreeClosed(Payload, frozen=True, kw_only=True, tag="worktree.closed"):
    path: str
    outcome: Literal["merged", "discarded", "kept"]
    """`kept`: the branch is there for somebody to look at."""
    commit: str | None = None
    reason: str | None = None


class SandboxOpened(Payload, frozen=True, kw_only=True, tag="sandbox.opened"):
    backend: str
    level: Literal["isolated", "degraded", "none"]
    flags_hash: str
    workspace: str


class NetworkRequested(Payload, frozen=True, kw_only=True, tag="network.requested"):
    """Something in the sandbox wanted to reach a host. No query strings, no headers."""

    host: str
    decision: Literal["allow", "deny"]
    rule: str | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    credential: str | None = None
    """Name of the secret that was put in."""


class ToolsLoaded(Payload, frozen=True, kw_only=True, tag="tools.loaded"):
    """Deferred tools whose schemas the model has from here on."""

    names: tuple[str, ...]


class TodosWritten(Payload, frozen=True, kw_only=True, tag="todos.written"):
    todos: tuple[Todo, ...]


class WorkspaceRestored(Payload, frozen=True, kw_only=True, tag="workspace.restored"):
    snapshot: str
    files: int
    """How many were changed by it."""


class WorkspaceSnapshotted(Payload, frozen=True, kw_only=True, tag="workspace.snapshotted"):
    snapshot: str
    files: int


class ArtifactPublished(Payload, frozen=True, kw_only=True, tag="artifact.published"):
    name: str
    hash: str
    size: int
    media_type: str
