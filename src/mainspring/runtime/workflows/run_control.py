"""Steering a run from outside: answers to its gates, and pause, resume, cancel, retry, skip. All
go through the inbox of the run, so they count wherever it runs."""

from __future__ import annotations

from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.events import WorkflowRunControlled
from mainspring.core.events.workflow import NodeAction
from mainspring.core.sender import Sender
from mainspring.harness.state.open_approval import OpenApproval
from mainspring.log.session_log import SessionLog
from mainspring.runtime.approvals import Answer, answer_approval
from mainspring.runtime.workflows.engine import read_run, run_files
from mainspring.runtime.workflows.run_state import RunState
from mainspring.runtime.workflows.run_view import gate_choices, gate_node, open_gates


class GateReply(Struct, frozen=True, kw_only=True):
    """The answer of a person to a gate."""

    decision: str
    """`approve`, `reject`, or a decision that the gate names."""
    node: str | None = None
    """The gate; may be left out if only one waits."""
    text: str | None = None


def find_gate(state: RunState, session_id: str, reply: GateReply) -> tuple[OpenApproval, Answer]:
    """The gate that a reply is for, and the answer that it means.

    Raises: InvalidInput: no such gate waits, or it has no such decision.
    """
    gates = {gate_node(item, session_id): item for item in open_gates(state, session_id)}
    node = next(iter(gates)) if reply.node is None and len(gates) == 1 else reply.node
    gate = gates.get(node or "")
    if gate is None:
        names = ", ".join(gates) or "none"
        raise InvalidInput(f"name the gate and a decision; gates that wait: {names}")
    choices, decision = gate_choices(gate), reply.decision
    if decision not in choices:
        raise InvalidInput(f"{decision} is not a decision; choose {', '.join(choices)}")
    is_choice = decision in gate.request.choices
    answer = Answer(
        decision="deny" if decision == "reject" and not is_choice else "allow",
        text=reply.text or None,
        choice=decision if is_choice else None,
    )
    return gate, answer


async def answer_gate(log: SessionLog, run_id: str, reply: GateReply, sender: Sender) -> None:
    """Raises: SessionNotFound. InvalidInput. EventIdTaken: another answer came first."""
    state = await read_run(log, run_id)
    gate, answer = find_gate(state, run_id, reply)
    client_id = f"answer-{gate.id}-{gate.asked}"
    await log.submit(run_id, answer_approval(gate, answer), sender=sender, client_id=client_id)


async def control_event(
    log: SessionLog,
    run_id: str,
    action: NodeAction,
    *,
    node: str | None = None,
    text: str | None = None,
) -> WorkflowRunControlled:
    """The event that steers a run.

    Raises: SessionNotFound. InvalidInput: there is no such node, or it is an approval, which can
        only be answered.
    """
    state = await read_run(log, run_id)
    workflow = (await run_files(log, state)).workflow(state.created.name)
    found = None if node is None else workflow.node(node)
    if action in ("retry", "skip") and node is None:
        raise InvalidInput(f"{action} needs a node")
    if node is not None and found is None:
        raise InvalidInput(f"{workflow.name} has no node {node} at its top level")
    if action == "skip" and found is not None and found.kind == "approval":
        raise InvalidInput(f"{node} is an approval: answer it, it cannot be skipped")
    return WorkflowRunControlled(workflow_run_id=state.id, action=action, node=node, text=text)
