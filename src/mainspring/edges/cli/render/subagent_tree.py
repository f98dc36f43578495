"""The subagents of a session as a tree, with their state and cost: a fold of events that returns
lines to draw.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.edges.cli.render.event_summary import truncate
from mainspring.edges.cli.render.printing import StyledText, dollars, plural
from mainspring.harness.state.session_projection import (
    SessionProjection,
    ThreadProjection,
    project,
)
from mainspring.harness.stop_reasons import INTERRUPTED_REASONS
from mainspring.log.session_status import SubagentState, status_names

_MAX_NAME_CHARS = 16  # so that the columns line up


@dataclass(slots=True)
class SubagentNode:
    """One subagent."""

    thread: ThreadProjection
    created: events.ThreadCreated
    is_left_behind: bool = False
    """The parent of this fork continues it."""
    is_shown: bool = True
    """Whether something has happened to it since `hide_all`."""

    @property
    def id(self) -> str:
        return self.thread.id

    @property
    def name(self) -> str:
        return self.created.agent_name or "subagent"

    @property
    def about(self) -> str:
        return truncate(self.created.description or "")

    @property
    def parent_id(self) -> str | None:
        return self.created.parent_thread_id

    @property
    def turns(self) -> int:
        return self.thread.turns

    @property
    def cost_usd(self) -> Decimal:
        return self.thread.cost_usd

    @property
    def subagent_state(self) -> SubagentState:
        return "ended" if self.is_left_behind else status_names(self.thread.state).subagent

    @property
    def is_live(self) -> bool:
        return self.subagent_state in ("waiting", "running")

    @property
    def reason(self) -> str:
        """Why it ended."""
        thread = self.thread
        if thread.is_stopped:
            return "stopped"
        reason = thread.reason or ""
        if self.is_left_behind and reason in ("", "requires_action"):
            return "left behind"
        is_cut_short = reason in INTERRUPTED_REASONS
        text = "interrupted" if is_cut_short else reason.replace("_", " ")
        return "done" if reason == "completed" else text

    @property
    def activity(self) -> str:
        newest = next(reversed(self.thread.calls.values()), None)
        tool = "" if newest is None else newest.name
        match self.subagent_state:
            case "waiting":
                return "waiting"
            case "running":
                return tool or "thinking"
            case "asking":
                return f"asks: {tool}" if tool else "asks"
            case "ended":
                return self.reason

    @property
    def usage_text(self) -> str:
        return f"{plural(self.turns, 'turn')}, {dollars(self.cost_usd)}"


class SubagentTree:
    def __init__(self, main_id: str, projection: SessionProjection | None = None) -> None:
        """`projection`: of the log so far; its subagents are hidden."""
        self.main_id = main_id
        self._projection = SessionProjection() if projection is None else projection.copy()
        self.nodes: dict[str, SubagentNode] = {}
        self._add_subagents()
        self.hide_all()

    @classmethod
    def of(cls, log: Iterable[Event], main_id: str) -> SubagentTree:
        """The tree after a log, with all subagents hidden."""
        return cls(main_id, project(log))

    @property
    def is_live(self) -> bool:
        """Whether a visible subagent is working."""
        return any(item.is_live for item in self._visible())

    def has_spawned(self, call_id: str) -> bool:
        """Whether a call created a subagent."""
        return any(node.created.tool_use_id == call_id for node in self.nodes.values())

    def hide_all(self) -> None:
        """Hide all subagents until something happens to them."""
        for branch in self.nodes.values():
            branch.is_shown = False

    def apply(self, event: Event) -> SubagentNode | None:
        """Apply an event. Returns the subagent whose state it changed, if any."""
        node = self.nodes.get(event.thread_id)
        before = None if node is None else node.subagent_state
        self._projection.apply(event)
        match event.payload:
            case events.SessionForked():
                for item in self.nodes.values():
                    item.is_left_behind = True
                return None
            case events.ThreadCreated(session_thread_id=id_):
                return self.nodes.get(id_) if self._add_subagents() else None
            case events.StatusRunning() if node is not None:
                node.is_left_behind = False
            case _:
                pass
        if node is None:
            return None
        after = node.subagent_state
        node.is_shown = node.is_shown or node.is_live or after != before
        return node if after != before else None

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

    def _add_subagents(self) -> bool:
        """Add those that are new. Returns whether there are any."""
        count = len(self.nodes)
        for thread in self._projection.threads.values():
            if thread.created is not None and thread.id not in self.nodes:
                self.nodes[thread.id] = SubagentNode(thread, thread.created)
        return len(self.nodes) > count

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
