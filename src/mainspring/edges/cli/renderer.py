"""Renders a session's deltas and events to the terminal: messages in full, tool calls one line
each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

from mainspring.config import Settings
from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import AnyPayload, Event
from mainspring.core.model import (
    Delta,
    Stalled,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolOutput,
)
from mainspring.edges.cli.event_summary import short_id, truncate
from mainspring.edges.cli.markdown_stream import MarkdownStream
from mainspring.edges.cli.printing import Screen, StyledText, duration_text
from mainspring.edges.cli.subagent_tree import SubagentNode, SubagentTree
from mainspring.runtime.skills.substitution import typed_text

_KEY_ARGUMENTS = (
    "command",
    "path",
    "file_path",
    "query",
    "pattern",
    "url",
    "code",
    "description",
    "prompt",
    "name",
)
"""Arguments that tell most about a call, the most telling first."""
_MAX_THINKING_CHARS = 300
_MAX_CRITERIA = 20
_MAX_TREE_ROWS = 14
_SILENT_FAILURES = {"max_tokens", "interrupted", "abandoned", "prompt_too_long", "media_too_large"}


@dataclass(slots=True)
class _PendingCall:
    name: str
    about: str
    started: datetime | None = None


@dataclass(slots=True)
class EventRenderer:
    """Give it deltas and events in the order they come. Words go to standard output, the rest to
    standard error."""

    settings: Settings
    is_live: bool = True
    """The words of the agent come as deltas, before their event."""
    own: set[str] = field(default_factory=set[str])
    """Ids of messages that need not be told: whoever reads this has typed them."""
    is_whole: bool = False
    """All of it goes to standard output: it is what was asked for."""
    subagents: SubagentTree | None = None
    """Subagents: they are shown as a tree, and what they say is not told as the agent's words.
    Without it, all events are taken for the agent's own."""
    _out: Screen = field(init=False)
    _notes: Screen = field(init=False)
    _markdown_stream: MarkdownStream = field(init=False)
    _calls: dict[str, _PendingCall] = field(default_factory=dict[str, _PendingCall], init=False)
    _thought: str = field(default="", init=False)
    _has_spoken: bool = field(default=False, init=False)
    _is_replying: bool = field(default=False, init=False)
    _turns: list[str] = field(default_factory=list[str], init=False)
    """What subagents have begun and ended while the agent spoke: nobody cuts it short."""
    _has_output: bool = field(default=False, init=False)
    _last: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._out = Screen(self.settings)
        self._notes = Screen(self.settings, stderr=not self.is_whole)
        self._markdown_stream = MarkdownStream(self._out, self._begin)

    def delta(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text=text):
                self._end_thinking()
                self._has_spoken = True
                self._markdown_stream.write(text)
            case ThinkingDelta(text=text):
                self._thought = (self._thought + text)[:_MAX_THINKING_CHARS]
                self._markdown_stream.set_status(f"thinking: {self._thought}")
            case ToolInputDelta(name=name, json=""):
                self._end_thinking()
                self._markdown_stream.end()
                self._markdown_stream.set_status(f"{name} …")
            case ToolOutput(name=name, text=text) if lines := text.strip().splitlines():
                self._markdown_stream.set_status(f"⋯ {name} {truncate(lines[-1])}")
            case Stalled(seconds=seconds):
                waiting = f"nothing has come for {seconds:.0f} s; still waiting"
                if self._out.can_redraw:  # a note would end the paragraph
                    self._markdown_stream.set_status(waiting)
                else:
                    self.note(waiting, "yellow")
            case _:
                pass

    def event(self, event: Event) -> None:
        if self.subagents is not None:
            self._update_tree(self.subagents, event)
        if self.subagents is None or event.thread_id == self.subagents.main_id:
            self._show_event(event)

    def _show_event(self, event: Event) -> None:
        payload = event.payload
        match payload:
            case events.UserMessage(content=content):
                if event.id not in self.own:
                    self._show_user_message(typed_text(content))
            case events.AgentThinking(text=text):
                self._thought = self._thought or (
                    "" if self.is_live else text[:_MAX_THINKING_CHARS]
                )
                self._end_thinking()
            case events.AgentMessage(content=content):
                self._show_agent_message(plain_text(content))
            case events.ModelRequestStarted():
                self._has_spoken = False
                self._is_replying = payload.purpose is None
            case events.ModelRequestEnded():
                self._show_request_end(payload)
            case _:
                self._show_tool_event(event, payload)

    def add_call(self, call_id: str, name: str, given: Mapping[str, object]) -> None:
        """A call from before."""
        self._calls[call_id] = _PendingCall(name, key_argument(given))

    def close(self) -> None:
        """What was under way is not any more."""
        self._thought = ""
        if self.subagents is not None:
            self._print_tree(self.subagents)
        self._markdown_stream.end()

    def note(self, words: str, style: str = "dim") -> None:
        self._show((words, style))

    def _show_user_message(self, text: str) -> None:
        self._markdown_stream.end()
        lines = text.splitlines() or [""]
        self._begin("user")
        for line in lines:
            self._notes.paragraph((f"> {line}", "bold green"))
        self._markdown_stream.restore()

    def _show_agent_message(self, text: str) -> None:
        if not self._has_spoken or not self.is_live:
            self._markdown_stream.write(text)
            self._markdown_stream.end()

    def _end_thinking(self) -> None:
        if self._thought:
            self._show((f"✻ {truncate(self._thought)}", "dim italic"), is_cut=True)
            self._thought = ""

    def _show_request_end(self, end: events.ModelRequestEnded) -> None:
        self._is_replying = False
        self._end_thinking()
        self._markdown_stream.end()
        if end.is_error and self._has_spoken and end.stop_reason not in _SILENT_FAILURES:
            self.note("the reply broke off")
        elif end.is_error and end.stop_reason == "max_tokens":
            self.note("the reply was cut off at the output limit; asking again with more room")

    def _show_tool_event(self, event: Event, payload: AnyPayload) -> None:
        match payload:
            case (
                events.AgentToolUse(name=name, input=given)
                | events.AgentMcpToolUse(name=name, input=given)
                | events.AgentCustomToolUse(name=name, input=given)
            ):
                self._calls[event.id] = _PendingCall(name, key_argument(given))
            case events.ToolCallStarted(tool_use_id=call_id):
                if call := self._calls.get(call_id):
                    call.started = event.time
                    is_told = self.subagents is not None and self.subagents.has_spawned(call_id)
                    self._markdown_stream.set_status(
                        "" if is_told else f"⋯ {call.name} {call.about}"
                    )
            case (
                events.AgentToolResult(tool_use_id=call_id)
                | events.UserToolResult(tool_use_id=call_id)
                | events.AgentMcpToolResult(mcp_tool_use_id=call_id)
                | events.UserCustomToolResult(custom_tool_use_id=call_id)
            ):
                self._show_tool_result(event, call_id, payload)
            case _:
                self._show_notice(payload)

    def _show_tool_result(
        self,
        event: Event,
        call_id: str,
        result: events.AgentToolResult
        | events.AgentMcpToolResult
        | events.UserToolResult
        | events.UserCustomToolResult,
    ) -> None:
        call = self._calls.pop(call_id, None) or _PendingCall(short_id(call_id), "")
        if (
            self.subagents is not None
            and self.subagents.has_spawned(call_id)
            and not result.is_error
        ):
            return  # the tree has told it
        mark: StyledText = ("✗ ", "red") if result.is_error else ("✓ ", "green")
        took = "" if call.started is None else duration_text(event.time - call.started)
        about = f" {call.about}" if call.about else ""
        room = self._notes.width and self._notes.width - len(call.name) - len(took) - 6
        if room is not None and len(about) > room:
            about = f"{about[: max(room - 1, 0)]}…"
        parts: list[StyledText] = [mark, (call.name, "bold"), (about, ""), (f"  {took}", "dim")]
        self._show(*parts, kind="tool", is_cut=True)
        if result.is_error:
            self._show(
                (f"  {truncate(plain_text(result.content))}", "red"), kind="tool", is_cut=True
            )

    def _show_notice(self, payload: AnyPayload) -> None:
        match payload:
            case events.ProviderFailedOver(to_model=other, reason=reason):
                self.note(f"{other} answers: {reason}", "yellow")
            case events.ContextCompacted(freed_tokens=int(freed)) if freed > 0:
                self.note(f"context compacted ({payload.layer}): {freed} tokens freed")
            case events.SessionFailed(error=error):
                self.note(error.message, "bold red")
            case events.ThreadMessageReceived(content=content, from_agent_name=str(name)):
                self._show(
                    (f"{name} reports: ", "dim"), (truncate(plain_text(content)), ""), is_cut=True
                )
            case events.SessionWoken() if self.is_live:
                self.note("resumes where it stopped")
            case events.OutcomeEvaluationEnded() | events.ToolCallInDoubt():
                self._show_check(payload)
            case events.UserInterrupt() if not self.is_live:
                self.note("interrupted")
            case _:
                pass

    def _show_check(self, checked: events.OutcomeEvaluationEnded | events.ToolCallInDoubt) -> None:
        """What became of the work: the verdict of a grader, or a call that a crash left open."""
        if isinstance(checked, events.ToolCallInDoubt):
            id_ = checked.tool_use_id
            name = self._calls[id_].name if id_ in self._calls else short_id(id_)
            return self.note(f"{name} was under way when the session stopped", "yellow")
        style = "green" if checked.result == "satisfied" else "yellow"
        self.note(f"graded {checked.iteration}: {checked.result.replace('_', ' ')}", style)
        for line in checked.explanation.splitlines()[:_MAX_CRITERIA]:
            self.note(f"  {truncate(line)}")

    def _show(self, *parts: StyledText, kind: str = "note", is_cut: bool = False) -> None:
        self._markdown_stream.end()
        self._begin(kind)
        (self._notes.line if is_cut else self._notes.paragraph)(*parts)
        self._markdown_stream.restore()

    def _update_tree(self, tree: SubagentTree, event: Event) -> None:
        turned = tree.apply(event)
        if turned is not None and turned.subagent_state != "waiting":
            self._turns.append(
                f"{tree.path(turned)}: {_transition_text(turned)}{_description_text(turned)}"
            )
        if tree.is_live and self._out.can_redraw:
            if isinstance(event.payload, events.ThreadCreated):
                self._markdown_stream.set_status("")  # the call that has borne it
            rows = tree.lines(most=min(_MAX_TREE_ROWS, self._out.size[1] // 2))
            self._markdown_stream.set_footer(["".join(words for words, _ in row) for row in rows])
        elif not self._is_replying:
            self._print_tree(tree)

    def _print_tree(self, tree: SubagentTree) -> None:
        """What was live becomes history: the tree as it is now stays on the screen."""
        rows = tree.lines()
        if not self._out.can_redraw:
            total = rows[-1:] if self._turns and not tree.is_live else []
            rows = [*([(turn, "dim")] for turn in self._turns), *total]
        self._turns = []
        self._markdown_stream.set_footer(())
        for row in rows:
            self._show(*row, kind="crew", is_cut=True)
        if self._out.can_redraw or not tree.is_live:
            tree.hide_all()

    def _begin(self, kind: str) -> None:
        """An empty line between things of different kinds, and between blocks of words."""
        if self._out.width is not None or self.is_whole:
            is_apart = self._last and (kind != self._last or kind in ("prose", "code", "user"))
        else:
            is_apart = kind == "prose" and self._has_output
        if is_apart:
            self._out.raw("\n")
        self._has_output = self._has_output or kind == "prose"
        self._last = kind


def _transition_text(subagent_node: SubagentNode) -> str:
    match subagent_node.subagent_state:
        case "running":
            return "started" if not subagent_node.turns else "resumed"
        case "ended":
            return f"{subagent_node.reason}, {subagent_node.usage_text}"
        case _:
            return subagent_node.activity


def _description_text(subagent_node: SubagentNode) -> str:
    return f" · {subagent_node.about}" if subagent_node.about else ""


def key_argument(given: Mapping[str, object]) -> str:
    """The value that tells most about a call."""
    named = [given[key] for key in _KEY_ARGUMENTS if isinstance(given.get(key), str)]
    texts = [value for value in given.values() if isinstance(value, str)]
    found = [*named, *texts] or [value for value in given.values() if value is not None]
    return truncate(_argument_text(found[0])) if found else ""


def _argument_text(value: object) -> str:
    return (
        ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)
    )
