"""The state of a workflow run: a fold of its log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias, TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.envelope import AnyPayload, Event
from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    WorkflowNodeEnded,
    WorkflowNodeReset,
    WorkflowNodeStarted,
    WorkflowResult,
    WorkflowRunControlled,
    WorkflowRunCreated,
    WorkflowRunEnded,
    WorkflowRunIdle,
    WorkflowRunRunning,
)
from mainspring.harness.state.open_approval import OpenApproval, fold_approvals
from mainspring.runtime.workflows.format.references import NodeOutput

RunStatus: TypeAlias = Literal["pending", "running", "paused", "completed", "failed", "cancelled"]
_RESULTS: dict[str, RunStatus] = {
    "completed": "completed",
    "error": "failed",
    "stopped": "cancelled",
}


class NodeState(Struct, frozen=True, kw_only=True):
    """A node as far as it has come. A node that is not in the state has not started."""

    path: str
    kind: str
    status: Literal["running", "completed", "failed", "skipped", "cancelled"]
    started_at: datetime
    ended_at: datetime | None = None
    end_seq: int = 0
    """The position of its end in the log."""
    attempt: int = 1
    session_id: str | None = None
    output: str = ""
    output_blob: str | None = None
    structured: object = None
    error: str | None = None
    error_type: str | None = None
    reason: str | None = None
    cost_usd: Decimal = Decimal(0)
    """Of all its attempts."""

    @property
    def is_ended(self) -> bool:
        return self.status != "running"

    def as_output(
        self, declared: Sequence[str] | None = None, whole_text: str | None = None
    ) -> NodeOutput:
        """`whole_text`: the output, if the state has only its beginning."""
        return NodeOutput(
            status=self.status,
            text=self.output if whole_text is None else whole_text,
            structured=self.structured,
            declared=None if declared is None else tuple(declared),
            error=self.error or "",
        )


@dataclass(slots=True)
class RunState:
    created: WorkflowRunCreated
    created_at: datetime
    status: RunStatus = "pending"
    nodes: dict[str, NodeState] = field(default_factory=dict[str, NodeState])
    """By path, in the order of their first start."""
    earlier: list[NodeState] = field(default_factory=list[NodeState])
    """Attempts and results that no longer count, oldest first."""
    approvals: tuple[OpenApproval, ...] = ()
    stop_id: str | None = None
    """The event that says that it waits or has ended, the last time that it did."""
    result: WorkflowResult | None = None
    output: str = ""
    """The beginning of its output, once it has completed."""
    is_paused_by_user: bool = False
    updated_at: datetime | None = None

    @property
    def id(self) -> str:
        return self.created.workflow_run_id

    @property
    def cost_usd(self) -> Decimal:
        nodes = (*self.nodes.values(), *self.earlier)
        return sum((node.cost_usd for node in nodes), Decimal(0))

    @property
    def open_approvals(self) -> list[OpenApproval]:
        return [item for item in self.approvals if item.is_open]

    @property
    def has_ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    def apply(self, event: Event) -> None:
        self.updated_at = event.time
        match event.payload:
            case WorkflowRunRunning():
                self.status, self.result, self.output = "running", None, ""
            case WorkflowRunIdle():
                self.status, self.stop_id = "paused", event.id
            case WorkflowRunEnded(result=result, output=output):
                self.status, self.stop_id = _RESULTS[result.type], event.id
                self.result, self.output = result, output
            case WorkflowNodeStarted() as started:
                self._start(started, event.time)
            case WorkflowNodeEnded() as ended:
                self._end(ended, event)
            case WorkflowNodeReset(nodes=paths):
                self._reset(paths)
            case WorkflowRunControlled(action="pause" | "resume") as control:
                self.is_paused_by_user = control.action == "pause"
            case _:
                self.approvals = fold_approvals(self.approvals, event)

    def _start(self, started: WorkflowNodeStarted, time: datetime) -> None:
        before = self.nodes.get(started.node)
        if before is not None and before.attempt < started.attempt:
            self.earlier.append(before)
        self.nodes[started.node] = NodeState(
            path=started.node,
            kind=started.kind,
            status="running",
            started_at=time,
            attempt=started.attempt,
            session_id=started.session_id,
        )

    def _end(self, ended: WorkflowNodeEnded, event: Event) -> None:
        before = self.nodes.get(ended.node)
        if before is None:  # skipped: it never started
            before = NodeState(path=ended.node, kind="", status="skipped", started_at=event.time)
        self.nodes[ended.node] = replace(
            before,
            status=ended.status,
            ended_at=event.time,
            end_seq=event.seq,
            output=ended.output,
            output_blob=ended.output_blob,
            structured=ended.structured,
            error=None if ended.error is None else ended.error.message,
            error_type=None if ended.error is None else ended.error.type,
            reason=ended.reason,
            cost_usd=Decimal(ended.cost_usd),
            session_id=ended.session_id or before.session_id,
        )

    def _reset(self, paths: Sequence[str]) -> None:
        for path in [*self.nodes]:
            if any(path == root or path.startswith(f"{root}/") for root in paths):
                self.earlier.append(self.nodes.pop(path))

    def attempts(self, path: str) -> int:
        """How often a node has started."""
        before = [item.attempt for item in self.earlier if item.path == path]
        node = self.nodes.get(path)
        return max((*before, 0 if node is None else node.attempt), default=0)


def fold_run(events: Iterable[Event]) -> RunState | None:
    """Fold a log into a run; `None` if it is not the log of a run."""
    run: RunState | None = None
    for event in events:
        if run is None and _is_own(event.payload):
            run = RunState(event.payload, event.time)
        elif run is not None:
            run.apply(event)
    return run


def _is_own(payload: AnyPayload) -> TypeGuard[WorkflowRunCreated]:
    """Whether it is the beginning of a run, not a notice in the log of the agent that started
    one."""
    return isinstance(payload, WorkflowRunCreated) and payload.definition is not None


def require_run(events: Iterable[Event], session_id: str) -> RunState:
    """Raises: InvalidInput: it is the log of something else."""
    if (run := fold_run(events)) is None:
        raise InvalidInput(f"session {session_id} is not a workflow run")
    return run
