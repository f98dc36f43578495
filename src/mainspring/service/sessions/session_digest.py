"""The digest of a session, folded from its log: status, usage, threads, outcomes, open calls.

Every prefix of a log folds to a valid digest; continuing a fold gives the same as folding it all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from mainspring.core import events, facts
from mainspring.core.envelope import AnyPayload, Event
from mainspring.core.events import Usage
from mainspring.core.lru_cache import LruCache
from mainspring.harness import limits
from mainspring.harness.state.thread_tree import add_usage
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.service.sessions.earlier_answers import result_of
from mainspring.service.sessions.wire_events import outcome_id

SessionStatus: TypeAlias = Literal["rescheduling", "running", "idle", "terminated"]
CallKind: TypeAlias = Literal["tool", "custom"]


class UnansweredCall(Struct, frozen=True):
    """A tool call of a thread's newest round that no client has answered yet."""

    kind: CallKind
    asked: int = 0
    """Where in the log a person was asked to confirm it; 0 if nobody was asked."""
    is_handed_over: bool = False
    """The client runs it and sends the result."""
    is_ours: bool = False
    """The worker that runs the session has started it."""

    @property
    def is_asked(self) -> bool:
        return self.asked > 0


UnansweredCalls: TypeAlias = Mapping[str, UnansweredCall]
_NO_CALLS: UnansweredCalls = MappingProxyType({})
_NO_USAGE = Usage()


class ThreadDigest(Struct, frozen=True, kw_only=True):
    id: str
    agent_name: str | None
    created_at: datetime
    updated_at: datetime
    parent_id: str | None = None
    workflow_run_id: str | None = None
    status: SessionStatus = "idle"
    has_begun: bool = False
    has_idled: bool = False
    usage: Usage = _NO_USAGE
    cost_usd: Decimal = Decimal(0)
    seconds_before: float = 0.0
    running_since: datetime | None = None
    calls: UnansweredCalls = field(default_factory=lambda: _NO_CALLS)

    def active_seconds(self, now: datetime) -> float:
        if self.running_since is None:
            return self.seconds_before
        return self.seconds_before + max(0.0, (now - self.running_since).total_seconds())


class Outcome(Struct, frozen=True, kw_only=True):
    id: str
    description: str
    result: str = "pending"
    iteration: int = 0
    explanation: str | None = None
    completed_at: datetime | None = None


class SessionDigest(Struct, frozen=True, kw_only=True):
    seq: int = 0
    """How far the log has been read."""
    main_thread_id: str = ""
    updated_at: datetime | None = None
    usage: Usage = _NO_USAGE
    spent: limits.Spending = field(default_factory=limits.Spending)
    """Money, and time in which at least one thread ran."""
    threads: Mapping[str, ThreadDigest] = field(
        default_factory=lambda: MappingProxyType(dict[str, ThreadDigest]())
    )
    """In order of creation; the main one is the first."""
    outcomes: tuple[Outcome, ...] = ()

    @property
    def status(self) -> SessionStatus:
        """The status of the main thread; "running" while any thread runs."""
        main = self.threads.get(self.main_thread_id)
        own: SessionStatus = "idle" if main is None else main.status
        if own == "idle" and any(thread.status == "running" for thread in self.threads.values()):
            return "running"
        return own

    def call(self, call_id: str) -> tuple[str, UnansweredCall] | None:
        """The call and the id of its thread, if the call is open."""
        for thread in self.threads.values():
            if call := thread.calls.get(call_id):
                return thread.id, call
        return None


_Handler: TypeAlias = Callable[[SessionDigest, Event, Any], SessionDigest]


def fold(digest: SessionDigest, event: Event) -> SessionDigest:
    """The digest after one more event. Only events of `DIGEST_TYPES` matter."""
    if event.seq <= digest.seq:
        return digest
    digest = replace(
        digest,
        seq=event.seq,
        updated_at=event.time,
        spent=limits.fold(digest.spent, event.payload, event.time),
    )
    handler = _HANDLERS.get(type(event.payload))
    return digest if handler is None else handler(digest, event, event.payload)


def _with_thread(
    digest: SessionDigest, thread_id: str, event: Event, **changes: object
) -> SessionDigest:
    thread = digest.threads.get(thread_id) or ThreadDigest(
        id=thread_id, agent_name=None, created_at=event.time, updated_at=event.time
    )
    thread = replace(thread, updated_at=event.time, **changes)
    return replace(digest, threads=MappingProxyType({**digest.threads, thread_id: thread}))


def _calls(digest: SessionDigest, thread_id: str) -> dict[str, UnansweredCall]:
    thread = digest.threads.get(thread_id)
    return {} if thread is None else dict(thread.calls)


