"""A run as the commands print it: live, as a tree, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec import Struct

from mainspring.core.envelope import Event
from mainspring.core.events import WorkflowNodeEnded, WorkflowNodeReset, WorkflowNodeStarted
from mainspring.edges.cli.printing import Screen, duration_text
from mainspring.runtime.workflows.definition import Workflow
from mainspring.runtime.workflows.run_state import NodeState, RunState

_STYLES: Mapping[str, tuple[str, str]] = {
    "completed": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "skipped": ("-", "dim"),
    "cancelled": ("■", "yellow"),
    "running": ("…", "cyan"),
    "waiting": ("?", "bold yellow"),
    "pending": ("·", "dim"),
}
_SHOWN_CHARS = 100
"""The part of an output that a line of the tree shows."""


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
    approval_id: str
    node: str
    question: str
    choices: tuple[str, ...]
    evidence: tuple[tuple[str, str], ...]


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
    changed_since: bool
    """Whether its files have changed since it started; the run uses them as they were."""
    nodes: tuple[NodeView, ...]
    gates: tuple[GateView, ...]


def node_view(node: NodeState, status: str, depends_on: tuple[str, ...]) -> NodeView:
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
        output=node.output,
        error=node.error,
        reason=node.reason,
    )


def run_view(state: RunState, session_id: str, workflow: Workflow, *, changed: bool) -> RunView:
    """The state of a run with nodes that have not started, in the order of the file."""
    gates = gate_views(state)
    waiting = {gate.node for gate in gates}
    nodes: list[NodeView] = []
    for node in workflow.nodes:
        started = state.nodes.get(node.id)
        if started is None:
            nodes.append(_pending(node.id, node.kind, node.depends_on))
            continue
        own = [item for path, item in state.nodes.items() if path.startswith(f"{node.id}/")]
        for item in (started, *own):
            status = "waiting" if item.path in waiting and not item.is_ended else item.status
            nodes.append(node_view(item, status, node.depends_on if item is started else ()))
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
        changed_since=changed,
        nodes=tuple(nodes),
        gates=tuple(gates),
    )


def _pending(node_id: str, kind: str, depends_on: tuple[str, ...]) -> NodeView:
    return NodeView(
        node=node_id,
        kind=kind,
        status="pending",
        attempt=0,
        started_at=None,
        ended_at=None,
        cost_usd="0",
        depends_on=depends_on,
        session_id=None,
        output="",
        error=None,
        reason=None,
    )


def gate_views(state: RunState) -> list[GateView]:
    """The gates that wait for an answer."""
    if state.has_ended:
        return []
    views: list[GateView] = []
    for item in state.open_approvals:
        subject = item.request.subject
        choices = item.request.choices or ("approve",)
        views.append(
            GateView(
                approval_id=item.id,
                node=subject.id.split(":")[1],
                question=item.request.question,
                choices=choices if "reject" in choices else (*choices, "reject"),
                evidence=tuple((part.title, part.text) for part in subject.evidence),
            )
        )
    return views


def print_run(screen: Screen, view: RunView, *, with_evidence: bool = True) -> None:
    """The tree of a run, and the gates that wait."""
    mark, style = _STYLES.get(_run_style(view.status), ("·", ""))
    screen.line(
        (f"{mark} ", style),
        (view.workflow, "bold"),
        (f"  {view.status}  {dollars_text(view.cost_usd)}  run {screen.id_text(view.id)}", "dim"),
    )
    for node in view.nodes:
        _print_node(screen, node)
    if view.error:
        screen.paragraph((view.error, "red"))
    if view.changed_since:
        text = "its files have changed since; this run uses them as they were when it started"
        screen.paragraph((text, "yellow"))
    for gate in view.gates:
        screen.line((f"? {gate.node}: ", "bold yellow"), (gate.question, ""))
        for title, text in gate.evidence if with_evidence else ():
            screen.line((f"  {title}", "bold"))
            screen.raw("".join(f"    {line}\n" for line in text.splitlines()))
        choices = " | ".join(gate.choices)
        command = f"mainspring workflow respond {screen.id_text(view.id)} {gate.node}"
        screen.paragraph((f"answer: {command} {choices} [TEXT]", "dim"))


def dollars_text(amount: str) -> str:
    return "" if amount == "0" else f"${amount}"


def _run_style(status: str) -> str:
    return {"paused": "waiting"}.get(status, status)


def _print_node(screen: Screen, node: NodeView) -> None:
    mark, style = _STYLES[node.status]
    depth = node.node.count("/")
    took = ""
    if node.started_at is not None and node.ended_at is not None and node.status != "skipped":
        took = f"  {duration_text(node.ended_at - node.started_at)}"
    detail = node.error or node.reason or node.output
    first = next((line for line in detail.splitlines() if line.strip()), "")[:_SHOWN_CHARS]
    attempt = f"  attempt {node.attempt}" if node.attempt > 1 else ""
    name = node.node.rpartition("/")[2] if depth else node.node
    screen.line(
        (f"  {'  ' * depth}{mark} ", style),
        (name, "bold" if node.status in ("running", "waiting") else ""),
        (f"  {node.kind}{took}{attempt}  {dollars_text(node.cost_usd)}  ", "dim"),
        (first, "red" if node.status == "failed" else "dim"),
    )


def live_printer(screen: Screen) -> Callable[[Event], None]:
    """Prints what happens in a run, line by line."""
    started: dict[str, datetime] = {}

    def show(event: Event) -> None:
        match event.payload:
            case WorkflowNodeStarted(node=node, kind=kind):
                started[node] = event.time
                screen.line(("… ", "cyan"), (node, ""), (f"  {kind}", "dim"))
            case WorkflowNodeEnded(node=node) as ended:
                mark, style = _STYLES[ended.status]
                begun = started.get(node)
                took = f"  {duration_text(event.time - begun)}" if begun else ""
                text = ended.error.message if ended.error else ended.reason or ended.output
                lines = [line for line in text.splitlines() if line.strip()]
                shown = f"  {lines[-1 if ended.error else 0][:_SHOWN_CHARS]}" if lines else ""
                screen.line((f"{mark} ", style), (node, ""), (f"{took}{shown}", "dim"))
            case WorkflowNodeReset(nodes=nodes, reason=reason):
                screen.line(("↺ ", "yellow"), (", ".join(nodes), ""), (f"  {reason}", "dim"))
            case _:
                pass

    return show
