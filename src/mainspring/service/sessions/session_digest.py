"""What a session has come to, folded from its log: status, usage, threads, outcomes, open calls.

Any prefix of a log folds to a valid digest, and folding on from one is the same as folding all.
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
from mainspring.service.sessions.wire_events import outcome_id

SessionStatus: TypeAlias = Literal["rescheduling", "running", "idle", "terminated"]
CallKind: TypeAlias = Literal["tool", "custom"]


class UnansweredCall(Struct, frozen=True):
    """A tool call of a thread's newest round that no client has answered yet."""

    kind: CallKind
    asked: int = 0
    """Where in the log somebody was asked to say yes or no; 0: nobody is."""
    is_handed_over: bool = False
    """The client does it, and gives its result."""
    is_ours: bool = False
    """It was begun by the worker that runs the session."""

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
        """The main thread's; but as long as any thread runs, the session does."""
        main = self.threads.get(self.main_thread_id)
        own: SessionStatus = "idle" if main is None else main.status
        if own == "idle" and any(thread.status == "running" for thread in self.threads.values()):
            return "running"
        return own

    def call(self, call_id: str) -> tuple[str, UnansweredCall] | None:
        """The thread that a call is of, and the call, if it is open."""
        for thread in self.threads.values():
            if call := thread.calls.get(call_id):
                return thread.id, call
        return None


def fold(digest: SessionDigest, event: Event) -> SessionDigest:
    """The digest after one more event; events that say nothing to it may be left out."""
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
    known = digest.threads.get(thread_id) or ThreadDigest(
        id=thread_id, agent_name=None, created_at=event.time, updated_at=event.time
    )
    thread = replace(known, updated_at=event.time, **changes)
    return replace(digest, threads=MappingProxyType({**digest.threads, thread_id: thread}))


def _calls(digest: SessionDigest, thread_id: str) -> dict[str, UnansweredCall]:
    thread = digest.threads.get(thread_id)
    return {} if thread is None else dict(thread.calls)


def _created(digest: SessionDigest, event: Event, payload: facts.SessionCreated) -> SessionDigest:
    digest = replace(digest, main_thread_id=event.thread_id)
    return _with_thread(digest, event.thread_id, event, agent_name=payload.agent_name)


def _forked(digest: SessionDigest, event: Event, _payload: facts.SessionForked) -> SessionDigest:
    """What was under way is the parent's."""
    for thread in digest.threads.values():
        if thread.status != "terminated":
            digest = _thread_status(digest, event, thread.id, "idle")
    return digest


def _thread_status(
    digest: SessionDigest, event: Event, thread_id: str, session_status: SessionStatus
) -> SessionDigest:
    thread = digest.threads.get(thread_id)
    is_running = session_status == "running"
    since = None if thread is None else thread.running_since
    before = 0.0 if thread is None else thread.active_seconds(event.time)
    if is_running:
        before = 0.0 if thread is None else thread.seconds_before
    return _with_thread(
        digest,
        thread_id,
        event,
        status=session_status,
        has_begun=True,
        has_idled=session_status == "idle" or (thread is not None and thread.has_idled),
        seconds_before=before,
        running_since=(since or event.time) if is_running else None,
    )


def _running(digest: SessionDigest, event: Event, _payload: events.StatusRunning) -> SessionDigest:
    begun = tuple(
        replace(outcome, result="running") if outcome.result == "pending" else outcome
        for outcome in digest.outcomes
    )
    digest = replace(digest, outcomes=begun)
    return _thread_status(digest, event, event.thread_id, "running")


def _idle(digest: SessionDigest, event: Event, payload: events.StatusIdle) -> SessionDigest:
    digest = _thread_status(digest, event, event.thread_id, "idle")
    return _awaiting(digest, event, event.thread_id, payload.stop_reason)


def _awaiting(
    digest: SessionDigest, event: Event, thread_id: str, reason: events.StopReason
) -> SessionDigest:
    """Of all calls, those are open that the thread says it waits for; what it says for others that
    it has called, those have said themselves."""
    known = _calls(digest, thread_id)
    others = [thread.calls for thread in digest.threads.values() if thread.id != thread_id]
    own = [id_ for id_ in reason.event_ids if not any(id_ in calls for calls in others)]
    waiting = {
        id_: _awaiting_call(known.get(id_, UnansweredCall("tool")), event.seq) for id_ in own
    }
    return _with_thread(digest, thread_id, event, calls=MappingProxyType(waiting))


def _awaiting_call(unanswered_call: UnansweredCall, seq: int) -> UnansweredCall:
    is_clients = unanswered_call.kind == "custom" or unanswered_call.is_handed_over
    return (
        unanswered_call
        if is_clients
        else replace(unanswered_call, asked=unanswered_call.asked or seq)
    )


