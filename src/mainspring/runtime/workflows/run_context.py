"""What the parts of a running workflow share: its log and state, its limits, and the signal that
something has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import anyio
from anyio import CapacityLimiter

from mainspring.core import ids
from mainspring.core.envelope import Event
from mainspring.core.events import (
    ErrorDetail,
    KnownPayload,
    UserInterrupt,
    WorkflowNodeEnded,
    WorkflowNodeReset,
    WorkflowRunControlled,
)
from mainspring.core.events.session import RetryStatus
from mainspring.core.events.workflow import NodeStatus
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.runtime.workflows.format.definition import Node
from mainspring.runtime.workflows.format.references import Reference
from mainspring.runtime.workflows.run_files import RunFiles
from mainspring.runtime.workflows.run_scope import Scope, referenced_paths, value_reader
from mainspring.runtime.workflows.run_state import RunState
from mainspring.runtime.workflows.step_runner import StepResult, StepRunner

INLINE_CHARS = 16_000
"""Longer outputs are stored as blobs; the log has their beginning."""
MAX_STEPS = 1000
"""Nodes that one run may start unless its caller says otherwise: a loop that never ends stops."""
PARALLEL = 20
"""Agents and programs of one run at the same time, as many as subagents of one session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    max_steps: int = MAX_STEPS
    parallel: int = PARALLEL
    max_cost_usd: Decimal | None = None


