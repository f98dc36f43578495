"""The digest of a session, folded from its log: status, usage, threads, outcomes, open calls.

Every prefix of a log folds to a valid digest; continuing a fold gives the same as folding it all.
How calls change is decided in `harness/state/open_call.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec

from mainspring.core import events
from mainspring.core.envelope import AnyPayload, Event
from mainspring.core.events import Usage
from mainspring.harness import limits
from mainspring.harness.state.open_approval import OpenApproval, fold_approvals
from mainspring.harness.state.open_call import OpenCall, asking_call, call_id_of, proposed_call
from mainspring.harness.state.outcome_state import outcome_id
from mainspring.harness.state.thread_tree import add_usage
from mainspring.log.lru_cache import LruCache
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow

SessionStatus: TypeAlias = Literal["rescheduling", "running", "idle", "terminated"]


@dataclass(slots=True, kw_only=True)
class ThreadDigest:
    id: str
    agent_name: str | None = None
    created_at: datetime
    updated_at: datetime
    parent_id: str | None = None
    workflow_run_id: str | None = None
    status: SessionStatus = "idle"
    stop_reason: str | None = None
    """Why it stopped the last time."""
    has_begun: bool = False
    has_idled: bool = False
    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal = Decimal(0)
    seconds_before: float = 0.0
    running_since: datetime | None = None
    calls: dict[str, OpenCall] = field(default_factory=dict[str, OpenCall])
    """Calls of the newest round that no client has answered yet."""

    def active_seconds(self, now: datetime) -> float:
        if self.running_since is None:
            return self.seconds_before
        return self.seconds_before + max(0.0, (now - self.running_since).total_seconds())

    def set_status(self, status: SessionStatus, now: datetime) -> None:
        is_running = status == "running"
        if not is_running:
            self.seconds_before = self.active_seconds(now)
        self.running_since = (self.running_since or now) if is_running else None
        self.status = status
        self.has_begun = True
        self.has_idled = self.has_idled or status == "idle"


@dataclass(slots=True, kw_only=True)
class Outcome:
    id: str
    description: str
    result: str = "pending"
    iteration: int = 0
    explanation: str | None = None
    completed_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class SessionDigest:
    """The folded state of a session. Changed only during a fold: `Digests` copies it first."""

    seq: int = 0
    """The position up to which the log has been folded."""
    main_thread_id: str = ""
    updated_at: datetime | None = None
    usage: Usage = field(default_factory=Usage)
    spent: limits.Spending = field(default_factory=limits.Spending)
    """Money, and the time during which at least one thread ran."""
    threads: dict[str, ThreadDigest] = field(default_factory=dict[str, ThreadDigest])
    """In order of creation; the main one is the first."""
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    approvals: tuple[OpenApproval, ...] = ()
    """Questions of parts that are not tool calls, and their answers."""

    @property
    def status(self) -> SessionStatus:
        """The status of the main thread; "running" while any thread runs."""
        main = self.threads.get(self.main_thread_id)
        own: SessionStatus = "idle" if main is None else main.status
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

    def thread(self, event: Event, thread_id: str | None = None) -> ThreadDigest:
        """The thread that an event changes."""
        id_ = thread_id or event.thread_id
        thread = self.threads.get(id_)
        if thread is None:
            thread = ThreadDigest(id=id_, created_at=event.time, updated_at=event.time)
            self.threads[id_] = thread
        thread.updated_at = event.time
        return thread

    def copy(self) -> SessionDigest:
        threads = {
            id_: replace(thread, calls=dict(thread.calls)) for id_, thread in self.threads.items()
        }
        return replace(self, threads=threads, outcomes=[copy.copy(item) for item in self.outcomes])


def apply_event(digest: SessionDigest, event: Event) -> SessionDigest:
    """Continue the fold by one event. Only events of `DIGEST_TYPES` matter."""
    if event.seq <= digest.seq:
        return digest
    digest.seq = event.seq
    digest.updated_at = event.time
    digest.spent = limits.fold(digest.spent, event.payload, event.time)
    if handler := _HANDLERS.get(type(event.payload)):
        handler(digest, event, event.payload)
    return digest


def _created(digest: SessionDigest, event: Event, payload: events.SessionCreated) -> None:
    digest.main_thread_id = event.thread_id
    digest.thread(event).agent_name = payload.agent_name


def _forked(digest: SessionDigest, event: Event, _payload: events.SessionForked) -> None:
    """Threads that were running belong to the parent: in the fork they are idle."""
    for thread in digest.threads.values():
        if thread.status != "terminated":
            thread.updated_at = event.time
            thread.set_status("idle", event.time)


def _running(digest: SessionDigest, event: Event, _payload: events.StatusRunning) -> None:
    for outcome in digest.outcomes:
        if outcome.result == "pending":
            outcome.result = "running"
    digest.thread(event).set_status("running", event.time)


def _await_calls(
    digest: SessionDigest, thread: ThreadDigest, event: Event, reason: events.StopReason
) -> None:
    """Keep only the calls that the thread waits for. It may also wait for calls of its subagents;
    these are recorded in the threads of the subagents."""
    subagent_calls = {call.id for call in digest.calls if call.id not in thread.calls}
    waiting: dict[str, OpenCall] = {}
    for id_ in reason.event_ids:
        if id_ not in subagent_calls:
            call = thread.calls.get(id_) or OpenCall(
                id=id_, name="", input={}, thread_id=thread.id, asked_at=event.time
            )
            # the client answers its own calls; all others wait for a person
            asked = call.asked or (event.seq if call.kind == "tool" else 0)
            waiting[id_] = msgspec.structs.replace(call, asked=asked)
    thread.calls = waiting


def _status_handler(status: SessionStatus) -> _Handler:
    def handle(digest: SessionDigest, event: Event, payload: Any) -> None:  # noqa: ANN401 (one of seven)
        thread = digest.thread(event, getattr(payload, "session_thread_id", None))
        thread.set_status(status, event.time)
        if isinstance(payload, events.StatusIdle | events.ThreadStatusIdle):
            thread.stop_reason = payload.stop_reason.type
            _await_calls(digest, thread, event, payload.stop_reason)

    return handle


def _thread_created(digest: SessionDigest, event: Event, payload: events.ThreadCreated) -> None:
    thread = digest.thread(event, payload.session_thread_id)
    thread.agent_name = payload.agent_name
    thread.created_at = event.time
    thread.parent_id = payload.parent_thread_id or event.thread_id
    thread.workflow_run_id = payload.workflow_run_id


def _request_started(
    digest: SessionDigest, event: Event, payload: events.ModelRequestStarted
) -> None:
    if payload.purpose is None:
        digest.thread(event).calls = {}  # a new round


def _request_ended(digest: SessionDigest, event: Event, payload: events.ModelRequestEnded) -> None:
    digest.usage = add_usage(digest.usage, payload.model_usage)
    thread = digest.thread(event)
    thread.usage = add_usage(thread.usage, payload.model_usage)
    thread.cost_usd += Decimal(payload.cost_usd or 0)


def _call_made(digest: SessionDigest, event: Event, _payload: AnyPayload) -> None:
    if call := proposed_call(event):
        digest.thread(event).calls[call.id] = call


def _approval_changed(
    digest: SessionDigest,
    event: Event,
    payload: events.ApprovalRequested | events.ApprovalAnswered | events.ApprovalVoided,
) -> None:
    if payload.tool_use_id is None:
        digest.approvals = fold_approvals(digest.approvals, event)
    else:
        _call_changed(digest, event, payload)


def _call_changed(digest: SessionDigest, event: Event, payload: AnyPayload) -> None:
    thread = digest.threads.get(event.thread_id)
    if thread is not None and (call := thread.calls.get(call_id_of(payload) or "")):
        digest.thread(event).calls[call.id] = call.after(event)


def _call_returned(digest: SessionDigest, event: Event, payload: AnyPayload) -> None:
    digest.thread(event).calls.pop(call_id_of(payload) or "", None)


def _outcome_defined(
    digest: SessionDigest, event: Event, payload: events.UserDefineOutcome
) -> None:
    result = "running" if digest.status == "running" else "pending"
    id_ = outcome_id(event.id, payload)
    digest.outcomes.append(Outcome(id=id_, description=payload.description, result=result))


def _evaluating(
    digest: SessionDigest, _event: Event, payload: events.OutcomeEvaluationStarted
) -> None:
    for outcome in digest.outcomes:
        if outcome.id == payload.outcome_id:
            outcome.result, outcome.iteration = "evaluating", payload.iteration


def _evaluated(digest: SessionDigest, event: Event, payload: events.OutcomeEvaluationEnded) -> None:
    is_final = payload.result != "needs_revision"
    for outcome in digest.outcomes:
        if outcome.id == payload.outcome_id:
            outcome.result = payload.result if is_final else "running"
            outcome.iteration = payload.iteration
            outcome.explanation = payload.explanation
            outcome.completed_at = event.time if is_final else None


_Handler: TypeAlias = Callable[[SessionDigest, Event, Any], None]
_HANDLERS: dict[type[AnyPayload], _Handler] = {
    events.SessionCreated: _created,
    events.SessionForked: _forked,
    events.ToolCallAuthorized: _call_changed,
    events.ToolCallStarted: _call_changed,
    events.ToolCallInDoubt: _call_changed,
    events.ApprovalRequested: _approval_changed,
    events.ApprovalAnswered: _approval_changed,
    events.ApprovalVoided: _approval_changed,
    events.StatusRunning: _running,
    events.StatusIdle: _status_handler("idle"),
    events.StatusRescheduled: _status_handler("rescheduling"),
    events.StatusTerminated: _status_handler("terminated"),
    events.ThreadCreated: _thread_created,
    events.ThreadStatusRunning: _status_handler("running"),
    events.ThreadStatusIdle: _status_handler("idle"),
    events.ThreadStatusRescheduled: _status_handler("rescheduling"),
    events.ThreadStatusTerminated: _status_handler("terminated"),
    events.ModelRequestStarted: _request_started,
    events.ModelRequestEnded: _request_ended,
    events.AgentToolUse: _call_made,
    events.AgentMcpToolUse: _call_made,
    events.AgentCustomToolUse: _call_made,
    events.UserToolConfirmation: _call_changed,
    events.UserCustomToolResult: _call_returned,
    events.UserToolResult: _call_returned,
    events.UserDefineOutcome: _outcome_defined,
    events.OutcomeEvaluationStarted: _evaluating,
    events.OutcomeEvaluationEnded: _evaluated,
}
_LIMIT_TYPES = (events.SessionWoken, events.BudgetReserved, events.BudgetSettled)
DIGEST_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in (*_HANDLERS, *_LIMIT_TYPES))
"""The types of events that a digest is folded from."""


class Digests:
    """A cache of digests; each is continued from the position where it was last read."""

    def __init__(self, log: SessionLog, *, max_cached: int = 2000) -> None:
        self._log = log
        self._digests: LruCache[str, SessionDigest] = LruCache(max_cached)

    async def of(self, session: SessionRow) -> SessionDigest:
        """Raises: SessionNotFound: it was deleted in the meantime."""
        digest = self._digests.get(session.id) or SessionDigest()
        if digest.seq < session.head.seq:
            new = await self._log.read(session.id, after=digest.seq, types=DIGEST_TYPES)
            digest = digest.copy()  # other tasks may still use the cached one
            for event in new:
                apply_event(digest, event)
            digest.seq = max(digest.seq, session.head.seq)
        cached = self._digests.get(session.id)
        if cached is None or cached.seq < digest.seq:  # another task may have read further
            self._digests.put(session.id, digest)
        return digest

    def forget(self, session_id: str) -> None:
        self._digests.pop(session_id)
