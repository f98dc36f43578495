"""The projection of a session: its state folded from its log. Threads, status, usage, outcomes,
open calls and questions, and the facts that a heading shows. Whoever shows a session reads it here.

Every prefix of a log folds to a valid projection; continuing a fold gives the same as folding it
all. How calls change is decided in `open_call.py`; what a thread needs to continue is in
`thread.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from mainspring.core import events
from mainspring.core.envelope import AnyPayload, Event, event_types
from mainspring.core.events import KnownPayload, Usage
from mainspring.harness import limits
from mainspring.harness.state.open_approval import OpenApproval, fold_approvals
from mainspring.harness.state.open_call import OpenCall, asking_call, call_id_of, proposed_call
from mainspring.harness.state.outcome_state import outcome_id
from mainspring.harness.state.thread import END_ONLY
from mainspring.harness.state.thread_tree import add_usage
from mainspring.log.session_status import (
    STATUS_EVENTS,
    SessionState,
    StatusPayload,
    ThreadStatus,
    state_of,
    status_change,
)


class ThreadProjection(Struct, kw_only=True):
    id: str
    created_at: datetime
    updated_at: datetime
    created: events.ThreadCreated | None = None
    """`None`: the main thread."""
    agent_name: str | None = None
    parent_id: str | None = None
    status: ThreadStatus = "idle"
    stop_reason: str | None = None
    """Why it stopped the last time."""
    reason: str | None = None
    """The same, as the loop reports it: finer."""
    awaits: tuple[str, ...] = ()
    """Ids of the calls that it waited for when it last stopped."""
    has_begun: bool = False
    has_idled: bool = False
    is_stopped: bool = False
    """Somebody stopped it during its last run."""
    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal = Decimal(0)
    turns: int = 0
    """Replies of the model that arrived."""
    purpose: str | None = None
    """The purpose of its open model request, if that is not a turn."""
    seconds_before: float = 0.0
    running_since: datetime | None = None
    calls: dict[str, OpenCall] = field(default_factory=dict[str, OpenCall])
    """Calls of the newest round that no client has answered yet."""

    @property
    def state(self) -> SessionState:
        return state_of(self.status, self.reason or self.stop_reason, has_begun=self.has_begun)

    @property
    def workflow_run_id(self) -> str | None:
        return None if self.created is None else self.created.workflow_run_id

    @property
    def pending_calls(self) -> list[OpenCall]:
        """The calls that it waits for, without those that were answered since."""
        return [
            call for call in self.calls.values() if call.id in self.awaits and not call.has_answer
        ]

    def active_seconds(self, now: datetime) -> float:
        if self.running_since is None:
            return self.seconds_before
        return self.seconds_before + max(0.0, (now - self.running_since).total_seconds())

    def set_status(self, status: ThreadStatus, now: datetime) -> None:
        is_running = status == "running"
        if not is_running:
            self.seconds_before = self.active_seconds(now)
        self.running_since = (self.running_since or now) if is_running else None
        self.status = status
        self.has_begun = True
        self.has_idled = self.has_idled or status == "idle"


class Outcome(Struct, kw_only=True):
    id: str
    description: str
    result: str = "pending"
    iteration: int = 0
    explanation: str | None = None
    completed_at: datetime | None = None


class SessionProjection(Struct, kw_only=True):
    """Changed only during a fold: `Projections` copies it first."""

    seq: int = 0
    """The position up to which the log has been folded."""
    main_thread_id: str = ""
    updated_at: datetime | None = None
    created: events.SessionCreated | None = None
    title: str | None = None
    metadata: dict[str, str] = {}
    model: str | None = None
    """The last model of the main thread, apart from models that a skill set for its run."""
    skill_models: tuple[str, ...] = ()
    """The models of the skills that the main thread uses in this run."""
    usage: Usage = field(default_factory=Usage)
    spent: limits.Spending = field(default_factory=limits.Spending)
    """Money, and the time during which at least one thread ran."""
    threads: dict[str, ThreadProjection] = field(default_factory=dict[str, ThreadProjection])
    """In order of creation; the main one is the first."""
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    verdict: str | None = None
    """The last verdict on an outcome."""
    approvals: tuple[OpenApproval, ...] = ()
    """Questions of parts that are not tool calls, and their answers."""

    @property
    def main(self) -> ThreadProjection | None:
        return self.threads.get(self.main_thread_id)

    @property
    def status(self) -> ThreadStatus:
        """The status of the main thread; "running" while any thread runs."""
        own: ThreadStatus = "idle" if self.main is None else self.main.status
        if own == "idle" and any(thread.status == "running" for thread in self.threads.values()):
            return "running"
        return own

    @property
    def calls(self) -> list[OpenCall]:
        return [call for thread in self.threads.values() for call in thread.calls.values()]

    @property
    def open_approvals(self) -> list[OpenApproval]:
        return [item for item in self.approvals if item.is_open]

    def call(self, call_id: str) -> OpenCall | None:
        """The call, or the open question of another part, with this id."""
        calls = (t.calls[call_id] for t in self.threads.values() if call_id in t.calls)
        questions = (asking_call(item) for item in self.open_approvals if item.id == call_id)
        return next(calls, None) or next(questions, None)

    def thread(self, event: Event, thread_id: str | None = None) -> ThreadProjection:
        """The thread that an event changes."""
        id_ = thread_id or event.thread_id
        thread = self.threads.get(id_)
        if thread is None:
            thread = ThreadProjection(id=id_, created_at=event.time, updated_at=event.time)
            self.threads[id_] = thread
        thread.updated_at = event.time
        return thread

    def copy(self) -> SessionProjection:
        threads = {
            id_: replace(thread, calls=dict(thread.calls)) for id_, thread in self.threads.items()
        }
        outcomes = [copy.copy(item) for item in self.outcomes]
        return replace(self, threads=threads, outcomes=outcomes)

    def apply(self, event: Event) -> None:
        """Continue the fold by one event. Events of other types than `PROJECTION_TYPES` only move
        the position."""
        if event.seq <= self.seq:
            return
        self.seq = event.seq
        self.updated_at = event.time
        self.spent = limits.fold(self.spent, event.payload, event.time)
        if handler := _HANDLERS.get(type(event.payload)):
            handler(self, event, event.payload)


def project(log: Iterable[Event], start: SessionProjection | None = None) -> SessionProjection:
    """The projection of a log; `start` is continued."""
    projection = start or SessionProjection()
    for event in log:
        projection.apply(event)
    return projection


_Handler: TypeAlias = Callable[[SessionProjection, Event, Any], None]


def _created(projection: SessionProjection, event: Event, payload: events.SessionCreated) -> None:
    projection.main_thread_id = event.thread_id
    projection.created = payload
    projection.title = payload.title
    projection.metadata = payload.metadata or {}
    projection.thread(event).agent_name = payload.agent_name


def _updated(projection: SessionProjection, _event: Event, payload: events.SessionUpdated) -> None:
    projection.title = payload.title or projection.title
    if payload.metadata is not None:
        projection.metadata = payload.metadata


def _forked_or_moved(
    projection: SessionProjection,
    event: Event,
    payload: events.SessionForked | events.SessionReceived,
) -> None:
    """What was in progress belongs to the parent: here, its threads are idle."""
    if isinstance(payload, events.SessionForked):
        projection.title = payload.title or projection.title
    projection.skill_models = ()
    projection.approvals = ()
    for thread in projection.threads.values():
        if thread.status != "terminated":
            thread.updated_at = event.time
            thread.set_status("idle", event.time)
        thread.purpose = None
        thread.calls = {id_: call.without_decisions() for id_, call in thread.calls.items()}
        if thread.id != projection.main_thread_id:
            thread.awaits = ()  # pending calls of other threads stay with the parent


def _status(projection: SessionProjection, event: Event, payload: StatusPayload) -> None:
    change = status_change(event, payload)
    if isinstance(payload, events.StatusRunning):
        for outcome in projection.outcomes:
            if outcome.result == "pending":
                outcome.result = "running"
    thread = projection.thread(event, change.thread_id)
    thread.set_status(change.status, event.time)
    if change.status == "running":
        thread.is_stopped = False
    if change.stop is not None:
        thread.stop_reason = change.stop.type
        _await_calls(projection, thread, event, change.stop)
    if isinstance(payload, events.StatusIdle):
        thread.reason, thread.awaits = payload.reason, payload.stop_reason.event_ids
        if thread.id == projection.main_thread_id and payload.reason != "requires_action":
            projection.skill_models = ()


def _await_calls(
    projection: SessionProjection, thread: ThreadProjection, event: Event, stop: events.StopReason
) -> None:
    """Keep only the calls that the thread waits for. It may also wait for calls of its subagents;
    these are recorded in the threads of the subagents."""
    subagent_calls = {call.id for call in projection.calls if call.id not in thread.calls}
    waiting: dict[str, OpenCall] = {}
    for id_ in stop.event_ids:
        if id_ not in subagent_calls:
            call = thread.calls.get(id_) or OpenCall(
                id=id_, name="", input={}, thread_id=thread.id, asked_at=event.time
            )
            # the client answers its own calls; all others wait for a person
            asked = call.asked or (event.seq if call.kind == "tool" else 0)
            waiting[id_] = replace(call, asked=asked)
    thread.calls = waiting


def _thread_created(
    projection: SessionProjection, event: Event, payload: events.ThreadCreated
) -> None:
    thread = projection.thread(event, payload.session_thread_id)
    thread.created = payload
    thread.agent_name = payload.agent_name
    thread.created_at = event.time
    thread.parent_id = payload.parent_thread_id or event.thread_id


def _thread_stopped(projection: SessionProjection, event: Event, _payload: object) -> None:
    projection.thread(event).is_stopped = True


def _request_started(
    projection: SessionProjection, event: Event, payload: events.ModelRequestStarted
) -> None:
    thread = projection.thread(event)
    thread.purpose = payload.purpose
    if payload.purpose is None:
        thread.calls = {}  # a new round
        if thread.id == projection.main_thread_id and not projection.skill_models:
            projection.model = payload.model


def _request_ended(
    projection: SessionProjection, event: Event, payload: events.ModelRequestEnded
) -> None:
    projection.usage = add_usage(projection.usage, payload.model_usage)
    thread = projection.thread(event)
    thread.usage = add_usage(thread.usage, payload.model_usage)
    thread.cost_usd += Decimal(payload.cost_usd or 0)
    if payload.purpose in END_ONLY:
        return  # outside the conversation, while another request may be open
    thread.turns += not payload.is_error and (payload.purpose or thread.purpose) is None
    thread.purpose = None


def _skill_used(projection: SessionProjection, event: Event, payload: events.SkillUsed) -> None:
    if payload.model is not None and event.thread_id == projection.main_thread_id:
        projection.skill_models = (*projection.skill_models, payload.model)


def _call_made(projection: SessionProjection, event: Event, _payload: AnyPayload) -> None:
    if call := proposed_call(event):
        projection.thread(event).calls[call.id] = call


def _approval_changed(
    projection: SessionProjection,
    event: Event,
    payload: events.ApprovalRequested | events.ApprovalAnswered | events.ApprovalVoided,
) -> None:
    if payload.tool_use_id is None:
        projection.approvals = fold_approvals(projection.approvals, event)
    else:
        _call_changed(projection, event, payload)


def _call_changed(projection: SessionProjection, event: Event, payload: AnyPayload) -> None:
    thread = projection.threads.get(event.thread_id)
    if thread is not None and (call := thread.calls.get(call_id_of(payload) or "")):
        projection.thread(event).calls[call.id] = call.after(event)


def _call_returned(projection: SessionProjection, event: Event, payload: AnyPayload) -> None:
    projection.thread(event).calls.pop(call_id_of(payload) or "", None)


def _outcome_defined(
    projection: SessionProjection, event: Event, payload: events.UserDefineOutcome
) -> None:
    result = "running" if projection.status == "running" else "pending"
    id_ = outcome_id(event.id, payload)
    projection.outcomes.append(Outcome(id=id_, description=payload.description, result=result))


def _evaluating(
    projection: SessionProjection, _event: Event, payload: events.OutcomeEvaluationStarted
) -> None:
    for outcome in projection.outcomes:
        if outcome.id == payload.outcome_id:
            outcome.result, outcome.iteration = "evaluating", payload.iteration


def _evaluated(
    projection: SessionProjection, event: Event, payload: events.OutcomeEvaluationEnded
) -> None:
    projection.verdict = payload.result
    is_final = payload.result != "needs_revision"
    for outcome in projection.outcomes:
        if outcome.id == payload.outcome_id:
            outcome.result = payload.result if is_final else "running"
            outcome.iteration = payload.iteration
            outcome.explanation = payload.explanation
            outcome.completed_at = event.time if is_final else None


Projected: TypeAlias = (
    StatusPayload
    | events.SessionCreated
    | events.SessionUpdated
    | events.SessionForked
    | events.SessionReceived
    | events.SkillUsed
    | events.ToolCallAuthorized
    | events.ToolCallStarted
    | events.ToolCallInDoubt
    | events.ApprovalRequested
    | events.ApprovalAnswered
    | events.ApprovalVoided
    | events.ThreadCreated
    | events.ThreadStopped
    | events.ModelRequestStarted
    | events.ModelRequestEnded
    | events.AgentToolUse
    | events.AgentMcpToolUse
    | events.AgentCustomToolUse
    | events.AgentToolResult
    | events.AgentMcpToolResult
    | events.UserToolConfirmation
    | events.UserCustomToolResult
    | events.UserToolResult
    | events.UserDefineOutcome
    | events.OutcomeEvaluationStarted
    | events.OutcomeEvaluationEnded
    | events.SessionWoken
    | events.BudgetReserved
    | events.BudgetSettled
)
"""The events that change a projection."""
_SPENDING_ONLY = (events.SessionWoken, events.BudgetReserved, events.BudgetSettled)
NotProjected: TypeAlias = (
    events.UserMessage
    | events.UserInterrupt
    | events.SystemMessage
    | events.PermissionUpdated
    | events.CompactionRequested
    | events.FeedbackGiven
    | events.WorkflowRunControlled
    | events.AgentMessage
    | events.AgentThinking
    | events.ThreadMessageSent
    | events.ThreadMessageReceived
    | events.ContextCompacted
    | events.SessionImported
    | events.SessionMoved
    | events.SessionFailed
    | events.SessionUsage
    | events.SessionDeleted
    | events.EventsRedacted
    | events.OutcomeEvaluationOngoing
    | events.ToolCallStashed
    | events.OutputProduced
    | events.ThreadHandedOff
    | events.ProgramCallStarted
    | events.ProgramCallEnded
    | events.HookRan
    | events.LoopContinued
    | events.ContextStatus
    | events.ContextAdded
    | events.MessageWithheld
    | events.ProviderFailedOver
    | events.PolicyAdopted
    | events.AgentAdopted
    | events.ToolsLoaded
    | events.TodosWritten
    | events.TaskWritten
    | events.WorkflowPayload
    | events.WorkspacePayload
    | events.MemoryPayload
    | events.EvalPayload
    | events.UtilityPayload
    | events.DreamPayload
    | events.EvolutionPayload
)
"""The events that change no projection: of some families, all."""
_HANDLERS: dict[type[AnyPayload], _Handler] = {
    **dict.fromkeys(STATUS_EVENTS, _status),
    events.SessionCreated: _created,
    events.SessionUpdated: _updated,
    events.SessionForked: _forked_or_moved,
    events.SessionReceived: _forked_or_moved,
    events.SkillUsed: _skill_used,
    events.ToolCallAuthorized: _call_changed,
    events.ToolCallStarted: _call_changed,
    events.ToolCallInDoubt: _call_changed,
    events.ApprovalRequested: _approval_changed,
    events.ApprovalAnswered: _approval_changed,
    events.ApprovalVoided: _approval_changed,
    events.ThreadCreated: _thread_created,
    events.ThreadStopped: _thread_stopped,
    events.ModelRequestStarted: _request_started,
    events.ModelRequestEnded: _request_ended,
    events.AgentToolUse: _call_made,
    events.AgentMcpToolUse: _call_made,
    events.AgentCustomToolUse: _call_made,
    events.AgentToolResult: _call_returned,
    events.AgentMcpToolResult: _call_returned,
    events.UserToolConfirmation: _call_changed,
    events.UserCustomToolResult: _call_returned,
    events.UserToolResult: _call_returned,
    events.UserDefineOutcome: _outcome_defined,
    events.OutcomeEvaluationStarted: _evaluating,
    events.OutcomeEvaluationEnded: _evaluated,
}
PROJECTION_TYPES = event_types(*get_args(Projected))
"""The types of events that a projection is folded from."""


def is_projected(payload: KnownPayload) -> bool:
    """Whether an event changes a projection. The type checker points here if a new event is in
    neither list."""
    return not isinstance(payload, NotProjected) and _is_handled(payload)


def _is_handled(payload: Projected) -> bool:
    return type(payload) in _HANDLERS or isinstance(payload, _SPENDING_ONLY)