@dataclass(slots=True, kw_only=True)
class RunContext:
    session_id: str
    """The session of the run; a fork has another one than the run that it came from."""
    log: SessionLog
    writer: Writer
    state: RunState
    files: RunFiles
    runner: StepRunner
    limits: RunLimits
    limiter: CapacityLimiter
    variables: Mapping[str, str]
    """The values of `ARTIFACTS_DIR` and the other names of the run."""
    on_event: Callable[[Event], None]
    steps: int = 0
    """How many nodes this process has started."""
    stop_reason: str | None = None
    """Why the run is to end now."""
    over_limit: str | None = None
    """The limit of the run that is reached."""
    is_changed: bool = False
    """A person has had ended nodes run again or skipped."""
    received: int = 0
    """How often something came from the inbox."""
    signals: set[anyio.Event] = field(default_factory=set[anyio.Event])
    """Set when something outside a graph may let it continue."""

    def step_id(self, path: str, attempt: int, *parts: str) -> str:
        """The id of the session of a step: after a crash, the same step continues it."""
        return ids.stable_id(ids.SESSION, self.session_id, path, str(attempt), *parts)

    async def append(self, *payloads: KnownPayload) -> None:
        self.apply(await self.writer.append(*payloads))

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            self.state.apply(event)
            self.on_event(event)

    async def receive(self) -> bool:
        """Take everything from the inbox, with its effects in the same commit. Returns whether
        there was anything."""
        events = await self.writer.stage_inbox()
        staged = [*events]
        for event in events:
            match event.payload:
                case UserInterrupt():
                    self.stop_reason = "cancelled"
                case WorkflowRunControlled() as control:
                    staged += self.writer.stage(*self._effects(control))
                case _:
                    pass
        await self.writer.commit()
        self.apply(staged)
        if staged:
            self.received += 1
            self.wake()
        return bool(staged)

    def wake(self) -> None:
        for signal in self.signals:
            signal.set()

    def _effects(self, control: WorkflowRunControlled) -> list[KnownPayload]:
        if control.action == "cancel":
            self.stop_reason = control.text or "cancelled"
        if control.action == "resume" and self.state.has_ended:
            return self._retry_failed()
        node = None if control.node is None else self._node(control.node)
        state = None if node is None else self.state.nodes.get(node.id)
        if node is None or state is None:
            return []
        run_id, names = self.state.id, self.behind(node.id)
        if control.action == "retry" and state.is_ended:
            self.is_changed = True
            return [WorkflowNodeReset(workflow_run_id=run_id, nodes=names, reason="retried")]
        if control.action == "skip" and state.is_ended and node.kind != "approval":
            self.is_changed = True
            reason = control.text or "skipped by a person"
            behind = names[1:]
            reset = WorkflowNodeReset(workflow_run_id=run_id, nodes=behind, reason=reason)
            return [self.ended(node.id, "skipped", reason=reason), *([reset] if behind else ())]
        return []

    def _retry_failed(self) -> list[KnownPayload]:
        """Let nodes that failed, and those behind them, run again in a run that has ended."""
        failed = [
            node.id
            for node in self.files.workflow(self.files.main).nodes
            if (state := self.state.nodes.get(node.id)) is not None
            and state.status in ("failed", "cancelled")
        ]
        names = tuple(dict.fromkeys(name for node in failed for name in self.behind(node)))
        if self.state.status == "completed":
            return []
        self.is_changed = True
        return (
            []
            if not names
            else [WorkflowNodeReset(workflow_run_id=self.state.id, nodes=names, reason="resumed")]
        )

    def _node(self, node_id: str) -> Node | None:
        return self.files.workflow(self.files.main).node(node_id)

    def behind(self, node_id: str) -> tuple[str, ...]:
        """A node and every node that depends on it, directly or not."""
        found = [node_id]
        for name in found:
            found += [
                node.id
                for node in self.files.workflow(self.files.main).nodes
                if name in node.depends_on and node.id not in found
            ]
        return tuple(found)

    def ended(
        self, path: str, status: NodeStatus, *, reason: str | None = None, output: str = ""
    ) -> WorkflowNodeEnded:
        """The end of a node that ran nothing of its own."""
        return WorkflowNodeEnded(
            workflow_run_id=self.state.id,
            node=path,
            status=status,
            attempt=max(1, self.state.attempts(path)),
            output=output,
            reason=reason,
        )

    async def record(
        self,
        path: str,
        attempt: int,
        result: StepResult,
        *then: WorkflowNodeReset,
        session_id: str | None = None,
    ) -> None:
        """Append the end of a node, and what follows from it, in one commit."""
        output, blob = result.output, None
        if len(output) > INLINE_CHARS:
            stored = await self.writer.put_blob(output.encode(), media_type="text/plain")
            output, blob = output[:INLINE_CHARS], stored.hash
        status = "completed" if result.status == "completed" else "failed"
        if result.status == "cancelled":
            status = "cancelled"
        await self.append(
            WorkflowNodeEnded(
                workflow_run_id=self.state.id,
                node=path,
                status=status,
                attempt=attempt,
                output=output,
                output_blob=blob,
                structured=result.structured,
                error=error_detail(result) if status == "failed" else None,
                reason=result.error or None if status != "failed" else None,
                cost_usd=str(result.cost_usd),
                session_id=session_id,
            ),
            *then,
        )

    async def whole_output(self, path: str) -> str:
        node = self.state.nodes[path]
        if node.output_blob is None:
            return node.output
        return (await self.log.blob(node.output_blob)).decode("utf-8", "replace")

    async def value_reader(self, scope: Scope, *texts: str | None) -> Callable[[Reference], object]:
        """The function that finds the values of references in these texts."""
        outputs: dict[str, str] = {}
        for path in set(referenced_paths(scope, (text for text in texts if text))):
            node = self.state.nodes.get(path)
            if node is not None and node.output_blob is not None:
                outputs[path] = await self.whole_output(path)
        return value_reader(scope, self.state, outputs, self.variables)

    def budget_problem(self) -> str | None:
        """Why no further node may start."""
        if self.steps >= self.limits.max_steps:
            return f"the run has started {self.steps} nodes, its limit"
        limit = self.limits.max_cost_usd
        if limit is not None and self.state.cost_usd >= limit:
            return f"the run has cost {self.state.cost_usd} US dollars, its limit is {limit}"
        return None


def error_detail(result: StepResult) -> ErrorDetail:
    return ErrorDetail(
        type="timeout_error" if result.error.startswith("timed out") else "program_error",
        message=result.error or "it failed",
        retry_status=RetryStatus(type="retrying" if result.is_transient else "terminal"),
    )


def run_folder_name(session_id: str) -> str:
    """The name of a run's folder in its workspace: short, since programs print it."""
    return hashlib.sha256(session_id.encode()).hexdigest()[:12]
