"""A session's log as a conversation: the one fold that every export format renders.

It works event by event and never retracts anything, so a file that is written while the session
runs is a prefix of what a later export writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from mainspring.core import events
from mainspring.core.content import Block, TextBlock
from mainspring.core.envelope import Event
from mainspring.core.events import Usage
from mainspring.harness.context.prompts import outcome_prompt
from mainspring.harness.state.open_call import CallResult, call_id_of

Author: TypeAlias = Literal["user", "agent", "system"]
NO_RESULT = "[There is no result: the call did not finish.]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The place in the log that an entry comes from."""

    thread_id: str
    event_id: str
    seq: int
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedMessage:
    """A message to the model: from a person, another agent, or the system."""

    at: Position
    author: Author
    content: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedReply:
    """The model request that an entry belongs to."""

    id: str
    """The same for all entries of one reply."""
    request_id: str | None = None
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    stop_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedText:
    at: Position
    exported_reply: ExportedReply
    content: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedThinking:
    at: Position
    exported_reply: ExportedReply
    text: str
    signature: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedToolUse:
    at: Position
    exported_reply: ExportedReply
    name: str
    input: dict[str, object]

    @property
    def id(self) -> str:
        return self.at.event_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedToolResult:
    at: Position
    tool_use_id: str
    content: tuple[Block, ...]
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedCompaction:
    at: Position
    summary: str
    tokens: int | None
    is_whole: bool
    """Whether the summary covers everything before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedNotice:
    """A notice for the reader of the export, which the model did not get."""

    at: Position
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTitle:
    at: Position
    text: str


ExportedEntry: TypeAlias = (
    ExportedMessage
    | ExportedText
    | ExportedThinking
    | ExportedToolUse
    | ExportedToolResult
    | ExportedCompaction
    | ExportedNotice
    | ExportedTitle
)
_PartPayload: TypeAlias = (
    events.AgentMessage
    | events.AgentThinking
    | events.AgentToolUse
    | events.AgentMcpToolUse
    | events.AgentCustomToolUse
)
_MessagePayload: TypeAlias = (
    events.UserMessage
    | events.UserDefineOutcome
    | events.SystemMessage
    | events.ThreadMessageReceived
    | events.UserInterrupt
    | events.ContextAdded
    | events.ContextStatus
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSubagent:
    thread_id: str
    name: str
    tool_use_id: str | None
    """The call that started it."""
    description: str | None


@dataclass(slots=True)
class _Thread:
    unsent: list[ExportedMessage] = field(default_factory=list[ExportedMessage])
    """Messages that the model has not received yet; a hook may still withhold them."""
    parts: list[tuple[Position, _PartPayload]] = field(
        default_factory=list[tuple[Position, _PartPayload]]
    )
    """The parts of the reply that is being written."""
    open_calls: dict[str, Position] = field(default_factory=dict[str, Position])
    request: tuple[str, events.ModelRequestStarted] | None = None
    last_seq: int = 0
    """The position of the last entry that was emitted."""


class ConversationFold:
    """Takes a session's events in order and emits entries in an order that a model's API accepts:
    every call is followed by its result before anything else on its thread."""

    def __init__(self) -> None:
        self.workspace = ""
        self.subagents: dict[str, ExportedSubagent] = {}
        self.started_by: dict[str, str] = {}
        """The calls that started a subagent, with its thread."""
        self._threads: dict[str, _Thread] = {}

    def take(self, event: Event) -> list[ExportedEntry]:
        thread = self._threads.setdefault(event.thread_id, _Thread())
        at = Position(thread_id=event.thread_id, event_id=event.id, seq=event.seq, time=event.time)
        entries = self._take_message(thread, at, event) + self._take_notice(thread, at, event)
        if entries:
            thread.last_seq = event.seq
        return entries

    def close(self) -> list[ExportedEntry]:
        """The remaining entries when no event follows; calls without a result get one."""
        return [
            entry
            for thread in self._threads.values()
            for entry in (*_reply_entries(thread), *_pending_entries(thread))
        ]

    def _take_message(self, thread: _Thread, at: Position, event: Event) -> list[ExportedEntry]:
        payload = event.payload
        if isinstance(payload, _MessagePayload):
            entries = [] if thread.request else _reply_entries(thread)
            thread.unsent.append(_message(at, payload))
            return entries
        if isinstance(payload, _PartPayload):
            entries = [] if thread.parts else _pending_entries(thread)
            thread.parts.append((at, payload))
            return entries
        if isinstance(payload, CallResult):
            return _reply_entries(thread) + _result_entries(thread, at, payload)
        match payload:
            case events.MessageWithheld(event_id=withheld):
                thread.unsent = [item for item in thread.unsent if item.at.event_id != withheld]
            case events.ModelRequestStarted(purpose=None):
                entries = _reply_entries(thread) + _pending_entries(thread)
                thread.request = (event.id, payload)
                return entries
            case events.ModelRequestEnded():
                if thread.request and payload.model_request_start_id == thread.request[0]:
                    return _reply_entries(thread, payload)
            case _:
                pass
        return []

    def _take_notice(self, thread: _Thread, at: Position, event: Event) -> list[ExportedEntry]:
        match event.payload:
            case events.StatusIdle():
                return _reply_entries(thread)
            case events.ContextCompacted(summary=str(summary)) as compacted:
                entries = _reply_entries(thread)
                is_whole = not thread.open_calls and (compacted.last_seq or 0) >= thread.last_seq
                entry = ExportedCompaction(
                    at=at, summary=summary, tokens=compacted.freed_tokens, is_whole=is_whole
                )
                return [*entries, entry]
            case events.SessionFailed(error=error):
                return [
                    *_reply_entries(thread),
                    ExportedNotice(at=at, text=f"{error.type}: {error.message}"),
                ]
            case (
                events.SessionCreated(title=str(title))
                | events.SessionForked(title=str(title))
                | events.SessionUpdated(title=str(title))
            ):
                return [ExportedTitle(at=at, text=title)]
            case events.SandboxOpened(workspace=workspace):
                self.workspace = workspace
            case events.ThreadCreated() as created:
                self.subagents[created.session_thread_id] = ExportedSubagent(
                    thread_id=created.session_thread_id,
                    name=created.agent_name,
                    tool_use_id=created.tool_use_id,
                    description=created.description,
                )
                if created.tool_use_id is not None:
                    self.started_by[created.tool_use_id] = created.session_thread_id
            case _:
                pass
        return []


def _message(at: Position, payload: _MessagePayload) -> ExportedMessage:
    author: Author = "user"
    content: tuple[Block, ...]
    match payload:
        case events.UserMessage(content=content):
            pass
        case events.UserDefineOutcome():
            content = (TextBlock(outcome_prompt(payload)),)
        case events.UserInterrupt():
            content = (TextBlock("[Request interrupted by user]"),)
        case events.ThreadMessageReceived(content=content):
            author = "agent"
        case events.SystemMessage(content=content):
            author = "system"
        case events.ContextAdded(text=text) | events.ContextStatus(text=text):
            author, content = "system", (TextBlock(text),)
    return ExportedMessage(at=at, author=author, content=content)


def _reply_entries(
    thread: _Thread, ended: events.ModelRequestEnded | None = None
) -> list[ExportedEntry]:
    """The reply that was being written, as entries."""
    parts, thread.parts = thread.parts, []
    request = thread.request
    if ended is not None:
        thread.request = None
    if not parts:
        return []
    started = request[1] if request else None
    reply = ExportedReply(
        id=request[0] if request else parts[0][0].event_id,
        request_id=started.request_id if started else None,
        model=(ended.model if ended else None) or (started.model if started else None),
        usage=ended.model_usage if ended else Usage(),
        stop_reason=ended.stop_reason if ended else None,
    )
    entries: list[ExportedEntry] = [_part_entry(at, part, reply) for at, part in parts]
    thread.open_calls |= {
        entry.id: entry.at for entry in entries if isinstance(entry, ExportedToolUse)
    }
    return entries


def _part_entry(
    at: Position, payload: _PartPayload, reply: ExportedReply
) -> ExportedText | ExportedThinking | ExportedToolUse:
    match payload:
        case events.AgentMessage(content=content):
            return ExportedText(at=at, exported_reply=reply, content=content)
        case events.AgentThinking(text=text, signature=signature):
            return ExportedThinking(at=at, exported_reply=reply, text=text, signature=signature)
        case (
            events.AgentToolUse(name=name, input=tool_input)
            | events.AgentMcpToolUse(name=name, input=tool_input)
            | events.AgentCustomToolUse(name=name, input=tool_input)
        ):
            return ExportedToolUse(at=at, exported_reply=reply, name=name, input=tool_input)


def _result_entries(thread: _Thread, at: Position, result: CallResult) -> list[ExportedEntry]:
    """The entry of a result; empty unless it is the first one of a known call."""
    call_id = call_id_of(result) or ""
    if thread.open_calls.pop(call_id, None) is None:
        return []
    return [
        ExportedToolResult(
            at=at, tool_use_id=call_id, content=result.content, is_error=result.is_error
        )
    ]


def _pending_entries(thread: _Thread) -> list[ExportedEntry]:
    """The entries that the model reads next: the results of all calls, then the messages."""
    unfinished: list[ExportedEntry] = [
        ExportedToolResult(
            at=at, tool_use_id=call_id, content=(TextBlock(NO_RESULT),), is_error=True
        )
        for call_id, at in thread.open_calls.items()
    ]
    messages, thread.unsent, thread.open_calls = thread.unsent, [], {}
    return [*unfinished, *messages]