def _created(digest: SessionDigest, event: Event, payload: facts.SessionCreated) -> SessionDigest:
    digest = replace(digest, main_thread_id=event.thread_id)
    return _with_thread(digest, event.thread_id, event, agent_name=payload.agent_name)


def _forked(digest: SessionDigest, event: Event, _payload: facts.SessionForked) -> SessionDigest:
    """What was running belongs to the parent."""
    for thread in digest.threads.values():
        if thread.status != "terminated":
            digest = _thread_status(digest, event, thread.id, "idle")
    return digest


def _thread_status(
    digest: SessionDigest, event: Event, thread_id: str, status: SessionStatus
) -> SessionDigest:
    thread = digest.threads.get(thread_id)
    is_running = status == "running"
    since = None if thread is None else thread.running_since
    before = 0.0 if thread is None else thread.active_seconds(event.time)
    if is_running:
        before = 0.0 if thread is None else thread.seconds_before
    return _with_thread(
        digest,
        thread_id,
        event,
        status=status,
        has_begun=True,
        has_idled=status == "idle" or (thread is not None and thread.has_idled),
        seconds_before=before,
        running_since=(since or event.time) if is_running else None,
    )


def _running(digest: SessionDigest, event: Event, _payload: events.StatusRunning) -> SessionDigest:
    outcomes = tuple(
        replace(outcome, result="running") if outcome.result == "pending" else outcome
        for outcome in digest.outcomes
    )
    digest = replace(digest, outcomes=outcomes)
    return _thread_status(digest, event, event.thread_id, "running")


def _awaiting(
    digest: SessionDigest, event: Event, thread_id: str, reason: events.StopReason
) -> SessionDigest:
    """Only the calls that the thread waits for are open. Calls of its subagents, which it waits
    for too, are recorded with the subagents."""
    calls = _calls(digest, thread_id)
    others = [thread.calls for thread in digest.threads.values() if thread.id != thread_id]
    own = [
        id_ for id_ in reason.event_ids if not any(id_ in others_calls for others_calls in others)
    ]
    waiting = {
        id_: _awaiting_call(calls.get(id_, UnansweredCall("tool")), event.seq) for id_ in own
    }
    return _with_thread(digest, thread_id, event, calls=MappingProxyType(waiting))


def _awaiting_call(call: UnansweredCall, seq: int) -> UnansweredCall:
    if call.kind == "custom" or call.is_handed_over:  # the client answers it
        return call
    return replace(call, asked=call.asked or seq)


def _status_handler(status: SessionStatus) -> _Handler:
    def apply(digest: SessionDigest, event: Event, payload: Any) -> SessionDigest:  # noqa: ANN401 (one of seven)
        thread_id = getattr(payload, "session_thread_id", event.thread_id)
        digest = _thread_status(digest, event, thread_id, status)
        if isinstance(payload, events.StatusIdle | events.ThreadStatusIdle):
            digest = _awaiting(digest, event, thread_id, payload.stop_reason)
        return digest

    return apply


def _thread_created(
    digest: SessionDigest, event: Event, payload: events.ThreadCreated
) -> SessionDigest:
    return _with_thread(
        digest,
        payload.session_thread_id,
        event,
        agent_name=payload.agent_name,
        created_at=event.time,
        parent_id=payload.parent_thread_id or event.thread_id,
        workflow_run_id=payload.workflow_run_id,
    )


def _request_started(
    digest: SessionDigest, event: Event, payload: events.ModelRequestStarted
) -> SessionDigest:
    if payload.purpose is not None:
        return digest
    return _with_thread(digest, event.thread_id, event, calls=_NO_CALLS)  # a new round


def _request_ended(
    digest: SessionDigest, event: Event, payload: events.ModelRequestEnded
) -> SessionDigest:
    digest = replace(digest, usage=add_usage(digest.usage, payload.model_usage))
    thread = digest.threads.get(event.thread_id)
    usage = Usage() if thread is None else thread.usage
    cost = Decimal(0) if thread is None else thread.cost_usd
    return _with_thread(
        digest,
        event.thread_id,
        event,
        usage=add_usage(usage, payload.model_usage),
        cost_usd=cost + Decimal(payload.cost_usd or 0),
    )


def _with_call(
    digest: SessionDigest, event: Event, call_id: str, call: UnansweredCall
) -> SessionDigest:
    calls = _calls(digest, event.thread_id) | {call_id: call}
    return _with_thread(digest, event.thread_id, event, calls=MappingProxyType(calls))


