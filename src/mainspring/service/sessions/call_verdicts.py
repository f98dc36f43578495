"""What became of calls, as clients must know it before they see one: a client with hands of its
own does at once what it is shown as allowed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from mainspring.core import events, facts
from mainspring.core.envelope import AnyPayload, Event
from mainspring.log.event_chain import to_event
from mainspring.log.session_log import ENDLESS, SessionLog
from mainspring.log.store import EventRange, SessionRow

CALLS = (events.AgentToolUse, events.AgentMcpToolUse)
_CALL_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in CALLS)
_LOOKAHEAD = 16
_TAIL_EVENTS = 200
"""Of a log's events, those among which a call may be that still waits for a gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallVerdict:
    """Of one call."""

    seq: int
    thread_id: str
    said: events.Permission | None = None
    """By a gate, when it first looked."""
    input: Mapping[str, object] | None = None
    """What a gate has made of it, if it did."""
    is_handed: bool = False
    """To the client."""
    has_run: bool = False
    """Here."""
    is_closed: bool = False
    """Nothing more comes of it."""
    is_answered: bool = False
    """By a person, with a yes or a no."""
    is_refused: bool = False
    """It has a result that is not of doing it."""
    has_rested: bool = False
    """Its thread has gone idle since: whoever looks must not wait for a word."""

    @property
    def is_visible(self) -> bool:
        """Whether the call may be shown."""
        return self.said is not None or self.has_run or self.is_closed or self.has_rested

    @property
    def visible_permission(self) -> events.Permission:
        """What the client is told: never that it may do what is not, or no longer, to be done."""
        if self.is_refused and (self.is_handed or not self.is_answered):
            return "deny"
        return self.said or ("allow" if self.has_run else "ask")

    @property
    def is_for_clients(self) -> bool:
        """Whether somebody outside has to do something about it, whichever thread it is of."""
        return self.said == "ask" or self.is_handed


CallVerdicts = Mapping[str, CallVerdict]
_VerdictsById = dict[str, CallVerdict]


async def read_verdicts(log: SessionLog, session_id: str, found: Iterable[Event]) -> CallVerdicts:
    """Of the calls among these events, by their ids, as far as the log has come."""
    verdicts: _VerdictsById = {
        event.id: CallVerdict(
            seq=event.seq,
            thread_id=event.thread_id,
            said=event.payload.evaluated_permission,
        )
        for event in found
        if isinstance(event.payload, CALLS)
    }
    await _apply_events(log, session_id, verdicts, _DECISIONS, lambda verdict: verdict.has_run)
    # results may be long, so they are only read for calls that were not done here
    rest = {
        id_: replace(each, is_closed=False) for id_, each in verdicts.items() if not each.has_run
    }
    await _apply_events(log, session_id, rest, _RESULTS, lambda verdict: verdict.is_closed)
    return verdicts | rest


async def visible_log_end(log: SessionLog, session: SessionRow) -> int:
    """The last event that may be shown by now: before a call that no gate has spoken on yet."""
    head = session.head.seq
    newest = EventRange(
        session_id=session.id,
        after=max(0, head - _TAIL_EVENTS),
        upto=ENDLESS,
        types=_CALL_TYPES,
        limit=_TAIL_EVENTS,
    )
    rows = await log.store.read(newest)
    verdicts = await read_verdicts(log, session.id, [to_event(session.id, row) for row in rows])
    return min((item.seq - 1 for item in verdicts.values() if not item.is_visible), default=head)


async def _apply_events(
    log: SessionLog,
    session_id: str,
    verdicts: _VerdictsById,
    kinds: Mapping[type[AnyPayload], Callable[[_VerdictsById, Event, Any], None]],
    is_enough: Callable[[CallVerdict], bool],
) -> None:
    if not verdicts:
        return
    after = min(verdict.seq for verdict in verdicts.values())
    types = [str(kind.__struct_config__.tag) for kind in kinds]
    soon = _events_after(log, session_id, after, types, size=4 * len(verdicts) + _LOOKAHEAD)
    undecided = dict(sorted(verdicts.items(), key=lambda item: item[1].seq))
    async with aclosing(soon) as later:
        async for event in later:
            if not undecided:
                return
            if handler := kinds.get(type(event.payload)):
                handler(undecided, event, event.payload)
                _remove_decided(undecided, verdicts, event.seq, is_enough)
    verdicts.update(undecided)


