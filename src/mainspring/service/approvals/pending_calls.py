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
from mainspring.log.upcast import read_payload
from mainspring.service.sessions.session_digest import Digests
from mainspring.service.sessions.session_record import SessionRecord

_USES = (events.AgentToolUse, events.AgentMcpToolUse)
_QUESTION_TYPES = tuple(
    str(kind.__struct_config__.tag)
    for kind in (*_USES, facts.ToolCallAuthorized, facts.ToolCallInDoubt)
)
_CONFIRMATION = str(events.UserToolConfirmation.__struct_config__.tag)
IN_DOUBT_REASON = "it was begun, and whether it took effect is not known: may it be done again?"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A call that waits for a person, and the log position of the question."""

    call_id: str
    thread_id: str
    asked: int
    subagent: str | None = None
    """The subagent of the thread, unless it is the main thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """An answer from the log."""

    confirmation: events.UserToolConfirmation
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalState:
    """The state of a session's approvals at one moment."""

    head: int
    pending_calls: tuple[PendingCall, ...]
    """Calls without an answer."""
    pending: Mapping[str, tuple[InboxItem, events.UserToolConfirmation]]
    """Answers by call that are not in the log yet."""


async def _pending_answers(
    log: SessionLog, session_id: str
) -> dict[str, tuple[InboxItem, events.UserToolConfirmation]]:
    """Answers by call that are in the inbox and not in the log yet."""
    answers: dict[str, tuple[InboxItem, events.UserToolConfirmation]] = {}
    for item in await log.store.pending(session_id, types=frozenset({_CONFIRMATION})):
        payload = read_payload(item.type, item.body, item.version)
        if isinstance(payload, events.UserToolConfirmation):
            answers.setdefault(payload.tool_use_id, (item, payload))
    return answers


async def read_approval_state(
    log: SessionLog, digests: Digests, session: SessionRecord
) -> ApprovalState:
    """Raises: SessionNotFound."""
    pending = await _pending_answers(
        log, session.id
    )  # first: an item that leaves the inbox is in the log
    row = await log.session(session.id)
    digest = await digests.of(row)
    is_open = session.archived_at is None and digest.status != "terminated"
    askings = (
        PendingCall(
            call_id=call_id,
            thread_id=thread.id,
            asked=call.asked,
            subagent=None if thread.id == row.thread_id else thread.agent_name,
        )
        for thread in digest.threads.values()
        for call_id, call in thread.calls.items()
        # inherited questions do not count: a fork asks again when it runs
        if is_open and call.asked > row.parent_seq and call_id not in pending
    )
    return ApprovalState(head=digest.seq, pending_calls=tuple(askings), pending=pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalQuestion:
    """The question that a person answers."""

    name: str = ""
    input: Mapping[str, object]
    preview: str | None = None
    reason: str | None = None
    at: datetime


async def read_questions(
    log: SessionLog, session_id: str, call_ids: Iterable[str]
) -> dict[str, ApprovalQuestion]:
    """By call. Raises: SessionNotFound."""
    wanted = frozenset(call_ids)
    found: dict[str, ApprovalQuestion] = {}
    for event in await log.read(session_id, types=_QUESTION_TYPES):
        _collect_question(found, wanted, event)
    return found


def _collect_question(
    questions: dict[str, ApprovalQuestion], wanted: frozenset[str], event: Event
) -> None:
    match event.payload:
        case events.AgentToolUse() | events.AgentMcpToolUse() as use if event.id in wanted:
            questions[event.id] = ApprovalQuestion(name=use.name, input=use.input, at=event.time)
        case facts.ToolCallAuthorized(tool_use_id=call_id, decision="ask") as said:
            if question := questions.get(call_id):
                changed = said.updated_input
                questions[call_id] = replace(
                    question,
                    input=question.input if changed is None else changed,
                    preview=said.preview,
                    reason=said.reason,
                    at=event.time,
                )
        case facts.ToolCallInDoubt(tool_use_id=call_id, policy="ask"):
            if question := questions.get(call_id):
                questions[call_id] = replace(question, reason=IN_DOUBT_REASON, at=event.time)
        case _:
            pass


async def find_answer(
    log: SessionLog, session_id: str, call_id: str, asked: int, seen: ApprovalState
) -> GivenAnswer | None:
    """The answer that was given to what was asked there, if one was. Raises: SessionNotFound."""
    for event in await log.read(session_id, after=asked, types=[_CONFIRMATION]):
        said = event.payload
        if isinstance(said, events.UserToolConfirmation) and said.tool_use_id == call_id:
            return GivenAnswer(confirmation=said, at=event.time)
    if call_id in seen.pending:
        item, said = seen.pending[call_id]
        return GivenAnswer(confirmation=said, at=from_micros(item.time))
    return None
