"""Events of the log, rendered for the Managed Agents API. Pure except for `EventRenderer`, which
looks up what an event refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from mainspring.core import events
from mainspring.core.clock import from_micros
from mainspring.core.content import Block
from mainspring.core.envelope import AnyPayload, Event, UnknownPayload
from mainspring.core.errors import BlobNotFound
from mainspring.core.events import WorkflowRunCreated, WorkflowRunEnded, WorkflowRunFailed
from mainspring.harness.state.outcome_state import outcome_id
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem
from mainspring.log.upcast import read_payload
from mainspring.service.sessions.events.call_verdicts import (
    CALLS,
    CallVerdict,
    CallVerdicts,
    read_verdicts,
)
from mainspring.service.sessions.events.wire_content import (
    MESSAGE_BLOCKS,
    NO_BLOBS,
    RESULT_BLOCKS,
    USER_BLOCKS,
    AllowedBlocks,
    Blobs,
    blob_digests,
    wire_block,
)

DEFAULT_ITERATIONS = 3  # the Managed Agents API's own default

PUBLIC_TYPES = frozenset(
    {
        "user.message",
        "user.interrupt",
        "user.tool_confirmation",
        "user.custom_tool_result",
        "user.tool_result",
        "user.define_outcome",
        "system.message",
        "agent.custom_tool_use",
        "agent.message",
        "agent.thinking",
        "agent.mcp_tool_use",
        "agent.mcp_tool_result",
        "agent.tool_use",
        "agent.tool_result",
        "agent.thread_message_received",
        "agent.thread_message_sent",
        "agent.thread_context_compacted",
        "session.error",
        "session.status_rescheduled",
        "session.status_running",
        "session.status_idle",
        "session.status_terminated",
        "session.updated",
        "session.usage",
        "session.deleted",
        "session.thread_created",
        "session.thread_status_running",
        "session.thread_status_idle",
        "session.thread_status_terminated",
        "session.thread_status_rescheduled",
        "span.model_request_start",
        "span.model_request_end",
        "span.outcome_evaluation_start",
        "span.outcome_evaluation_ongoing",
        "span.outcome_evaluation_end",
        "workflow_run.created",
        "workflow_run.status_running",
        "workflow_run.status_idle",
        "workflow_run.status_ended",
        "workflow_run.error",
        "workflow_run.phase_started",
        "workflow_run.phase_ended",
    }
)
"""The types of the Managed Agents API; all others are internal."""

_THREAD_TYPES = {
    "session.status_running": "session.thread_status_running",
    "session.status_idle": "session.thread_status_idle",
    "session.status_terminated": "session.thread_status_terminated",
    "session.status_rescheduled": "session.thread_status_rescheduled",
}
"""Status events of a subagent's thread, and their names in the API."""
CROSS_POSTED = frozenset(
    {
        *_THREAD_TYPES.values(),
        "agent.custom_tool_use",
        "session.thread_created",
        "user.custom_tool_result",
        "user.interrupt",
        "user.tool_confirmation",
        "user.tool_result",
    }
)
"""Types of any thread that the main thread shows, too; so are calls that a client must answer."""
_SESSION_ERRORS = frozenset(
    {
        "unknown_error",
        "model_overloaded_error",
        "model_rate_limited_error",
        "model_request_failed_error",
        "billing_error",
        "tool_use_limit_reached_error",
        "compaction_limit_reached_error",
        "mcp_connection_failed_error",
        "mcp_authentication_failed_error",
    }
)
_WORKFLOW_ERRORS = frozenset(
    {
        "unknown_error",
        "timeout_error",
        "program_error",
        "thread_limit_error",
        "max_workflow_runs_error",
    }
)

_THREAD_CREATED = "session.thread_created"
_CALL_TYPES = frozenset({"agent.custom_tool_use", "agent.mcp_tool_use", "agent.tool_use"})

