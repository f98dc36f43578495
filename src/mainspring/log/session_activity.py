"""What a session does now, or why it waits: a small fold of its log, stored beside the log's head
in the same transaction as the events.

It is for lists of many sessions. What a thread needs to continue is folded by the harness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct, field

from mainspring.core import events
from mainspring.core.clock import to_micros
from mainspring.core.envelope import AnyPayload, Event, event_types
from mainspring.core.events import KnownPayload
from mainspring.log.session_status import STATUS_EVENTS, StatusPayload, ThreadStatus, status_change
from mainspring.log.store import ActivityNote

StepState: TypeAlias = Literal["proposed", "running", "asked", "client"]
"""`asked`: it waits for a person; `client`: for the program that started the session."""

_MAX_STEPS = 64
"""Calls of one round and questions that are remembered; a list names two or three of them."""
_MAX_THREADS = 64
"""Subagents that are remembered: those that run or wait come first."""
_MAX_CHARS = 120
"""Characters of a text: a line of a terminal."""
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
    "question",
    "name",
)
"""The arguments that describe a call best, most descriptive first."""


class OpenStep(Struct, omit_defaults=True):
    """A tool call, or a question of another part, that is not settled."""

    name: str
    since: int
    """Microseconds since 1970."""
    text: str = ""
    state: StepState = "proposed"


class ThreadActivity(Struct, omit_defaults=True):
    status: ThreadStatus = "idle"
    since: int = 0
    """When its status or its step began, in microseconds since 1970."""
    name: str | None = None
    """The agent of a subagent."""
    reason: str | None = None
    """Why its last run stopped."""
    doing: str | None = None
    """Its step, if that is not a call: `model`, or the purpose of another model request."""
    what: str | None = None
    """The model; or the error after which it tries again."""
    calls: dict[str, OpenStep] = field(default_factory=dict[str, OpenStep])

    @property
    def is_active(self) -> bool:
        return self.status == "running" or bool(self.calls)


class SessionActivity(Struct, omit_defaults=True):
    main: str
    """The id of the main thread."""
    seq: int = 0
    """The last event that is part of it."""
    threads: dict[str, ThreadActivity] = field(default_factory=dict[str, ThreadActivity])
    questions: dict[str, OpenStep] = field(default_factory=dict[str, OpenStep])
    """What parts other than tool calls have asked people."""
    is_moved: bool = False
    """It continues in another store."""

    @property
    def main_thread(self) -> ThreadActivity:
        return self.threads.get(self.main) or ThreadActivity()

    @property
    def status(self) -> ThreadStatus:
        """The status of the main thread; "running" while any thread runs."""
        own = self.main_thread.status
        if own == "idle" and self.is_running:
            return "running"
        return own

    @property
    def is_running(self) -> bool:
        return any(thread.status == "running" for thread in self.threads.values())

    def apply(self, event: Event) -> None:
        self.seq = event.seq
        if handler := _BY_PAYLOAD.get(type(event.payload)):
            payload = event.payload
            id_ = payload.session_thread_id if isinstance(payload, _ABOUT_THREAD) else None
            handler(self, self._thread(id_ or event.thread_id), event, payload)
            self._limit()

    def _thread(self, thread_id: str) -> ThreadActivity:
        return self.threads.setdefault(thread_id, ThreadActivity())

    def _limit(self) -> None:
        """Forget what no list would show: first subagents that neither run nor wait."""
        excess = len(self.threads) - _MAX_THREADS
        if excess > 0:
            order = sorted(self.threads, key=lambda id_: self.threads[id_].is_active)
            for id_ in [id_ for id_ in order if id_ != self.main][:excess]:
                del self.threads[id_]


def decode_activity(text: str) -> SessionActivity:
    return _DECODER.decode(text)


def encode_activity(activity: SessionActivity) -> str:
    return _ENCODER.encode(activity).decode()


def fold_activity(main: str, log: Iterable[Event]) -> SessionActivity:
    activity = SessionActivity(main=main)
    for event in log:
        activity.apply(event)
    return activity


def current_activity(text: str | None, seq: int) -> SessionActivity | None:
    """The stored activity, if it is that of this position of the log: an older Mainspring, which
    appends without it, may have written last."""
    if text is None:
        return None
    activity = decode_activity(text)
    return activity if activity.seq == seq else None


def activity_note(session_id: str, activity: SessionActivity) -> ActivityNote:
    return ActivityNote(session_id, activity.seq, encode_activity(activity), activity.status)


_Handler: TypeAlias = Callable[[SessionActivity, ThreadActivity, Event, Any], None]
_DECODER = msgspec.json.Decoder(SessionActivity)
_ENCODER = msgspec.json.Encoder()


def _begin(thread: ThreadActivity, event: Event, doing: str | None, what: str | None) -> None:
    thread.doing, thread.what = doing, _line(what)
    thread.since = to_micros(event.time)


def _status(
    activity: SessionActivity, thread: ThreadActivity, event: Event, payload: StatusPayload
) -> None:
    change = status_change(event, payload)
    is_new = thread.status != change.status or thread.doing is not None
    if change.stop is not None or is_new:
        _begin(thread, event, None, None)
    thread.status = change.status
    if change.stop is not None:
        _await_calls(thread, change.stop)
    if isinstance(payload, events.StatusIdle):
        thread.reason = change.reason
        thread.what = _line(payload.detail)
    elif isinstance(payload, events.ThreadStatusTerminated):
        _forget_thread(activity, thread)


def _await_calls(thread: ThreadActivity, stop: events.StopReason) -> None:
    thread.calls = {id_: call for id_, call in thread.calls.items() if id_ in stop.event_ids}
    for call in thread.calls.values():
        if call.state != "client":
            call.state = "asked"


def _thread_created(
    _: SessionActivity, created: ThreadActivity, event: Event, payload: events.ThreadCreated
) -> None:
    created.name = payload.agent_name
    created.since = to_micros(event.time)


def _end_threads(activity: SessionActivity, _: ThreadActivity, event: Event, _p: object) -> None:
    """A fork or a move: what was in progress belongs to the parent."""
    main = activity.threads.get(activity.main) or ThreadActivity()
    status: ThreadStatus = "terminated" if main.status == "terminated" else "idle"
    kept = ThreadActivity(status=status, since=to_micros(event.time), reason=main.reason)
    activity.threads = {activity.main: kept}
    activity.questions = {}
    activity.is_moved = False


def _moved(activity: SessionActivity, thread: ThreadActivity, event: Event, _p: object) -> None:
    activity.is_moved = True
    thread.since = to_micros(event.time)


def _request_started(
    _: SessionActivity, thread: ThreadActivity, event: Event, payload: events.ModelRequestStarted
) -> None:
    if payload.purpose is None:
        thread.calls = {}
    _begin(thread, event, payload.purpose or "model", payload.model)


def _request_ended(
    _: SessionActivity, thread: ThreadActivity, event: Event, payload: events.ModelRequestEnded
) -> None:
    if payload.purpose in (None, thread.doing):  # else a request beside the one that is open
        _begin(thread, event, None, None)


def _failed(
    _: SessionActivity, thread: ThreadActivity, event: Event, payload: events.SessionFailed
) -> None:
    if payload.error.retry_status.type == "retrying":
        _begin(thread, event, "retry", payload.error.message)


def _proposed(
    _: SessionActivity,
    thread: ThreadActivity,
    event: Event,
    payload: events.AgentToolUse | events.AgentMcpToolUse | events.AgentCustomToolUse,
) -> None:
    if len(thread.calls) < _MAX_STEPS:
        is_client = isinstance(payload, events.AgentCustomToolUse)
        thread.calls[event.id] = OpenStep(
            name=payload.name,
            since=to_micros(event.time),
            text=_line(key_argument(payload.input)) or "",
            state="client" if is_client else "proposed",
        )


def _change(thread: ThreadActivity, event: Event, call_id: str, state: StepState) -> None:
    if (call := thread.calls.get(call_id)) is not None:
        call.state, call.since = state, to_micros(event.time)


def _authorized(
    _: SessionActivity, thread: ThreadActivity, event: Event, payload: events.ToolCallAuthorized
) -> None:
    if payload.decision == "ask":
        _change(thread, event, payload.tool_use_id, "asked")


def _confirmed(
    _: SessionActivity, thread: ThreadActivity, event: Event, payload: events.UserToolConfirmation
) -> None:
    _change(thread, event, payload.tool_use_id, "proposed")


def _started(
    _: SessionActivity, thread: ThreadActivity, event: Event, payload: events.ToolCallStarted
) -> None:
    _change(thread, event, payload.tool_use_id, "client" if payload.by_client else "running")


def _in_doubt(
    _: SessionActivity, thread: ThreadActivity, event: Event, payload: events.ToolCallInDoubt
) -> None:
    _change(thread, event, payload.tool_use_id, "asked" if payload.policy == "ask" else "proposed")


def _asked(
    activity: SessionActivity,
    thread: ThreadActivity,
    event: Event,
    payload: events.ApprovalRequested,
) -> None:
    if payload.tool_use_id is not None:
        return _change(thread, event, payload.tool_use_id, "asked")
    if len(activity.questions) < _MAX_STEPS:
        activity.questions[payload.approval_id] = OpenStep(
            name=payload.subject.type,
            since=to_micros(event.time),
            text=_line(payload.question) or "",
            state="asked",
        )
    return None


def _answered(
    activity: SessionActivity,
    thread: ThreadActivity,
    event: Event,
    payload: events.ApprovalAnswered | events.ApprovalVoided,
) -> None:
    if payload.tool_use_id is None:
        activity.questions.pop(payload.approval_id, None)
    else:
        _change(thread, event, payload.tool_use_id, "proposed")


def _settled(call_id: str) -> _Handler:
    def handle(_: SessionActivity, thread: ThreadActivity, event: Event, payload: object) -> None:
        if thread.calls.pop(getattr(payload, call_id), None) is not None and not thread.calls:
            thread.since = to_micros(event.time)

    return handle


def _forget_thread(activity: SessionActivity, thread: ThreadActivity) -> None:
    thread.calls = {}
    if thread is not activity.threads.get(activity.main):
        activity.threads = {k: v for k, v in activity.threads.items() if v is not thread}


def _redacted(activity: SessionActivity, _t: ThreadActivity, _e: Event, _payload: object) -> None:
    """Any of the texts may have been removed from the log."""
    for thread in activity.threads.values():
        thread.what = None
        for call in thread.calls.values():
            call.text = ""
    for question in activity.questions.values():
        question.text = ""


def key_argument(arguments: Mapping[str, object]) -> str:
    """The value that describes a call best."""
    keys = [arguments[key] for key in _KEY_ARGUMENTS if isinstance(arguments.get(key), str)]
    texts = [value for value in arguments.values() if isinstance(value, str)]
    values = [*keys, *texts] or [value for value in arguments.values() if value is not None]
    value = values[0] if values else ""
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return ", ".join(map(_item_text, items))


def _item_text(item: object) -> str:
    """For people: of an object the text that describes it best. Not recursive: a call can be
    nested deeply."""
    if not isinstance(item, dict):
        return str(item)
    fields = cast("dict[str, object]", item)
    texts = [value for value in fields.values() if isinstance(value, str)]
    keys = [fields[key] for key in _KEY_ARGUMENTS if isinstance(fields.get(key), str)]
    return str([*keys, *texts][0]) if texts else ", ".join(fields)


def _line(text: str | None) -> str | None:
    if text is None:
        return None
    line = " ".join(text[: _MAX_CHARS * 2].split())
    return line if len(line) <= _MAX_CHARS else f"{line[: _MAX_CHARS - 3]}..."


_HANDLERS: dict[type[KnownPayload], _Handler] = {
    **dict.fromkeys(STATUS_EVENTS, _status),
    events.SessionCreated: lambda _, thread, event, _payload: _begin(thread, event, None, None),
    events.SessionForked: _end_threads,
    events.SessionReceived: _end_threads,
    events.SessionMoved: _moved,
    events.ThreadCreated: _thread_created,
    events.ModelRequestStarted: _request_started,
    events.ModelRequestEnded: _request_ended,
    events.SessionFailed: _failed,
    events.AgentToolUse: _proposed,
    events.AgentMcpToolUse: _proposed,
    events.AgentCustomToolUse: _proposed,
    events.ToolCallAuthorized: _authorized,
    events.UserToolConfirmation: _confirmed,
    events.ToolCallStarted: _started,
    events.ToolCallInDoubt: _in_doubt,
    events.ApprovalRequested: _asked,
    events.ApprovalAnswered: _answered,
    events.ApprovalVoided: _answered,
    events.AgentToolResult: _settled("tool_use_id"),
    events.AgentMcpToolResult: _settled("mcp_tool_use_id"),
    events.UserToolResult: _settled("tool_use_id"),
    events.UserCustomToolResult: _settled("custom_tool_use_id"),
    events.EventsRedacted: _redacted,
}
_ABOUT_THREAD = (
    events.ThreadCreated,
    events.ThreadStatusRunning,
    events.ThreadStatusIdle,
    events.ThreadStatusRescheduled,
    events.ThreadStatusTerminated,
)
"""Events in the log of one thread about another one."""
_BY_PAYLOAD: dict[type[AnyPayload], _Handler] = {**_HANDLERS}
ACTIVITY_TYPES = event_types(*_HANDLERS)