def _remove_decided(
    undecided: _VerdictsById,
    verdicts: _VerdictsById,
    upto: int,
    is_enough: Callable[[CallVerdict], bool],
) -> None:
    """Calls of which enough is known now. Only those before an event can have changed by it, so
    that the price of a page does not grow with the square of its calls."""
    decided: list[str] = []
    for id_, verdict in undecided.items():
        if verdict.seq >= upto:
            break
        if is_enough(verdict) or verdict.is_closed:
            decided.append(id_)
    for id_ in decided:
        verdicts[id_] = undecided.pop(id_)


async def _events_after(
    log: SessionLog, session_id: str, after: int, types: list[str], *, size: int
) -> AsyncGenerator[Event, None]:
    while True:
        page = await log.read(session_id, after=after, types=types, limit=size)
        for event in page:
            yield event
        if len(page) < size:
            return
        after, size = page[-1].seq, 2 * size


def _authorized(verdicts: _VerdictsById, _event: Event, payload: facts.ToolCallAuthorized) -> None:
    verdict = verdicts.get(payload.tool_use_id)
    if verdict is not None and verdict.said is None:
        verdicts[payload.tool_use_id] = replace(
            verdict, said=payload.decision, input=payload.updated_input
        )


def _started(verdicts: _VerdictsById, _event: Event, payload: facts.ToolCallStarted) -> None:
    if verdict := verdicts.get(payload.tool_use_id):
        is_handed = payload.by_client
        verdicts[payload.tool_use_id] = replace(verdict, is_handed=is_handed, has_run=not is_handed)


def _refused(verdicts: _VerdictsById, id_: str) -> None:
    verdict = verdicts.get(id_)
    if verdict is not None and not verdict.is_closed:
        verdicts[id_] = replace(verdict, is_closed=True, is_refused=True)


def _result(verdicts: _VerdictsById, _event: Event, payload: events.AgentToolResult) -> None:
    _refused(verdicts, payload.tool_use_id)


def _mcp_result(verdicts: _VerdictsById, _event: Event, payload: events.AgentMcpToolResult) -> None:
    _refused(verdicts, payload.mcp_tool_use_id)


def _client_result(verdicts: _VerdictsById, _event: Event, payload: events.UserToolResult) -> None:
    verdict = verdicts.get(payload.tool_use_id)
    if verdict is not None and verdict.is_handed:
        verdicts[payload.tool_use_id] = replace(verdict, is_closed=True)


def _confirmed(
    verdicts: _VerdictsById, _event: Event, payload: events.UserToolConfirmation
) -> None:
    if verdict := verdicts.get(payload.tool_use_id):
        verdicts[payload.tool_use_id] = replace(verdict, is_answered=True)


def _next_request(
    verdicts: _VerdictsById, event: Event, payload: events.ModelRequestStarted
) -> None:
    """All calls before it have their results."""
    if payload.purpose is None:
        _update_thread_calls(verdicts, event, event.thread_id, is_closed=True)


def _session_idle(verdicts: _VerdictsById, event: Event, _payload: AnyPayload) -> None:
    _update_thread_calls(verdicts, event, event.thread_id, has_rested=True)


def _thread_idle(
    verdicts: _VerdictsById,
    event: Event,
    payload: events.ThreadStatusIdle | events.ThreadStatusTerminated,
) -> None:
    _update_thread_calls(verdicts, event, payload.session_thread_id, has_rested=True)


def _forked(
    verdicts: _VerdictsById, event: Event, _payload: facts.SessionForked | facts.SessionReceived
) -> None:
    """What was under way is the parent's."""
    for verdict in tuple(verdicts.values()):
        _update_thread_calls(verdicts, event, verdict.thread_id, has_rested=True)


def _update_thread_calls(
    verdicts: _VerdictsById, event: Event, thread_id: str, **changes: bool
) -> None:
    for id_, verdict in verdicts.items():
        if verdict.seq >= event.seq:
            return  # calls are in the order of the log
        if verdict.thread_id == thread_id:
            verdicts[id_] = replace(verdict, **changes)


_DECISIONS: dict[type[AnyPayload], Callable[[_VerdictsById, Event, Any], None]] = {
    facts.ToolCallAuthorized: _authorized,
    facts.ToolCallStarted: _started,
    events.ModelRequestStarted: _next_request,
}
_RESULTS: dict[type[AnyPayload], Callable[[_VerdictsById, Event, Any], None]] = {
    events.AgentToolResult: _result,
    events.AgentMcpToolResult: _mcp_result,
    events.UserToolResult: _client_result,
    events.UserToolConfirmation: _confirmed,
    events.ModelRequestStarted: _next_request,
    events.StatusIdle: _session_idle,
    events.StatusTerminated: _session_idle,
    events.ThreadStatusIdle: _thread_idle,
    events.ThreadStatusTerminated: _thread_idle,
    facts.SessionForked: _forked,
    facts.SessionReceived: _forked,
}