WireEvent = dict[str, Any]
"""An event as a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """Which events of a session are shown."""

    session_id: str
    main_thread_id: str
    thread_id: str | None = None
    """Only this thread; `None`: the main one, and events of others that are shown on it."""
    is_internal: bool = False
    """Whether events that the Managed Agents API does not have are shown, too."""

    def shows(self, type_: str) -> bool:
        return self.is_internal or type_ in PUBLIC_TYPES

    def wants(self, event: Event) -> bool:
        return self.shows(event.type) and self.thread_id in (None, event.thread_id)

    def type_of(self, event: Event) -> str:
        return wire_type(event, main_thread_id=self.main_thread_id)


def wire_type(event: Event, *, main_thread_id: str) -> str:
    """The name of an event in the API, which depends on its thread."""
    if event.thread_id == main_thread_id:
        return event.type
    return _THREAD_TYPES.get(event.type, event.type)


def logged_types(types: frozenset[str]) -> frozenset[str]:
    """The types in the log of events with these API names; other events may have them, too."""
    return types | {logged for logged, name in _THREAD_TYPES.items() if name in types}


class RenderedEvent(NamedTuple):
    event: Event
    wire: WireEvent


class RenderedEvents(NamedTuple):
    events: list[RenderedEvent]
    held: int | None
    """The position of the first call without a decision. Nothing from there on is shown, so that no
    client runs a call before it is allowed."""


@dataclass(frozen=True, slots=True)
class EventRenderer:
    """Renders events of any number of sessions."""

    log: SessionLog
    message_name: str | None = None
    """The name of each event's message on a stream; `None`: its type."""

    async def render(self, view: EventView, events_: Sequence[Event]) -> RenderedEvents:
        """Render the events of the view, in order."""
        visible = [event for event in events_ if view.wants(event)]
        current = await read_verdicts(self.log, view.session_id, visible)
        held_seq = min((item.seq for item in current.values() if not item.is_visible), default=None)
        visible = [
            event
            for event in visible
            if (held_seq is None or event.seq < held_seq) and _belongs_to(view, event, current)
        ]
        blobs = await self._blobs(event.payload for event in visible)
        names = await self._names(view, visible)
        rendered: list[RenderedEvent] = []
        for event in visible:
            fields = wire_event(
                event,
                main_thread_id=view.main_thread_id,
                verdict=current.get(event.id),
                blobs=blobs,
            )
            _adapt_to_view(view, event, fields, names)
            rendered.append(RenderedEvent(event, fields))
        return RenderedEvents(rendered, held_seq)

    async def pending(self, item: InboxItem, *, main_thread_id: str) -> WireEvent:
        """Render an event that is not in the log yet, or has just entered it."""
        payload = read_payload(item.type, item.body, item.version)
        blobs = await self._blobs([payload])
        return wire_pending_event(item, payload, main_thread_id=main_thread_id, blobs=blobs)

    async def _names(self, view: EventView, events_: Iterable[Event]) -> Mapping[str, str]:
        """The agent names of threads, read only if a thread's status event needs one."""
        if all(view.type_of(event) == event.type for event in events_):
            return {}
        created = await self.log.read(view.session_id, types=[_THREAD_CREATED])
        return {
            event.payload.session_thread_id: event.payload.agent_name
            for event in created
            if isinstance(event.payload, events.ThreadCreated)
        }

    async def _blobs(self, payloads: Iterable[AnyPayload]) -> Blobs:
        blobs: dict[str, bytes] = {}
        for payload in payloads:
            for digest in blob_digests(getattr(payload, "content", ())):
                try:
                    blobs[digest] = await self.log.blob(digest)
                except BlobNotFound:
                    continue  # a note is shown in its place
        return blobs


def wire_event(
    event: Event,
    *,
    main_thread_id: str,
    verdict: CallVerdict | None = None,
    blobs: Blobs = NO_BLOBS,
) -> WireEvent:
    fields = _fields(event.id, event.payload, event.body, blobs)
    fields["processed_at"] = event.time
    if event.thread_id != main_thread_id:
        fields.setdefault("session_thread_id", event.thread_id)
    if isinstance(event.payload, CALLS):
        fields |= _permission_fields(
            verdict.visible_permission if verdict else event.payload.evaluated_permission
        )
        if verdict is not None and verdict.input is not None:
            fields["input"] = dict(verdict.input)
    return fields


_ACCEPTED_AT_ONCE = (
    *(events.UserDefineOutcome, events.SessionUpdated, events.ThreadStatusTerminated),
    # What a workflow run reports has happened already.
    *(events.WorkflowRunRunning, events.WorkflowRunIdle),
    *(events.WorkflowRunEnded, events.WorkflowRunFailed),
)


def wire_pending_event(
    item: InboxItem, payload: AnyPayload, *, main_thread_id: str, blobs: Blobs = NO_BLOBS
) -> WireEvent:
    """Render an event that waits in the inbox; some count as processed once they are accepted."""
    fields = _fields(item.event_id, payload, item.body.encode(), blobs)
    is_accepted = isinstance(payload, _ACCEPTED_AT_ONCE)
    fields["processed_at"] = from_micros(item.time) if is_accepted else None
    if item.thread_id != main_thread_id:
        fields.setdefault("session_thread_id", item.thread_id)
    return fields


def _belongs_to(view: EventView, event: Event, current: CallVerdicts) -> bool:
    if event.thread_id == (view.thread_id or view.main_thread_id):
        return True
    verdict = current.get(event.id)
    is_posted = view.type_of(event) in CROSS_POSTED
    return is_posted or (verdict is not None and verdict.is_for_clients)


def _adapt_to_view(
    view: EventView, event: Event, fields: WireEvent, names: Mapping[str, str]
) -> None:
    """Change the fields that depend on where the event is shown."""
    if (type_ := view.type_of(event)) != event.type:
        fields |= {"type": type_, "agent_name": names.get(event.thread_id, "")}
    elif event.thread_id == view.thread_id and event.type in _CALL_TYPES:
        fields.pop("session_thread_id", None)  # only shown outside its thread


