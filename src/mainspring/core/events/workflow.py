"""Workflow runs, their phases and their nodes.

A run is a session; its log has these events, and each of its agents and programs is a session of
its own. Archon's states in terms of these events and of the API:

| Archon      | last event                                    | API status |
|-------------|-----------------------------------------------|------------|
| `pending`   | `created`                                     | `idle`     |
| `running`   | `status_running`                              | `running`  |
| `paused`    | `status_idle`                                 | `idle`     |
| `completed` | `status_ended`, result `completed`            | `ended`    |
| `failed`    | `status_ended`, result `error`                | `ended`    |
| `cancelled` | `status_ended`, result `stopped`              | `ended`    |
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events.payload import Payload
from mainspring.core.events.session import ErrorDetail


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
    definition: str | None = None
    """Hash of the blob with the files that the run uses, however they change later."""
    file: str | None = None
    """Where the workflow was found."""
    arguments: str = ""
    inputs: dict[str, object] | None = None
    run_key: str | None = None
    """A key of the caller's choice: a second start with it is the same run."""
    workspace: str | None = None
    base_branch: str | None = None
    """The branch that its changes are for: `$BASE_BRANCH`."""


class WorkflowRunRunning(Payload, frozen=True, kw_only=True, tag="workflow_run.status_running"):
    workflow_run_id: str


class WorkflowRunIdle(Payload, frozen=True, kw_only=True, tag="workflow_run.status_idle"):
    workflow_run_id: str


class WorkflowRunEnded(Payload, frozen=True, kw_only=True, tag="workflow_run.status_ended"):
    workflow_run_id: str
    result: WorkflowResult
    output: str = ""
    """The beginning of its output, if it has completed."""


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


NodeStatus: TypeAlias = Literal["completed", "failed", "skipped", "cancelled"]
NodeAction: TypeAlias = Literal["pause", "resume", "cancel", "retry", "skip"]


class WorkflowNodeStarted(Payload, frozen=True, kw_only=True, tag="workflow_run.node_started"):
    workflow_run_id: str
    node: str
    """The node's path: its id; in a group `group/2/node`, 2 being the iteration; in the second
    child of a fan-out `node/1/child`."""
    kind: str
    attempt: int = 1
    session_id: str | None = None
    """The session of its agent or program."""


class WorkflowNodeEnded(Payload, frozen=True, kw_only=True, tag="workflow_run.node_ended"):
    workflow_run_id: str
    node: str
    status: NodeStatus
    attempt: int = 1
    output: str = ""
    output_blob: str | None = None
    """Hash of the whole output, if it is long; `output` is its beginning."""
    structured: object = None
    """The output as JSON, if the node declares its format."""
    error: ErrorDetail | None = None
    reason: str | None = None
    """Why it was skipped or cancelled, or how a loop ended."""
    cost_usd: str = "0"
    session_id: str | None = None


class WorkflowNodeReset(Payload, frozen=True, kw_only=True, tag="workflow_run.node_reset"):
    """The results of these nodes, and of all below them, no longer count: they run again."""

    workflow_run_id: str
    nodes: tuple[str, ...]
    reason: str


class WorkflowRunControlled(Payload, frozen=True, kw_only=True, tag="workflow_run.controlled"):
    """A person or a program steers a run."""

    workflow_run_id: str
    action: NodeAction
    node: str | None = None
    text: str | None = None


WorkflowPayload: TypeAlias = (
    WorkflowRunCreated
    | WorkflowRunRunning
    | WorkflowRunIdle
    | WorkflowRunEnded
    | WorkflowRunFailed
    | WorkflowPhaseStarted
    | WorkflowPhaseEnded
    | WorkflowNodeStarted
    | WorkflowNodeEnded
    | WorkflowNodeReset
)
