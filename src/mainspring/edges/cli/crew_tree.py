"""The subagents of a session as a tree, with what each does and has cost: a fold of events.

Nothing here draws; whoever does asks for lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, TypeAlias

from mainspring.core import events, facts
from mainspring.core.envelope import AnyPayload, Event
from mainspring.edges.cli.gist import cut
from mainspring.edges.cli.render import Part, counted, dollars
from mainspring.harness.reasons import INTERRUPTED

State: TypeAlias = Literal["waiting", "running", "asking", "ended"]
_LONGEST_NAME = 16


@dataclass(slots=True)
class Branch:
    """One subagent."""

    id: str
    name: str
    about: str
    parent_id: str | None
    state: State = "waiting"
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
        return self.state in ("waiting", "running")

    @property
    def doing(self) -> str:
        newest = next(reversed(self.calls.values()), "")
        match self.state:
            case "waiting":
                return "waiting"
            case "running":
                return newest or "thinking"
            case "asking":
                return f"asks: {newest}" if newest else "asks"
            case "ended":
                return self.reason

    @property
    def took(self) -> str:
        return f"{counted(self.turns, 'turn')}, {dollars(self.cost_usd)}"


class CrewTree:
    def __init__(self, main_id: str) -> None:
        self.main_id = main_id
        self._branches: dict[str, Branch] = {}
        self._calls: set[str] = set()

    @classmethod
    def of(cls, log: Iterable[Event], main_id: str) -> CrewTree:
        """As it stands after a log; nothing of it is to be shown yet."""
        tree = cls(main_id)
        for event in log:
            tree.apply(event)
        tree.put_away()
        return tree

    @property
    def is_live(self) -> bool:
        """Whether somebody works, and so the tree will change."""
        return any(each.is_live for each in self._shown())

    def has_borne(self, call_id: str) -> bool:
        """Whether a subagent was born of a call."""
        return call_id in self._calls

    def put_away(self) -> None:
        """What has been shown is history: only what happens from now on is news."""
        for each in self._branches.values():
            each.is_shown = False

    def apply(self, event: Event) -> Branch | None:
        """Take one event in; the subagent that has begun or stopped by it, if one has."""
        if isinstance(event.payload, facts.SessionForked):
            for each in self._branches.values():  # what was under way is the parent's
                each.state, each.reason = "ended", each.reason or "left behind"
            return None
        if isinstance(event.payload, events.ThreadCreated):
            return self._bear(event.payload)
        branch = self._branches.get(event.thread_id)
        if branch is None:
            return None
        before = branch.state
        _take(branch, event, event.payload)
        branch.is_shown = branch.is_shown or branch.is_live or branch.state != before
        return branch if branch.state != before else None

    def path(self, branch: Branch) -> str:
        """Who it is, from the main thread down."""
        above = self._branches.get(branch.parent_id or "")
        return branch.name if above is None else f"{self.path(above)} > {branch.name}"

    def lines(self, most: int = 100) -> list[list[Part]]:
        """A line each, and one for all of them; those at work first if there is no room for all."""
        shown = self._shown()
        if not shown:
            return []
        kept = shown if len(shown) < most else self._pressing(shown, max(most - 2, 1))
        width = min(max(len(each.name) for each in kept), _LONGEST_NAME)
        lines = [_line(guide, each, width) for guide, each in self._rows(kept)]
        if hidden := len(shown) - len(kept):
            lines.append([(f"… {hidden} more", "dim")])
        return [*lines, [(_total(shown), "dim")]]

    def _bear(self, birth: events.ThreadCreated) -> Branch | None:
        if birth.session_thread_id in self._branches:
            return None
        if birth.tool_use_id is not None:
            self._calls.add(birth.tool_use_id)
        branch = self._branches[birth.session_thread_id] = Branch(
            id=birth.session_thread_id,
            name=birth.agent_name or "subagent",
            about=cut(birth.description or ""),
            parent_id=birth.parent_thread_id,
        )
        return branch

    def _shown(self) -> list[Branch]:
        return [each for each in self._branches.values() if each.is_shown]

    @staticmethod
    def _pressing(shown: list[Branch], most: int) -> list[Branch]:
        order = {"asking": 0, "running": 1, "waiting": 2, "ended": 3}
        first = sorted(shown, key=lambda each: order[each.state])[:most]
        kept = {each.id for each in first}
        return [each for each in shown if each.id in kept]

    def _rows(self, kept: list[Branch]) -> list[tuple[str, Branch]]:
        """Each below whoever has called it, with the lines that lead to it."""
        ids = {each.id for each in kept}
        rows: list[tuple[str, Branch]] = []

        def climb(below: list[Branch], lead: str) -> None:
            for each in below:
                is_last = each is below[-1]
                rows.append((f"{lead}{'└' if is_last else '├'} ", each))
                climb(
                    [child for child in kept if child.parent_id == each.id],
                    lead + ("  " if is_last else "│ "),
                )

        climb([each for each in kept if each.parent_id not in ids], "")
        return rows


def _line(guide: str, branch: Branch, width: int) -> list[Part]:
    style = {"asking": "yellow", "running": "cyan", "waiting": "dim"}.get(branch.state, "")
    if branch.state == "ended" and branch.reason != "done":
        style = "yellow"
    about = f" {branch.about}" if branch.about else ""
    return [
        (guide, "dim"),
        (f"{branch.name:<{width}}", "bold"),
        (f"  {branch.doing}", style),
        (f" · {branch.took}", "dim"),
        (f" ·{about}" if about else "", ""),
    ]


def _total(shown: list[Branch]) -> str:
    live = sum(each.is_live for each in shown)
    at_work = f", {live} at work" if live else ""
    turns = sum(each.turns for each in shown)
    cost = sum((each.cost_usd for each in shown), Decimal(0))
    return f"{counted(len(shown), 'subagent')}{at_work} · {counted(turns, 'turn')}, {dollars(cost)}"


def _take(branch: Branch, event: Event, payload: AnyPayload) -> None:
    match payload:
        case events.StatusRunning():
            branch.state, branch.reason = "running", ""
        case facts.ThreadStopped():
            branch.reason = "stopped"
        case events.StatusIdle(reason=reason):
            _rest(branch, reason or "")
        case events.ModelRequestEnded():
            is_turn = not payload.is_error and payload.purpose is None
            branch.turns += is_turn
            branch.cost_usd += Decimal(payload.cost_usd or 0)
        case (
            events.AgentToolUse(name=name)
            | events.AgentMcpToolUse(name=name)
            | events.AgentCustomToolUse(name=name)
        ):
            branch.calls[event.id] = name
        case (
            events.AgentToolResult(tool_use_id=call_id)
            | events.UserToolResult(tool_use_id=call_id)
            | events.AgentMcpToolResult(mcp_tool_use_id=call_id)
            | events.UserCustomToolResult(custom_tool_use_id=call_id)
        ):
            branch.calls.pop(call_id, None)
        case _:
            pass


def _rest(branch: Branch, reason: str) -> None:
    if reason == "requires_action":
        branch.state = "asking"
        return
    branch.calls.clear()
    branch.state = "ended"
    if branch.reason != "stopped":
        is_cut_short = reason in INTERRUPTED
        words = "interrupted" if is_cut_short else reason.replace("_", " ")
        branch.reason = "done" if reason == "completed" else words
