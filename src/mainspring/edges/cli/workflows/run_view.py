"""A run as the commands print it: live, and as a tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from mainspring.core.envelope import Event
from mainspring.core.events import WorkflowNodeEnded, WorkflowNodeReset, WorkflowNodeStarted
from mainspring.edges.cli.render.printing import Screen, duration_text
from mainspring.runtime.workflows.run_view import NodeView, RunView

STYLES: Mapping[str, tuple[str, str]] = {
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


def print_run(screen: Screen, view: RunView, *, with_evidence: bool = True) -> None:
    """The tree of a run, and the gates that wait."""
    mark, style = STYLES.get(_run_style(view.status), ("·", ""))
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
    asking = [node for node in view.nodes if node.status == "running" and node.session_id]
    for node in asking if view.status == "paused" else ():
        screen.line((f"? {node.node}: ", "bold yellow"), ("a call of it waits for a person", ""))
        command = f"mainspring sessions answer {screen.id_text(node.session_id or '')}"
        screen.paragraph((f"answer: {command}", "dim"))
    for gate in view.gates:
        screen.line((f"? {gate.node}: ", "bold yellow"), (gate.question, ""))
        for item in gate.evidence if with_evidence else ():
            screen.line((f"  {item.title}", "bold"))
            screen.text("".join(f"    {line}\n" for line in item.text.splitlines()))
        name = screen.id_text(view.id)
        node = "" if len(view.gates) == 1 else f"{gate.node} "
        first, *others = gate.choices
        command = f"mainspring workflow respond {name} {node}{first} [TEXT]"
        screen.paragraph((f"answer: {command}  (or {', '.join(others)})", "dim"))


def dollars_text(amount: str) -> str:
    return "" if amount == "0" else f"${amount}"


def _run_style(status: str) -> str:
    return {"paused": "waiting"}.get(status, status)


def _print_node(screen: Screen, node: NodeView) -> None:
    mark, style = STYLES[node.status]
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
                mark, style = STYLES[ended.status]
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
