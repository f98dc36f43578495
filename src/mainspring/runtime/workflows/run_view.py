"""A run as people see it: its nodes, also those that have not started, and the gates that wait."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from mainspring.core.events import Evidence
from mainspring.harness.state.open_approval import OpenApproval
from mainspring.runtime.workflows.format.definition import Node, Workflow
from mainspring.runtime.workflows.run_state import NodeState, RunState


class NodeView(Struct, frozen=True, kw_only=True):
    node: str
    kind: str
    status: str
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    cost_usd: str
    depends_on: tuple[str, ...]
    session_id: str | None
    output: str
    error: str | None
    reason: str | None


class GateView(Struct, frozen=True, kw_only=True):
    """A gate that waits, with everything that its answer is bound to."""

    approval_id: str
    node: str
    question: str
    choices: tuple[str, ...]
    """Its decisions; always with `reject`."""
    evidence: tuple[Evidence, ...]


class RunView(Struct, frozen=True, kw_only=True):
    """The state of a run, as `workflow show --json` and the API give it."""

    id: str
    workflow: str
    status: str
    created_at: datetime
    updated_at: datetime | None
    cost_usd: str
    arguments: str
    inputs: dict[str, object]
    error: str | None
    output: str
    """The beginning of the run's output, once it has completed."""
    changed_since: bool
    """Whether its files have changed since it started; the run uses them as they were."""
    nodes: tuple[NodeView, ...]
    gates: tuple[GateView, ...]


def node_view(
    node: NodeState,
    status: str,
    depends_on: tuple[str, ...] = (),
    *,
    output_chars: int | None = None,
) -> NodeView:
    return NodeView(
        node=node.path,
        kind=node.kind,
        status=status,
        attempt=node.attempt,
        started_at=node.started_at,
        ended_at=node.ended_at,
        cost_usd=str(node.cost_usd),
        depends_on=depends_on,
        session_id=node.session_id,
        output=node.output[:output_chars],
        error=node.error,
        reason=node.reason,
    )


def run_view(
    state: RunState,
    session_id: str,
    workflow: Workflow,
    *,
    changed: bool,
    output_chars: int | None = None,
) -> RunView:
    """The state of a run with nodes that have not started, in the order of the file.
    `output_chars`: how much of each output it has."""
    gates = gate_views(state, session_id)
    waiting = {gate.node for gate in gates}
    nodes: list[NodeView] = []
    for node in workflow.nodes:
        started = state.nodes.get(node.id)
        if started is None:
            nodes.append(pending_node(node))
            continue
        own = [item for path, item in state.nodes.items() if path.startswith(f"{node.id}/")]
        for item in (started, *own):
            status = "waiting" if item.path in waiting and not item.is_ended else item.status
            needs = node.depends_on if item is started else ()
            nodes.append(node_view(item, status, needs, output_chars=output_chars))
    error = None if state.result is None or state.result.error is None else state.result.error
    return RunView(
        id=session_id,
        workflow=state.created.name,
        status=state.status,
        created_at=state.created_at,
        updated_at=state.updated_at,
        cost_usd=str(state.cost_usd),
        arguments=state.created.arguments,
        inputs=state.created.inputs or {},
        error=None if error is None else error.message,
        output=state.output[:output_chars],
        changed_since=changed,
        nodes=tuple(nodes),
        gates=tuple(gates),
    )


def pending_node(node: Node) -> NodeView:
    return NodeView(
        node=node.id,
        kind=node.kind,
        status="pending",
        attempt=0,
        started_at=None,
        ended_at=None,
        cost_usd="0",
        depends_on=node.depends_on,
        session_id=None,
        output="",
        error=None,
        reason=None,
    )


def gate_views(state: RunState, session_id: str) -> list[GateView]:
    """The gates that wait for an answer."""
    return [
        GateView(
            approval_id=item.id,
            node=gate_node(item, session_id),
            question=item.request.question,
            choices=gate_choices(item),
            evidence=item.request.subject.evidence,
        )
        for item in open_gates(state, session_id)
    ]


def open_gates(state: RunState, session_id: str) -> list[OpenApproval]:
    """The open questions of a run; not those that a fork has inherited, which it asks anew."""
    own = f"{session_id}:"
    gates = [item for item in state.open_approvals if item.request.subject.id.startswith(own)]
    return [] if state.has_ended else gates


def gate_node(gate: OpenApproval, session_id: str) -> str:
    """The path of the node that asks."""
    return gate.request.subject.id.removeprefix(f"{session_id}:").rpartition(":")[0]


def gate_choices(gate: OpenApproval) -> tuple[str, ...]:
    choices = gate.request.choices or ("approve",)
    return choices if "reject" in choices else (*choices, "reject")
