"""What of a session's log is about approvals: which calls wait for a person, and what became of
those that did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from mainspring.core import events, facts
from mainspring.core.clock import from_micros
from mainspring.core.envelope import Event
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem
from mainspring.service.approvals.answering import pending_answers
from mainspring.service.sessions.digest import Digests
from mainspring.service.sessions.record import SessionRecord

_USES = (events.AgentToolUse, events.AgentMcpToolUse)
_TOLD_BY = tuple(
    str(kind.__struct_config__.tag)
    for kind in (*_USES, facts.ToolCallAuthorized, facts.ToolCallInDoubt)
)
_CONFIRMATION = str(events.UserToolConfirmation.__struct_config__.tag)
IN_DOUBT = "it was begun, and whether it took effect is not known: may it be done again?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A call that waits for a person, and where in the log they were asked."""

    call_id: str
    thread_id: str
    asked: int
    subagent: str | None = None
    """Whose thread it is, if it is not the main one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An answer."""

    confirmation: events.UserToolConfirmation
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """A session at one moment, as far as approvals go."""

    head: int
    askings: tuple[Asking, ...]
    """Those that nobody has answered yet."""
    pending: Mapping[str, tuple[InboxItem, events.UserToolConfirmation]]
    """Answers by call that are not in the log yet."""


async def glance(log: SessionLog, digests: Digests, session: SessionRecord) -> Glance:
    """Raises: SessionNotFound."""
    pending = await pending_answers(log, session.id)  # first: what leaves it then is in the log
    row = await log.session(session.id)
    digest = await digests.of(row)
    is_open = session.archived_at is None and digest.status != "terminated"
    askings = (
        Asking(
            call_id=call_id,
            thread_id=thread.id,
            asked=call.asked,
            subagent=None if thread.id == row.thread_id else thread.agent_name,
        )
        for thread in digest.threads.values()
        for call_id, call in thread.calls.items()
        # what a fork has inherited its parent was asked; it will be asked itself once it runs
        if is_open and call.asked > row.parent_seq and call_id not in pending
    )
    return Glance(head=digest.seq, askings=tuple(askings), pending=pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a person is asked about."""

    name: str = ""
    input: Mapping[str, object]
    preview: str | None = None
    reason: str | None = None
    at: datetime


async def questions(
    log: SessionLog, session_id: str, call_ids: Iterable[str]
) -> dict[str, Question]:
    """By call. Raises: SessionNotFound."""
    wanted = frozenset(call_ids)
    found: dict[str, Question] = {}
    for event in await log.read(session_id, types=_TOLD_BY):
        _take(found, wanted, event)
    return found


def _take(found: dict[str, Question], wanted: frozenset[str], event: Event) -> None:
    match event.payload:
        case events.AgentToolUse() | events.AgentMcpToolUse() as use if event.id in wanted:
            found[event.id] = Question(name=use.name, input=use.input, at=event.time)
        case facts.ToolCallAuthorized(tool_use_id=call_id, decision="ask") as said:
            if known := found.get(call_id):
                changed = said.updated_input
                found[call_id] = replace(
                    known,
                    input=known.input if changed is None else changed,
                    preview=said.preview,
                    reason=said.reason,
                    at=event.time,
                )
        case facts.ToolCallInDoubt(tool_use_id=call_id, policy="ask"):
            if known := found.get(call_id):
                found[call_id] = replace(known, reason=IN_DOUBT, at=event.time)
        case _:
            pass


async def answer_to(
    log: SessionLog, session_id: str, call_id: str, asked: int, seen: Glance
) -> Given | None:
    """The answer that was given to what was asked there, if one was. Raises: SessionNotFound."""
    for event in await log.read(session_id, after=asked, types=[_CONFIRMATION]):
        said = event.payload
        if isinstance(said, events.UserToolConfirmation) and said.tool_use_id == call_id:
            return Given(confirmation=said, at=event.time)
    if call_id in seen.pending:
        item, said = seen.pending[call_id]
        return Given(confirmation=said, at=from_micros(item.time))
    return None
