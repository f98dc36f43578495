"""The subagents of a session as a tree, with their state and cost: a fold of events that returns
lines to draw.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, TypeAlias

from mainspring.core import events
from mainspring.core.envelope import AnyPayload, Event
from mainspring.edges.cli.event_summary import truncate
from mainspring.edges.cli.printing import StyledText, dollars, plural
from mainspring.harness.state.open_call import CallResult, call_id_of, proposed_call
from mainspring.harness.stop_reasons import INTERRUPTED_REASONS

SubagentState: TypeAlias = Literal["waiting", "running", "asking", "ended"]
_MAX_NAME_CHARS = 16


@dataclass(slots=True)
class SubagentNode:
    """One subagent."""

    id: str
    name: str
    about: str
    parent_id: str | None
    subagent_state: SubagentState = "waiting"
    """`waiting`: it has not started."""
    reason: str = ""
    """Why it ended."""
    turns: int = 0
    cost_usd: Decimal = Decimal(0)
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """The tools of its open calls, by call id."""
    is_shown: bool = True
    """Whether something has happened to it since `hide_all`."""

    @property
    def is_live(self) -> bool:
        return self.subagent_state in ("waiting", "running")

    @property
    def activity(self) -> str:
        newest = next(reversed(self.calls.values()), "")
        match self.subagent_state:
            case "waiting":
                return "waiting"
            case "running":
                return newest or "thinking"
            case "asking":
                return f"asks: {newest}" if newest else "asks"
            case "ended":
                return self.reason

    @property
    def usage_text(self) -> str:
        return f"{plural(self.turns, 'turn')}, {dollars(self.cost_usd)}"


class SubagentTree:
    def __init__(self, main_id: str) -> None:
        self.main_id = main_id
        self.nodes: dict[str, SubagentNode] = {}
        self._calls: set[str] = set()

    @classmethod
    def of(cls, log: Iterable[Event], main_id: str) -> SubagentTree:
        """The tree after a log, with all subagents hidden."""
        tree = cls(main_id)
        for event in log:
            tree.apply(event)
        tree.hide_all()
        return tree

    @property
    def is_live(self) -> bool:
        """Whether a visible subagent is working."""
        return any(item.is_live for item in self._visible())

    def has_spawned(self, call_id: str) -> bool:
        """Whether a call created a subagent."""
        return call_id in self._calls

    def hide_all(self) -> None:
        """Hide all subagents until something happens to them."""
        for branch in self.nodes.values():
            branch.is_shown = False

    def apply(self, event: Event) -> SubagentNode | None:
        """Apply an event. Returns the subagent whose state it changed, if any."""
        if isinstance(event.payload, events.SessionForked):
            for item in self.nodes.values():  # the parent session continues them
                item.subagent_state, item.reason = "ended", item.reason or "left behind"
            return None
        if isinstance(event.payload, events.ThreadCreated):
            return self._add_subagent(event.payload)
        branch = self.nodes.get(event.thread_id)
        if branch is None:
            return None
        before = branch.subagent_state
        _apply_event(branch, event, event.payload)
        branch.is_shown = branch.is_shown or branch.is_live or branch.subagent_state != before
        return branch if branch.subagent_state != before else None

    def path(self, node: SubagentNode) -> str:
        """The names from the main thread down to this subagent."""
        parent = self.nodes.get(node.parent_id or "")
        return node.name if parent is None else f"{self.path(parent)} > {node.name}"

    def lines(self, most: int = 100) -> list[list[StyledText]]:
        """One line per subagent and a total; only the most urgent ones if not all fit."""
        nodes = self._visible()
        if not nodes:
            return []
        rows = nodes if len(nodes) < most else self._most_urgent(nodes, max(most - 2, 1))
        width = min(max(len(item.name) for item in rows), _MAX_NAME_CHARS)
        lines = [_tree_line(guide, node, width) for guide, node in self._rows(rows)]
        if hidden := len(nodes) - len(rows):
            lines.append([(f"… {hidden} more", "dim")])
        return [*lines, [(_total_text(nodes), "dim")]]

    def _add_subagent(self, created: events.ThreadCreated) -> SubagentNode | None:
        if created.session_thread_id in self.nodes:
            return None
        if created.tool_use_id is not None:
            self._calls.add(created.tool_use_id)
        branch = self.nodes[created.session_thread_id] = SubagentNode(
            id=created.session_thread_id,
            name=created.agent_name or "subagent",
            about=truncate(created.description or ""),
            parent_id=created.parent_thread_id,
        )
        return branch

    def _visible(self) -> list[SubagentNode]:
        return [branch for branch in self.nodes.values() if branch.is_shown]

    @staticmethod
    def _most_urgent(nodes: list[SubagentNode], most: int) -> list[SubagentNode]:
        order = {"asking": 0, "running": 1, "waiting": 2, "ended": 3}
        first = sorted(nodes, key=lambda node: order[node.subagent_state])[:most]
        ids = {item.id for item in first}
        return [item for item in nodes if item.id in ids]

    def _rows(self, nodes: list[SubagentNode]) -> list[tuple[str, SubagentNode]]:
        """Each subagent below its caller, with the lines that lead to it."""
        ids = {item.id for item in nodes}
        rows: list[tuple[str, SubagentNode]] = []

        def add_rows(siblings: list[SubagentNode], lead: str) -> None:
            for item in siblings:
                is_last = item is siblings[-1]
                rows.append((f"{lead}{'└' if is_last else '├'} ", item))
                children = [child for child in nodes if child.parent_id == item.id]
                add_rows(children, lead + ("  " if is_last else "│ "))

        add_rows([item for item in nodes if item.parent_id not in ids], "")
        return rows


def _tree_line(guide: str, node: SubagentNode, width: int) -> list[StyledText]:
    styles = {"asking": "yellow", "running": "cyan", "waiting": "dim"}
    is_failed = node.subagent_state == "ended" and node.reason != "done"
    return [
        (guide, "dim"),
        (f"{node.name:<{width}}", "bold"),
        (f"  {node.activity}", "yellow" if is_failed else styles.get(node.subagent_state, "")),
        (f" · {node.usage_text}", "dim"),
        (f" · {node.about}" if node.about else "", ""),
    ]


def _total_text(nodes: list[SubagentNode]) -> str:
    live = sum(item.is_live for item in nodes)
    at_work = f", {live} at work" if live else ""
    turns = sum(item.turns for item in nodes)
    cost = sum((item.cost_usd for item in nodes), Decimal(0))
    return f"{plural(len(nodes), 'subagent')}{at_work} · {plural(turns, 'turn')}, {dollars(cost)}"


def _apply_event(node: SubagentNode, event: Event, payload: AnyPayload) -> None:
    match payload:
        case events.StatusRunning():
            node.subagent_state, node.reason = "running", ""
        case events.ThreadStopped():
            node.reason = "stopped"
        case events.StatusIdle(reason=reason):
            _apply_idle(node, reason or "")
        case events.ModelRequestEnded():
            node.turns += not payload.is_error and payload.purpose is None
            node.cost_usd += Decimal(payload.cost_usd or 0)
        case _ if isinstance(payload, CallResult):
            node.calls.pop(call_id_of(payload) or "", None)
        case _:
            if call := proposed_call(event):
                node.calls[call.id] = call.name


def _apply_idle(node: SubagentNode, reason: str) -> None:
    if reason == "requires_action":
        node.subagent_state = "asking"
        return
    node.calls.clear()
    node.subagent_state = "ended"
    if node.reason != "stopped":
        is_cut_short = reason in INTERRUPTED_REASONS
        text = "interrupted" if is_cut_short else reason.replace("_", " ")
        node.reason = "done" if reason == "completed" else text
