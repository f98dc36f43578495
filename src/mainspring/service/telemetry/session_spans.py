"""The spans of a session: a fold of its log, the same live and after a crash.

A span that ends after a takeover may have begun in another process: its start is read from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import PAYLOAD_TYPES, AnyPayload, Event
from mainspring.core.events import Failure, Usage
from mainspring.harness.state.open_call import CallResult, call_id_of, proposed_call
from mainspring.log.session_status import STATUS_EVENTS, StatusPayload, status_change

ToolKind: TypeAlias = Literal["function", "mcp", "client"]
"""Built in, of an MCP server, of the client."""
ToolOutcome: TypeAlias = Literal["ok"] | Failure

_MAX_CHARS = 16_384
"""The limit of each text in a span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpan:
    """From when a thread has something to do until it is done, or waits."""

    reason: str
    """Why it ended, as the loop reports it."""
    input_text: str | None = None
    """The user's messages; `None` unless content is captured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequestSpan:
    model: str
    """`provider:name`, as requested."""
    answered_by: str | None
    usage: Usage
    cost_usd: str | None
    stop_reason: str | None
    is_error: bool
    purpose: str | None = None
    """`summary` and the like; absent: a turn of the conversation."""
    max_tokens: int | None = None
    said: str | None = None
    """The reply; `None` unless content is captured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallSpan:
    tool: str
    kind: ToolKind
    outcome: ToolOutcome
    attempts: int
    """0: it was never started."""
    arguments: str | None = None
    result: str | None = None
    """Both `None` unless content is captured."""


SpanDetails: TypeAlias = RunSpan | ModelRequestSpan | ToolCallSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpan:
    id: str
    """The id of its first event: the start of a run or a request, a call."""
    parent: str | None
    """The run that it was part of."""
    thread_id: str
    agent_name: str
    begun: datetime
    ended: datetime
    details: SpanDetails

    @property
    def seconds(self) -> float:
        return (self.ended - self.begun).total_seconds()


@dataclass(slots=True)
class _ThreadState:
    agent_name: str
    parent: str | None = None
    """The run that created the thread."""
    run: str | None = None
    """The current run."""
    begun: datetime | None = None
    last_run: str | None = None
    messages: list[str] = field(default_factory=list[str])
    said: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _OpenRequest:
    thread_id: str
    parent: str | None
    begun: datetime
    asked: events.ModelRequestStarted


@dataclass(slots=True)
class _OpenToolCall:
    thread_id: str
    parent: str | None
    tool: str
    kind: ToolKind
    input: Mapping[str, object]
    begun: datetime | None = None
    attempts: int = 0


@dataclass(slots=True, kw_only=True)
class SpanFold:
    """Takes every event of a session, in order; returns the spans that each one ends."""

    agent_name: str = "agent"
    captures: bool = False
    """Whether spans contain messages, as the log has them."""
    seq: int = 0
    """The seq of the last event."""
    threads: dict[str, _ThreadState] = field(default_factory=dict[str, _ThreadState])
    requests: dict[str, _OpenRequest] = field(default_factory=dict[str, _OpenRequest])
    calls: dict[str, _OpenToolCall] = field(default_factory=dict[str, _OpenToolCall])

    def apply(self, event: Event) -> list[TraceSpan]:
        self.seq = max(self.seq, event.seq)
        step = _HANDLERS.get(type(event.payload))
        return [] if step is None else step(self, event, event.payload)

    def forget_open(self) -> None:
        """Forget open requests and calls: another process has ended them."""
        self.requests.clear()
        self.calls.clear()

    def thread(self, thread_id: str) -> _ThreadState:
        return self.threads.setdefault(thread_id, _ThreadState(self.agent_name))

    def begin_run(self, event: Event, thread_id: str) -> list[TraceSpan]:
        thread = self.thread(thread_id)
        if thread.run is not None:  # reported twice: for the session, and for its thread
            return []
        thread.run = thread.last_run = event.id
        thread.begun = event.time
        return []

    def end_run(self, event: Event, thread_id: str, reason: str) -> list[TraceSpan]:
        thread = self.thread(thread_id)
        messages, thread.messages = thread.messages, []
        if thread.run is None or thread.begun is None:
            return []
        details = RunSpan(reason=reason, input_text=self.captured("\n\n".join(messages)))
        span = self._span(
            thread.run,
            thread_id,
            parent=thread.parent,
            times=(thread.begun, event.time),
            details=details,
        )
        thread.run = thread.begun = None
        return [span]

    def end_request(self, event: Event, ended: events.ModelRequestEnded) -> list[TraceSpan]:
        request = self.requests.pop(ended.model_request_start_id, None)
        if request is None:
            return []
        details = ModelRequestSpan(
            model=request.asked.model or ended.model or "unknown",
            answered_by=ended.model,
            usage=ended.model_usage,
            cost_usd=ended.cost_usd,
            stop_reason=ended.stop_reason,
            is_error=ended.is_error,
            purpose=request.asked.purpose,
            max_tokens=request.asked.max_tokens,
            said=self.captured("\n\n".join(self.thread(request.thread_id).said)),
        )
        return [
            self._span(
                ended.model_request_start_id,
                request.thread_id,
                parent=request.parent,
                times=(request.begun, event.time),
                details=details,
            )
        ]

    def end_call(
        self, event: Event, call_id: str, outcome: ToolOutcome, text: str
    ) -> list[TraceSpan]:
        call = self.calls.pop(call_id, None)
        if call is None:
            return []
        details = ToolCallSpan(
            tool=call.tool,
            kind=call.kind,
            outcome=outcome,
            attempts=call.attempts,
            arguments=self.captured(msgspec.json.encode(call.input).decode()),
            result=self.captured(text),
        )
        times = (call.begun or event.time, event.time)
        return [
            self._span(call_id, call.thread_id, parent=call.parent, times=times, details=details)
        ]

    def captured(self, text: str) -> str | None:
        return text[:_MAX_CHARS] if self.captures else None

    def _span(
        self,
        id_: str,
        thread_id: str,
        *,
        parent: str | None,
        times: tuple[datetime, datetime],
        details: SpanDetails,
    ) -> TraceSpan:
        start, end = times
        return TraceSpan(
            id=id_,
            parent=parent,
            thread_id=thread_id,
            agent_name=self.thread(thread_id).agent_name,
            begun=min(start, end),  # clocks of two machines may differ
            ended=end,
            details=details,
        )