def _call_made(digest: SessionDigest, event: Event, payload: AnyPayload) -> SessionDigest:
    kind: CallKind = "custom" if isinstance(payload, events.AgentCustomToolUse) else "tool"
    return _with_call(digest, event, event.id, UnansweredCall(kind))


def _call_authorized(
    digest: SessionDigest, event: Event, payload: facts.ToolCallAuthorized
) -> SessionDigest:
    call = _calls(digest, event.thread_id).get(payload.tool_use_id)
    if call is None or call.kind == "custom":
        return digest
    call = UnansweredCall(call.kind, asked=event.seq if payload.decision == "ask" else 0)
    return _with_call(digest, event, payload.tool_use_id, call)


def _started(digest: SessionDigest, event: Event, payload: facts.ToolCallStarted) -> SessionDigest:
    call = _calls(digest, event.thread_id).get(payload.tool_use_id)
    if call is None:
        return digest
    begun = UnansweredCall(
        call.kind, is_handed_over=payload.by_client, is_ours=not payload.by_client
    )
    return _with_call(digest, event, payload.tool_use_id, begun)


def _confirmed(
    digest: SessionDigest, event: Event, payload: events.UserToolConfirmation
) -> SessionDigest:
    call_id = payload.tool_use_id
    call = _calls(digest, event.thread_id).get(call_id)
    return digest if call is None else _with_call(digest, event, call_id, UnansweredCall(call.kind))


def _call_returned(digest: SessionDigest, event: Event, payload: AnyPayload) -> SessionDigest:
    calls = _calls(digest, event.thread_id)
    calls.pop(result_of(payload) or "", None)
    return _with_thread(digest, event.thread_id, event, calls=MappingProxyType(calls))


def _outcome_defined(
    digest: SessionDigest, event: Event, payload: events.UserDefineOutcome
) -> SessionDigest:
    outcome = Outcome(
        id=outcome_id(event.id, payload),
        description=payload.description,
        result="running" if digest.status == "running" else "pending",
    )
    return replace(digest, outcomes=(*digest.outcomes, outcome))


def _with_outcome(digest: SessionDigest, id_: str, **changes: object) -> SessionDigest:
    outcomes = tuple(
        replace(outcome, **changes) if outcome.id == id_ else outcome for outcome in digest.outcomes
    )
    return replace(digest, outcomes=outcomes)


def _evaluating(
    digest: SessionDigest, _event: Event, payload: events.OutcomeEvaluationStarted
) -> SessionDigest:
    return _with_outcome(
        digest, payload.outcome_id, result="evaluating", iteration=payload.iteration
    )


def _evaluated(
    digest: SessionDigest, event: Event, payload: events.OutcomeEvaluationEnded
) -> SessionDigest:
    is_final = payload.result != "needs_revision"
    return _with_outcome(
        digest,
        payload.outcome_id,
        result=payload.result if is_final else "running",
        iteration=payload.iteration,
        explanation=payload.explanation,
        completed_at=event.time if is_final else None,
    )


_HANDLERS: dict[type[AnyPayload], _Handler] = {
    facts.SessionCreated: _created,
    facts.SessionForked: _forked,
    facts.ToolCallAuthorized: _call_authorized,
    facts.ToolCallStarted: _started,
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
    events.UserToolConfirmation: _confirmed,
    events.UserCustomToolResult: _call_returned,
    events.UserToolResult: _call_returned,
    events.UserDefineOutcome: _outcome_defined,
    events.OutcomeEvaluationStarted: _evaluating,
    events.OutcomeEvaluationEnded: _evaluated,
}
_LIMIT_TYPES = (facts.SessionWoken, facts.BudgetReserved, facts.BudgetSettled)
DIGEST_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in (*_HANDLERS, *_LIMIT_TYPES))
"""The types of events that a digest is folded from."""


class Digests:
    """Digests of recently used sessions, each continued from where it was last read."""

    def __init__(self, log: SessionLog, *, max_cached: int = 2000) -> None:
        self._log = log
        self._digests: LruCache[str, SessionDigest] = LruCache(max_cached)

    async def of(self, session: SessionRow) -> SessionDigest:
        """Raises: SessionNotFound: it was deleted in the meantime."""
        digest = self._digests.get(session.id) or SessionDigest()
        if digest.seq < session.head.seq:
            for event in await self._log.read(session.id, after=digest.seq, types=DIGEST_TYPES):
                digest = fold(digest, event)
            digest = replace(digest, seq=max(digest.seq, session.head.seq))
        cached = self._digests.get(session.id)
        if cached is None or cached.seq < digest.seq:  # another task may have read further
            self._digests.put(session.id, digest)
        return digest

    def forget(self, session_id: str) -> None:
        self._digests.pop(session_id)
