"""The subagents of a session as a tree, with the state and cost of each: a fold of events that
returns lines and draws nothing.
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
    """`waiting`: it has not begun."""
    reason: str = ""
    """Why it ended."""
    turns: int = 0
    cost_usd: Decimal = Decimal(0)
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """Tools that it has called, by call, as long as they have no result."""
    is_shown: bool = True
    """Whether it has done something since the tree was put away."""

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
        self._branches: dict[str, SubagentNode] = {}
        self._calls: set[str] = set()

    @classmethod
    def of(cls, log: Iterable[Event], main_id: str) -> SubagentTree:
        """As it stands after a log; nothing of it is to be shown yet."""
        tree = cls(main_id)
        for event in log:
            tree.apply(event)
        tree.hide_all()
        return tree

    @property
    def is_live(self) -> bool:
        """Whether somebody works, and so the tree will change."""
        return any(item.is_live for item in self._visible())

    def has_spawned(self, call_id: str) -> bool:
        """Whether a subagent was born of a call."""
        return call_id in self._calls

    def hide_all(self) -> None:
        """What has been shown is history: only what happens from now on is news."""
        for branch in self._branches.values():
            branch.is_shown = False

    def apply(self, event: Event) -> SubagentNode | None:
        """Take one event in; the subagent that has begun or stopped by it, if one has."""
        if isinstance(event.payload, events.SessionForked):
            for item in self._branches.values():  # what was under way is the parent's
                item.subagent_state, item.reason = "ended", item.reason or "left behind"
            return None
        if isinstance(event.payload, events.ThreadCreated):
            return self._add_subagent(event.payload)
        branch = self._branches.get(event.thread_id)
        if branch is None:
            return None
        before = branch.subagent_state
        _apply_event(branch, event, event.payload)
        branch.is_shown = branch.is_shown or branch.is_live or branch.subagent_state != before
        return branch if branch.subagent_state != before else None

    def path(self, subagent_node: SubagentNode) -> str:
        """Who it is, from the main thread down."""
        above = self._branches.get(subagent_node.parent_id or "")
        return subagent_node.name if above is None else f"{self.path(above)} > {subagent_node.name}"

    def lines(self, most: int = 100) -> list[list[StyledText]]:
        """A line each, and one for all of them; those at work first if there is no room for all."""
        shown = self._visible()
        if not shown:
            return []
        rows = shown if len(shown) < most else self._most_urgent(shown, max(most - 2, 1))
        width = min(max(len(item.name) for item in rows), _MAX_NAME_CHARS)
        lines = [_tree_line(guide, each, width) for guide, each in self._rows(rows)]
        if hidden := len(shown) - len(rows):
            lines.append([(f"… {hidden} more", "dim")])
        return [*lines, [(_total_text(shown), "dim")]]

    def _add_subagent(self, birth: events.ThreadCreated) -> SubagentNode | None:
        if birth.session_thread_id in self._branches:
            return None
        if birth.tool_use_id is not None:
            self._calls.add(birth.tool_use_id)
        branch = self._branches[birth.session_thread_id] = SubagentNode(
            id=birth.session_thread_id,
            name=birth.agent_name or "subagent",
            about=truncate(birth.description or ""),
            parent_id=birth.parent_thread_id,
        )
        return branch

    def _visible(self) -> list[SubagentNode]:
        return [branch for branch in self._branches.values() if branch.is_shown]

    @staticmethod
    def _most_urgent(shown: list[SubagentNode], most: int) -> list[SubagentNode]:
        order = {"asking": 0, "running": 1, "waiting": 2, "ended": 3}
        first = sorted(shown, key=lambda each: order[each.subagent_state])[:most]
        kept = {item.id for item in first}
        return [item for item in shown if item.id in kept]

    def _rows(self, kept: list[SubagentNode]) -> list[tuple[str, SubagentNode]]:
        """Each below whoever has called it, with the lines that lead to it."""
        ids = {item.id for item in kept}
        rows: list[tuple[str, SubagentNode]] = []

        def climb(below: list[SubagentNode], lead: str) -> None:
            for item in below:
                is_last = item is below[-1]
                rows.append((f"{lead}{'└' if is_last else '├'} ", item))
                climb(
                    [child for child in kept if child.parent_id == item.id],
                    lead + ("  " if is_last else "│ "),
                )

        climb([item for item in kept if item.parent_id not in ids], "")
        return rows


def _tree_line(guide: str, subagent_node: SubagentNode, width: int) -> list[StyledText]:
    style = {"asking": "yellow", "running": "cyan", "waiting": "dim"}.get(
        subagent_node.subagent_state, ""
    )
    if subagent_node.subagent_state == "ended" and subagent_node.reason != "done":
        style = "yellow"
    about = f" {subagent_node.about}" if subagent_node.about else ""
    return [
        (guide, "dim"),
        (f"{subagent_node.name:<{width}}", "bold"),
        (f"  {subagent_node.activity}", style),
        (f" · {subagent_node.usage_text}", "dim"),
        (f" ·{about}" if about else "", ""),
    ]


def _total_text(shown: list[SubagentNode]) -> str:
    live = sum(item.is_live for item in shown)
    at_work = f", {live} at work" if live else ""
    turns = sum(item.turns for item in shown)
    cost = sum((item.cost_usd for item in shown), Decimal(0))
    return f"{plural(len(shown), 'subagent')}{at_work} · {plural(turns, 'turn')}, {dollars(cost)}"


def _apply_event(subagent_node: SubagentNode, event: Event, payload: AnyPayload) -> None:
    match payload:
        case events.StatusRunning():
            subagent_node.subagent_state, subagent_node.reason = "running", ""
        case events.ThreadStopped():
            subagent_node.reason = "stopped"
        case events.StatusIdle(reason=reason):
            _apply_idle(subagent_node, reason or "")
        case events.ModelRequestEnded():
            is_turn = not payload.is_error and payload.purpose is None
            subagent_node.turns += is_turn
            subagent_node.cost_usd += Decimal(payload.cost_usd or 0)
        case _ if isinstance(payload, CallResult):
            subagent_node.calls.pop(call_id_of(payload) or "", None)
        case _:
            if call := proposed_call(event):
                subagent_node.calls[call.id] = call.name


def _apply_idle(subagent_node: SubagentNode, reason: str) -> None:
    if reason == "requires_action":
        subagent_node.subagent_state = "asking"
        return
    subagent_node.calls.clear()
    subagent_node.subagent_state = "ended"
    if subagent_node.reason != "stopped":
        is_cut_short = reason in INTERRUPTED_REASONS
        words = "interrupted" if is_cut_short else reason.replace("_", " ")
        subagent_node.reason = "done" if reason == "completed" else words
