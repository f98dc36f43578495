"""Renders a session's deltas and events to the terminal: messages in full, tool calls one line
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from mainspring.config import Settings
from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import AnyPayload, Event
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import (
    Delta,
    RetryScheduled,
    Stalled,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolOutput,
)
from mainspring.edges.cli.render.call_output import call_rows
from mainspring.edges.cli.render.event_summary import short_id, truncate
from mainspring.edges.cli.render.markdown_stream import LiveArea, MarkdownStream
from mainspring.edges.cli.render.printing import Screen, StyledText, duration_text
from mainspring.edges.cli.render.run_activity import RunActivity, waiting_text
from mainspring.edges.cli.render.subagent_tree import SubagentNode, SubagentTree
from mainspring.log import session_activity
from mainspring.runtime.skills.substitution import typed_text

if TYPE_CHECKING:
    from mainspring.capabilities.providers import provider_table
else:
    provider_table = LazyModule("mainspring.capabilities.providers.provider_table")  # for errors

_MAX_THINKING_CHARS = 300  # shown of a thought
_MAX_CRITERIA = 20  # lines of a grade's explanation
_MAX_TREE_ROWS = 14  # of subagents; half of the terminal if that is less
_SHOWN_WHEN_ASKED = ("edit", "write", "ask_user")
"""Tools whose effect, or question and answer, is shown while the user is asked."""
_SILENT_FAILURES = {"max_tokens", "interrupted", "abandoned", "prompt_too_long", "media_too_large"}

_LEVELS = {
    "degraded": "commands ran in a sandbox that leaves modes and dates of your files to them",
    "container": "commands ran in a container that is declared to be the boundary",
    "none": "commands ran without a sandbox",
}


@dataclass(slots=True)
class _PendingCall:
    name: str
    about: str
    input: Mapping[str, object] = field(default_factory=dict[str, object])
    started: datetime | None = None
    was_asked: bool = False
    """Whether the user has seen what it would do."""


@dataclass(slots=True)
class TerminalRenderer:
    """Takes deltas and events in order. The agent's text goes to standard output, the rest to
    standard error."""

    settings: Settings
    is_live: bool = True
    """Whether the agent's text comes as deltas, before its event."""
    own: set[str] = field(default_factory=set[str])
    """Ids of messages that are not shown, because the user has just typed them."""
    shows_all: bool = False
    """Whether outputs and thinking are shown to their end."""
    is_whole: bool = False
    """Whether everything goes to standard output."""
    area: LiveArea | None = None
    """Where the rows are drawn that change; `None`: at the cursor."""
    activity: RunActivity | None = None
    subagents: SubagentTree | None = None
    """Subagents are shown as a tree, and their messages are not printed. Without it, all events
    count as the agent's own."""
    _out: Screen = field(init=False)
    _notes: Screen = field(init=False)
    _markdown_stream: MarkdownStream = field(init=False)
    _calls: dict[str, _PendingCall] = field(default_factory=dict[str, _PendingCall], init=False)
    _thought: str = field(default="", init=False)
    _has_spoken: bool = field(default=False, init=False)
    _is_replying: bool = field(default=False, init=False)
    _turns: list[str] = field(default_factory=list[str], init=False)
    """Starts and ends of subagents during a reply, which are printed after it."""
    _has_output: bool = field(default=False, init=False)
    _last: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._out = Screen(self.settings)
        self._notes = Screen(self.settings, stderr=not self.is_whole)
        self._markdown_stream = MarkdownStream(self._out, self._begin, self.area)

    def tick(self, hint: str = "") -> None:
        """Show what the session does at this moment."""
        if self.activity is not None:
            self._markdown_stream.set_activity(self.activity.text(hint))

    def delta(self, delta: Delta) -> None:
        if self.activity is not None:
            self.activity.delta(delta)
        match delta:
            case TextDelta(text=text):
                self._end_thinking()
                self._has_spoken = True
                self._markdown_stream.set_activity("")
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
            case Stalled() | RetryScheduled():
                self._show_waiting(delta)
            case _:
                pass

    def _show_waiting(self, delta: Stalled | RetryScheduled) -> None:
        if not self._out.can_redraw:
            self.note(waiting_text(delta), "yellow")
        elif self.activity is None:
            self._markdown_stream.set_status(waiting_text(delta))
        else:
            self.tick()

    def event(self, event: Event) -> None:
        if self.activity is not None:
            self.activity.event(event)
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

    def add_call(self, call_id: str, name: str, arguments: Mapping[str, object]) -> None:
        """Add a call that was made before this run."""
        self._calls[call_id] = _PendingCall(name, key_argument(arguments), arguments)

    def add_asked_call(self, call_id: str, name: str, arguments: Mapping[str, object]) -> None:
        """Add a call that the user was asked about before this run."""
        self.add_call(call_id, name, arguments)
        self._calls[call_id].was_asked = True

    def close(self) -> None:
        """End the text or status in progress."""
        self._thought = ""
        self._markdown_stream.set_activity("")
        if self.subagents is not None:
            self._print_tree(self.subagents)
        self._markdown_stream.end()

    def note(self, text: str, style: str = "dim") -> None:
        self._show((text, style))

    def _show_user_message(self, text: str) -> None:
        self._markdown_stream.end()
        self._begin("user")
        for line in text.splitlines() or [""]:
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
            self.note("the reply was cut off at the output limit; asking again with a higher limit")

    def _show_tool_event(self, event: Event, payload: AnyPayload) -> None:
        match payload:
            case (
                events.AgentToolUse(name=name, input=arguments)
                | events.AgentMcpToolUse(name=name, input=arguments)
                | events.AgentCustomToolUse(name=name, input=arguments)
            ):
                self.add_call(event.id, name, arguments)
            case events.ToolCallStarted(tool_use_id=call_id):
                if call := self._calls.get(call_id):
                    call.started = event.time
                    is_in_tree = self.subagents is not None and self.subagents.has_spawned(call_id)
                    status = "" if is_in_tree else f"⋯ {call.name} {call.about}"
                    self._markdown_stream.set_status(status)
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
            return  # the tree shows it
        mark: StyledText = ("✗ ", "red") if result.is_error else ("✓ ", "green")
        took = "" if call.started is None else duration_text(event.time - call.started)
        about = f" {call.about}" if call.about else ""
        room = self._notes.width and self._notes.width - len(call.name) - len(took) - 6
        if room is not None and len(about) > room:
            about = f"{about[: max(room - 1, 0)]}…"
        parts: list[StyledText] = [mark, (call.name, "bold"), (about, ""), (f"  {took}", "dim")]
        self._show(*parts, kind="tool", is_cut=True)
        output = plain_text(result.content)
        if self._out.can_redraw or self.shows_all:
            self._show_call_rows(call, output, is_error=result.is_error)
        elif result.is_error:
            self._show((f"  {truncate(output)}", "red"), kind="tool", is_cut=True)

    def _show_call_rows(self, call: _PendingCall, output: str, *, is_error: bool) -> None:
        if call.was_asked and not is_error and call.name in _SHOWN_WHEN_ASKED:
            return
        key = "" if self.area is None else " (Ctrl-O)"
        more = None if self.shows_all else key
        rows = call_rows(call.name, call.input, output, is_error=is_error, more=more)
        for text, style in rows:
            self._show(("  ", ""), (text.expandtabs(4), style), kind="tool", is_cut=True)

    def _show_notice(self, payload: AnyPayload) -> None:
        match payload:
            case events.ProviderFailedOver(to_model=other, reason=reason):
                self.note(f"{other} answers: {reason}", "yellow")
            case events.ContextCompacted(freed_tokens=int(freed)) if freed > 0:
                self.note(f"context compacted ({payload.layer}): {freed} tokens freed")
            case events.SessionFailed(error=error):
                self._show_lines(error_lines(error))
            case events.ThreadMessageReceived(content=content, from_agent_name=str(name)):
                self._show(
                    (f"{name} reports: ", "dim"), (truncate(plain_text(content)), ""), is_cut=True
                )
            case events.SessionWoken() if self.is_live:
                self.note("resumes where it stopped")
            case (
                events.OutcomeEvaluationEnded() | events.ToolCallInDoubt() | events.SandboxOpened()
            ):
                self._show_check(payload)
            case events.UserInterrupt() if not self.is_live:
                self.note("interrupted")
            case _:
                pass

    def _show_lines(self, lines: Iterable[StyledText]) -> None:
        for text, style in lines:
            self.note(text, style)

    def _show_check(
        self,
        payload: events.OutcomeEvaluationEnded | events.ToolCallInDoubt | events.SandboxOpened,
    ) -> None:
        """The verdict of a grader, a call that was running at a crash, or missing isolation."""
        if isinstance(payload, events.SandboxOpened):
            if payload.level in _LEVELS and not self.is_live:
                self.note(_LEVELS[payload.level], "yellow")
            return None
        if isinstance(payload, events.ToolCallInDoubt):
            id_ = payload.tool_use_id
            name = self._calls[id_].name if id_ in self._calls else short_id(id_)
            return self.note(f"{name} was running when the session stopped", "yellow")
        style = "green" if payload.result == "satisfied" else "yellow"
        self.note(f"graded {payload.iteration}: {payload.result.replace('_', ' ')}", style)
        for line in payload.explanation.splitlines()[:_MAX_CRITERIA]:
            self.note(f"  {truncate(line)}")

    def _show(self, *parts: StyledText, kind: str = "note", is_cut: bool = False) -> None:
        self._markdown_stream.end()
        self._begin(kind)
        (self._notes.line if is_cut else self._notes.paragraph)(*parts)
        self._markdown_stream.restore()

    def _update_tree(self, tree: SubagentTree, event: Event) -> None:
        node = tree.apply(event)
        if node is not None and node.subagent_state != "waiting":
            about = f" · {node.about}" if node.about else ""
            self._turns.append(f"{tree.path(node)}: {_transition_text(node)}{about}")
        if not tree.nodes:
            return
        if tree.is_live and self._out.can_redraw:
            if isinstance(event.payload, events.ThreadCreated):
                self._markdown_stream.set_status("")  # the tree replaces the call's status
            rows = tree.lines(most=min(_MAX_TREE_ROWS, self._out.size[1] // 2))
            self._markdown_stream.set_footer(["".join(words for words, _ in row) for row in rows])
        elif not self._is_replying:
            self._print_tree(tree)

    def _print_tree(self, tree: SubagentTree) -> None:
        """Print the tree as it is now, so that it stays on the screen."""
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
        """Print an empty line between output of different kinds, and between blocks of text."""
        if self._out.width is not None or self.is_whole:
            is_apart = self._last and (kind != self._last or kind in ("prose", "code", "user"))
        else:
            is_apart = kind == "prose" and self._has_output
        if is_apart:
            self._out.text("\n")
        self._has_output = self._has_output or kind == "prose"
        self._last = kind


def _transition_text(node: SubagentNode) -> str:
    match node.subagent_state:
        case "running":
            return "started" if not node.turns else "resumed"
        case "ended":
            return f"{node.reason}, {node.usage_text}"
        case _:
            return node.activity


def error_lines(error: events.ErrorDetail) -> list[StyledText]:
    is_retried = error.retry_status.type == "retrying"
    lines: list[StyledText] = [(error.message, "yellow" if is_retried else "bold red")]
    hint = provider_table.hint_for(error)
    return lines if hint is None else [*lines, (f"hint: {hint}", "dim")]


def key_argument(arguments: Mapping[str, object]) -> str:
    """The value that describes a call best, on one line."""
    return truncate(session_activity.key_argument(arguments))
