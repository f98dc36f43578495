"""The verdict on a call. It must be known before a client sees the call: a client that runs tools
itself runs a call as soon as it is shown as allowed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import events
from mainspring.core.envelope import AnyPayload, Event, event_types
from mainspring.harness.state.open_call import call_id_of
from mainspring.log.event_chain import to_event
from mainspring.log.session_log import ENDLESS, SessionLog
from mainspring.log.store import EventRange, SessionRow

CALLS = (events.AgentToolUse, events.AgentMcpToolUse)
_LOOKAHEAD = 16  # events read beyond four for each call
_TAIL_EVENTS = 200
"""The last events of a log, among which a call may still wait for a decision."""


class CallVerdict(Struct, frozen=True, kw_only=True):
    """A struct for speed: a page replaces the verdict of each of its calls several times."""

    seq: int
    thread_id: str
    said: events.Permission | None = None
    """The first decision about the call."""
    input: Mapping[str, object] | None = None
    """The input, if a hook or the authorizer changed it."""
    is_handed: bool = False
    """Whether the client runs the call."""
    has_run: bool = False
    """Whether the service ran the call."""
    is_closed: bool = False
    """Whether the call has a result."""
    is_answered: bool = False
    """Whether a person has approved or denied the call."""
    is_refused: bool = False
    """Whether the call has a result without having been run."""
    has_rested: bool = False
    """Whether its thread has gone idle since: readers must not wait for a decision."""

    @property
    def is_visible(self) -> bool:
        """Whether the call may be shown."""
        return self.said is not None or self.has_run or self.is_closed or self.has_rested

    @property
    def visible_permission(self) -> events.Permission:
        """The permission shown to the client: never `allow` if the call must not, or no longer, be
        run."""
        if self.is_refused and (self.is_handed or not self.is_answered):
            return "deny"
        return self.said or ("allow" if self.has_run else "ask")

    @property
    def is_for_clients(self) -> bool:
        """Whether a client has to answer or run the call, whichever thread it is in."""
        return self.said == "ask" or self.is_handed


CallVerdicts = Mapping[str, CallVerdict]
_VerdictsById = dict[str, CallVerdict]


async def read_verdicts(log: SessionLog, session_id: str, events_: Iterable[Event]) -> CallVerdicts:
    """The verdicts on the calls among these events, by their ids."""
    verdicts: _VerdictsById = {
        event.id: CallVerdict(
            seq=event.seq, thread_id=event.thread_id, said=event.payload.evaluated_permission
        )
        for event in events_
        if isinstance(event.payload, CALLS)
    }
    await _apply_events(log, session_id, verdicts, _DECISIONS, lambda verdict: verdict.has_run)
    # results may be long, so they are only read for calls that did not run here
    undecided = {
        id_: replace(verdict, is_closed=False)
        for id_, verdict in verdicts.items()
        if not verdict.has_run
    }
    await _apply_events(log, session_id, undecided, _RESULTS, lambda verdict: verdict.is_closed)
    return verdicts | undecided


async def visible_log_end(log: SessionLog, session: SessionRow) -> int:
    """The last event that may be shown now: the one before the first call without a decision."""
    head = session.head.seq
    newest = EventRange(
        session_id=session.id,
        after=max(0, head - _TAIL_EVENTS),
        upto=ENDLESS,
        types=event_types(*CALLS),
        limit=_TAIL_EVENTS,
    )
    rows = await log.store.read(newest)
    verdicts = await read_verdicts(log, session.id, [to_event(session.id, row) for row in rows])
    return min((item.seq - 1 for item in verdicts.values() if not item.is_visible), default=head)


async def _apply_events(
    log: SessionLog,
    session_id: str,
    verdicts: _VerdictsById,
    types: frozenset[str],
    is_enough: Callable[[CallVerdict], bool],
) -> None:
    if not verdicts:
        return
    after = min(verdict.seq for verdict in verdicts.values())
    pages = _events_after(log, session_id, after, types, size=4 * len(verdicts) + _LOOKAHEAD)
    undecided = dict(sorted(verdicts.items(), key=lambda item: item[1].seq))
    async with aclosing(pages) as later:
        async for event in later:
            if not undecided:
                return
            _apply_event(undecided, event)
            _remove_decided(undecided, verdicts, event.seq, is_enough)
    verdicts.update(undecided)


def _remove_decided(
    undecided: _VerdictsById,
    verdicts: _VerdictsById,
    upto: int,
    is_enough: Callable[[CallVerdict], bool],
) -> None:
    """Move decided calls from `undecided` to `verdicts`. An event changes only calls before it, so
    the others are skipped: else the cost would grow with the square of the number of calls."""
    decided: list[str] = []
    for id_, verdict in undecided.items():
        if verdict.seq >= upto:
            break
        if is_enough(verdict) or verdict.is_closed:
            decided.append(id_)
    for id_ in decided:
        verdicts[id_] = undecided.pop(id_)


async def _events_after(
    log: SessionLog, session_id: str, after: int, types: frozenset[str], *, size: int
) -> AsyncGenerator[Event, None]:
    while True:
        page = await log.read(session_id, after=after, types=types, limit=size)
        for event in page:
            yield event
        if len(page) < size:
            return
        after, size = page[-1].seq, 2 * size


def _apply_event(verdicts: _VerdictsById, event: Event) -> None:
    if (call_id := call_id_of(event.payload)) is not None:
        if verdict := verdicts.get(call_id):
            verdicts[call_id] = _after_call_event(verdict, event.payload)
        return
    thread_id = getattr(event.payload, "session_thread_id", event.thread_id)
    change = {"has_rested": True}
    if isinstance(event.payload, events.ModelRequestStarted):
        if event.payload.purpose is not None:
            return
        change = {"is_closed": True}  # all calls before the next request have their results
    # calls in progress when a session was forked or moved belong to the parent
    is_for_all = isinstance(event.payload, events.SessionForked | events.SessionReceived)
    for id_, verdict in verdicts.items():
        if verdict.seq >= event.seq:
            return  # calls are in the order of the log
        if is_for_all or verdict.thread_id == thread_id:
            verdicts[id_] = replace(verdict, **change)


def _after_call_event(verdict: CallVerdict, payload: AnyPayload) -> CallVerdict:
    match payload:
        case events.ToolCallAuthorized(decision=decision, updated_input=input_):
            is_first = verdict.said is None
            return replace(verdict, said=decision, input=input_) if is_first else verdict
        case events.ToolCallStarted(by_client=is_handed):
            return replace(verdict, is_handed=is_handed, has_run=not is_handed)
        case events.UserToolConfirmation():
            return replace(verdict, is_answered=True)
        case events.AgentToolResult() | events.AgentMcpToolResult() if not verdict.is_closed:
            return replace(verdict, is_closed=True, is_refused=True)
        case events.UserToolResult() if verdict.is_handed:
            return replace(verdict, is_closed=True)
        case _:
            return verdict


_DECISIONS = event_types(
    events.ToolCallAuthorized, events.ToolCallStarted, events.ModelRequestStarted
)
_RESULTS = event_types(
    events.AgentToolResult,
    events.AgentMcpToolResult,
    events.UserToolResult,
    events.UserToolConfirmation,
    events.ModelRequestStarted,
    events.StatusIdle,
    events.StatusTerminated,
    events.ThreadStatusIdle,
    events.ThreadStatusTerminated,
    events.SessionForked,
    events.SessionReceived,
)