def _fields(event_id: str, payload: AnyPayload, body: bytes, blobs: Blobs) -> WireEvent:
    if isinstance(payload, UnknownPayload):
        fields: WireEvent = msgspec.json.decode(body)
    else:
        fields = msgspec.to_builtins(payload)
        content: tuple[Block, ...] | None = getattr(payload, "content", None)
        if content is not None:
            allowed = _CONTENT.get(type(payload), RESULT_BLOCKS)
            fields["content"] = [wire_block(block, allowed, blobs) for block in content]
        if fix := _FIELD_FIXES.get(type(payload)):
            fix(event_id, payload, fields)
    fields["id"] = event_id
    return fields


def _permission_fields(permission: events.Permission | None) -> WireEvent:
    match permission:
        case None:
            return {}
        case "deny":
            return {"evaluated_permission": permission}
        case _:
            return {
                "evaluated_permission": permission,
                "evaluation": {"type": f"always_{permission}"},
            }


def usage_fields(usage: events.Usage) -> WireEvent:
    """The usage for the API. All cache writes are reported as five-minute ones."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_creation_input_tokens,
            "ephemeral_1h_input_tokens": 0,
        },
    }


def _outcome(event_id: str, payload: events.UserDefineOutcome, fields: WireEvent) -> None:
    fields["outcome_id"] = outcome_id(event_id, payload)
    fields.setdefault("max_iterations", DEFAULT_ITERATIONS)


def _thinking(_event_id: str, _payload: events.AgentThinking, fields: WireEvent) -> None:
    fields.pop("signature", None)  # only the provider can use it


def _mcp_call(_event_id: str, payload: events.AgentMcpToolUse, fields: WireEvent) -> None:
    fields["name"] = fields.pop("mcp_tool_name", None) or payload.name.split("__", 2)[-1]


def _idle(_: str, payload: events.StatusIdle | events.ThreadStatusIdle, fields: WireEvent) -> None:
    if payload.stop_reason.type == "requires_action":
        fields["stop_reason"]["event_ids"] = list(payload.stop_reason.event_ids)
    fields["stop_details"] = None
    if payload.stop_reason.type == "refusal":
        explanation = getattr(payload, "detail", None)
        fields["stop_details"] = {"type": "refusal", "category": None, "explanation": explanation}


def _failed(_event_id: str, payload: events.SessionFailed, fields: WireEvent) -> None:
    _known_error_type(fields["error"], payload.error.type, _SESSION_ERRORS)


_RUN_FIELDS = frozenset(WorkflowRunCreated.__struct_fields__) - {
    *("workflow_run_id", "name", "phases", "description")
}
"""What the API does not have of a run's first event: what it was started with."""


def _run_created(_event_id: str, _payload: WorkflowRunCreated, fields: WireEvent) -> None:
    for name in _RUN_FIELDS:
        fields.pop(name, None)


def _run_failed(_event_id: str, payload: WorkflowRunFailed, fields: WireEvent) -> None:
    _known_error_type(fields["error"], payload.error.type, _WORKFLOW_ERRORS)


def _run_ended(_event_id: str, payload: WorkflowRunEnded, fields: WireEvent) -> None:
    fields.pop("output", None)
    if payload.result.error is not None:
        _known_error_type(fields["result"]["error"], payload.result.error.type, _WORKFLOW_ERRORS)


def _known_error_type(error: WireEvent, type_: str, current: frozenset[str]) -> None:
    """Replace a type that the API does not have by `unknown_error`, with the original as `code`."""
    if type_ not in current:
        error |= {"type": "unknown_error", "code": type_}


def _usage(_event_id: str, payload: events.SessionUsage, fields: WireEvent) -> None:
    fields["usage"] = usage_fields(payload.usage)


def _request_error_flag(
    _event_id: str, payload: events.ModelRequestEnded, fields: WireEvent
) -> None:
    fields["is_error"] = payload.is_error


_CONTENT: dict[type[AnyPayload], AllowedBlocks] = {
    events.AgentMessage: MESSAGE_BLOCKS,
    events.SystemMessage: MESSAGE_BLOCKS,
    events.UserMessage: USER_BLOCKS,
    events.ThreadMessageSent: USER_BLOCKS,
    events.ThreadMessageReceived: USER_BLOCKS,
}
_FIELD_FIXES: dict[type[AnyPayload], Callable[[str, Any, WireEvent], None]] = {
    events.UserDefineOutcome: _outcome,
    events.AgentThinking: _thinking,
    events.AgentMcpToolUse: _mcp_call,
    events.StatusIdle: _idle,
    events.ThreadStatusIdle: _idle,
    events.SessionFailed: _failed,
    events.SessionUsage: _usage,
    events.ModelRequestEnded: _request_error_flag,
    WorkflowRunCreated: _run_created,
    WorkflowRunFailed: _run_failed,
    WorkflowRunEnded: _run_ended,
}