def _session_status_handler(
    session_status: SessionStatus,
) -> Callable[[SessionDigest, Event, Any], SessionDigest]:
    return lambda digest, event, _payload: _thread_status(
        digest, event, event.thread_id, session_status
    )


def _thread_created(
    digest: SessionDigest, event: Event, made: events.ThreadCreated
) -> SessionDigest:
    return _with_thread(
        digest,
        made.session_thread_id,
        event,
        agent_name=made.agent_name,
        created_at=event.time,
        parent_id=made.parent_thread_id or event.thread_id,
        workflow_run_id=made.workflow_run_id,
    )


def _thread_status_handler(
    session_status: SessionStatus,
) -> Callable[[SessionDigest, Event, Any], SessionDigest]:
    def apply(digest: SessionDigest, event: Event, payload: Any) -> SessionDigest:  # noqa: ANN401 (one of four)
        digest = _thread_status(digest, event, payload.session_thread_id, session_status)
        if isinstance(payload, events.ThreadStatusIdle):
            digest = _awaiting(digest, event, payload.session_thread_id, payload.stop_reason)
        return digest

    return apply


def _request_started(
    digest: SessionDigest, event: Event, asked: events.ModelRequestStarted
) -> SessionDigest:
    if asked.purpose is not None:
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
    digest: SessionDigest, event: Event, call_id: str, unanswered_call: UnansweredCall
) -> SessionDigest:
    calls = _calls(digest, event.thread_id) | {call_id: unanswered_call}
    return _with_thread(digest, event.thread_id, event, calls=MappingProxyType(calls))


def _call_made(digest: SessionDigest, event: Event, payload: AnyPayload) -> SessionDigest:
    kind: CallKind = "custom" if isinstance(payload, events.AgentCustomToolUse) else "tool"
    return _with_call(digest, event, event.id, UnansweredCall(kind))


def _call_authorized(
    digest: SessionDigest, event: Event, said: facts.ToolCallAuthorized
) -> SessionDigest:
    call = _calls(digest, event.thread_id).get(said.tool_use_id)
    if call is None or call.kind == "custom":
        return digest
    call = UnansweredCall(call.kind, asked=event.seq if said.decision == "ask" else 0)
    return _with_call(digest, event, said.tool_use_id, call)


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


def result_of(payload: AnyPayload) -> str | None:
    """The call that a client gives the result of."""
    match payload:
        case events.UserCustomToolResult(custom_tool_use_id=call_id):
            return call_id
        case events.UserToolResult(tool_use_id=call_id):
            return call_id
        case _:
            return None


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
    changed = tuple(
        replace(outcome, **changes) if outcome.id == id_ else outcome for outcome in digest.outcomes
    )
    return replace(digest, outcomes=changed)


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


def _unchanged(digest: SessionDigest, _event: Event, _payload: AnyPayload) -> SessionDigest:
    return digest  # but for what `limits.fold` makes of it


_HANDLERS: dict[type[AnyPayload], Callable[[SessionDigest, Event, Any], SessionDigest]] = {
    facts.SessionCreated: _created,
    facts.SessionForked: _forked,
    facts.SessionWoken: _unchanged,
    facts.BudgetReserved: _unchanged,
    facts.BudgetSettled: _unchanged,
    facts.ToolCallAuthorized: _call_authorized,
    facts.ToolCallStarted: _started,
    events.StatusRunning: _running,
    events.StatusIdle: _idle,
    events.StatusRescheduled: _session_status_handler("rescheduling"),
    events.StatusTerminated: _session_status_handler("terminated"),
    events.ThreadCreated: _thread_created,
    events.ThreadStatusRunning: _thread_status_handler("running"),
    events.ThreadStatusIdle: _thread_status_handler("idle"),
    events.ThreadStatusRescheduled: _thread_status_handler("rescheduling"),
    events.ThreadStatusTerminated: _thread_status_handler("terminated"),
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
DIGEST_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in _HANDLERS)
"""All that a digest is made of."""


class Digests:
    """Digests of the sessions that were looked at last; a session is only ever read on."""

    def __init__(self, log: SessionLog, *, kept: int = 2000) -> None:
        self._log = log
        self._digests: LruCache[str, SessionDigest] = LruCache(kept)

    async def of(self, session: SessionRow) -> SessionDigest:
        """Raises: SessionNotFound: it was deleted meanwhile."""
        digest = self._digests.get(session.id) or SessionDigest()
        if digest.seq < session.head.seq:
            for event in await self._log.read(session.id, after=digest.seq, types=DIGEST_TYPES):
                digest = fold(digest, event)
            digest = replace(digest, seq=max(digest.seq, session.head.seq))
        known = self._digests.get(session.id)
        if known is None or known.seq < digest.seq:  # others may have read on meanwhile
            self._digests.put(session.id, digest)
        return digest

    def forget(self, session_id: str) -> None:
        self._digests.pop(session_id)