def _created(fold: SpanFold, _event: Event, payload: events.SessionCreated) -> list[TraceSpan]:
    fold.agent_name = payload.agent_name or fold.agent_name
    return []


def _forked(fold: SpanFold, event: Event, _payload: events.SessionForked) -> list[TraceSpan]:
    """Open spans belong to the parent; what continues in the fork begins here."""
    fold.requests.clear()
    for call in fold.calls.values():
        call.begun, call.attempts, call.parent = None, 0, None
    for thread in fold.threads.values():
        thread.parent = None
        if thread.run is not None:
            thread.run = thread.last_run = event.id
            thread.begun = event.time
    return []


def _thread_created(fold: SpanFold, event: Event, payload: events.ThreadCreated) -> list[TraceSpan]:
    made_by = fold.thread(payload.parent_thread_id or event.thread_id)
    fold.threads[payload.session_thread_id] = _ThreadState(payload.agent_name, made_by.last_run)
    return []


def _user_message(fold: SpanFold, event: Event, payload: events.UserMessage) -> list[TraceSpan]:
    if fold.captures:
        fold.thread(event.thread_id).messages.append(plain_text(payload.content))
    return []


def _agent_message(fold: SpanFold, event: Event, payload: events.AgentMessage) -> list[TraceSpan]:
    if fold.captures:
        fold.thread(event.thread_id).said.append(plain_text(payload.content))
    return []


def _request_started(
    fold: SpanFold, event: Event, payload: events.ModelRequestStarted
) -> list[TraceSpan]:
    thread = fold.thread(event.thread_id)
    thread.said = []
    fold.requests[event.id] = _OpenRequest(event.thread_id, thread.run, event.time, payload)
    return []


def _call_made(fold: SpanFold, event: Event, payload: AnyPayload) -> list[TraceSpan]:
    call = proposed_call(event)
    assert call is not None
    is_mcp, is_client = isinstance(payload, events.AgentMcpToolUse), call.kind == "custom"
    fold.calls[call.id] = _OpenToolCall(
        event.thread_id,
        fold.thread(event.thread_id).run,
        call.name,
        "client" if is_client else "mcp" if is_mcp else "function",
        call.input,
        # nothing shows when a client starts a call: it can from now on
        begun=event.time if is_client else None,
        attempts=int(is_client),
    )
    return []


def _started(fold: SpanFold, event: Event, payload: events.ToolCallStarted) -> list[TraceSpan]:
    call = fold.calls.get(payload.tool_use_id)
    if call is not None:
        call.attempts += 1
        if call.begun is None:
            call.begun, call.parent = event.time, fold.thread(event.thread_id).run
    return []


def _tool_result(fold: SpanFold, event: Event, payload: CallResult) -> list[TraceSpan]:
    error: Failure | None = getattr(payload, "error", None)
    outcome: ToolOutcome = error or ("failed" if payload.is_error else "ok")
    return fold.end_call(event, call_id_of(payload) or "", outcome, plain_text(payload.content))


def _status(fold: SpanFold, event: Event, payload: StatusPayload) -> list[TraceSpan]:
    change = status_change(event, payload)
    match change.status:
        case "running":
            return fold.begin_run(event, change.thread_id)
        case "idle":
            return fold.end_run(event, change.thread_id, change.reason or "end_turn")
        case "terminated":
            return fold.end_run(event, change.thread_id, change.status)
        case "rescheduling":
            return []
        case _:
            assert_never(change.status)


_HANDLERS: Mapping[type, Callable[[SpanFold, Event, Any], list[TraceSpan]]] = {
    events.SessionCreated: _created,
    events.SessionForked: _forked,
    events.ThreadCreated: _thread_created,
    events.UserMessage: _user_message,
    events.AgentMessage: _agent_message,
    events.ModelRequestStarted: _request_started,
    events.ModelRequestEnded: SpanFold.end_request,
    events.AgentToolUse: _call_made,
    events.AgentMcpToolUse: _call_made,
    events.AgentCustomToolUse: _call_made,
    events.ToolCallStarted: _started,
    events.AgentToolResult: _tool_result,
    events.AgentMcpToolResult: _tool_result,
    events.UserCustomToolResult: _tool_result,
    events.UserToolResult: _tool_result,
    **dict.fromkeys(STATUS_EVENTS, _status),
}
SPAN_TYPES = frozenset(name for name, kind in PAYLOAD_TYPES.items() if kind in _HANDLERS)
"""The types of events that this fold uses."""
