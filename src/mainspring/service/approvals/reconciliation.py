"""Reconciles approval records with the session logs, which are the truth: one record for each call
that waits. It may run anywhere, at any time, concurrently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import events
from mainspring.core.clock import Clock, from_micros, to_micros
from mainspring.core.envelope import event_types
from mainspring.core.errors import AlreadyExists, NotFound, SessionNotFound, StaleVersion
from mainspring.harness.state.open_call import OpenCall, asking_call
from mainspring.harness.state.projection_cache import Projections
from mainspring.log.records import SESSION_KIND, RecordChange, RecordQuery, RecordRow
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem, SessionRow
from mainspring.log.upcast import read_payload
from mainspring.runtime.approvals import (
    AnswerEvent,
    Decision,
    answered_id,
    question_id,
    subject_of,
)
from mainspring.service.approvals.approval_policy import (
    ANSWERED_BY_EXPIRY,
    SPEAKER_KIND,
    ApprovalPolicies,
    ApprovalPolicy,
)
from mainspring.service.approvals.approval_record import (
    KIND,
    MAX_PREVIEW_CHARS,
    Approval,
    MayAnswer,
    approval_id,
    approval_repository,
    shorten_input,
)
from mainspring.service.jobs.dispatcher import Job, PutJob, no_enqueue
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.repository import (
    Notification,
    Repository,
    delete_children,
)

_ANSWERS = event_types(events.UserToolConfirmation, events.ApprovalAnswered)
IN_DOUBT_REASON = "it was started, and whether it took effect is unknown. Run it again?"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCall:
    """A call, or a question of another part, that waits for a person."""

    call: OpenCall
    subagent: str | None = None
    """The subagent of the thread, unless it is the main thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """An answer from the log."""

    event: AnswerEvent
    at: datetime

    @property
    def result(self) -> Decision:
        event = self.event
        return event.result if isinstance(event, events.UserToolConfirmation) else event.decision

    @property
    def message(self) -> str | None:
        event = self.event
        return event.deny_message if isinstance(event, events.UserToolConfirmation) else event.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalState:
    """The state of a session's approvals at one moment."""

    head: int
    pending_calls: tuple[WaitingCall, ...]
    """Calls without an answer."""
    pending: Mapping[str, tuple[InboxItem, AnswerEvent]]
    """Answers by the question that they are for; not in the log yet."""


async def _pending_answers(
    log: SessionLog, session_id: str
) -> dict[str, tuple[InboxItem, AnswerEvent]]:
    """Answers that are in the inbox and not in the log yet, by the question that they are for."""
    answers: dict[str, tuple[InboxItem, AnswerEvent]] = {}
    for item in await log.store.pending(session_id, types=_ANSWERS):
        payload = read_payload(item.type, item.body, item.version)
        if isinstance(payload, AnswerEvent):
            answers.setdefault(answered_id(payload), (item, payload))
    return answers


async def read_approval_state(
    log: SessionLog, projections: Projections, session: SessionRecord
) -> ApprovalState:
    """Raises: SessionNotFound."""
    pending = await _pending_answers(log, session.id)
    row = await log.session(session.id)  # read later: an item that left the inbox is in the log
    projection = await projections.of(row)
    is_open = session.archived_at is None and projection.status != "terminated"
    calls = [
        WaitingCall(call=call, subagent=None if thread.id == row.thread_id else thread.agent_name)
        for thread in projection.threads.values()
        for call in thread.calls.values()
        if call.name
    ]
    calls += [WaitingCall(call=asking_call(item)) for item in projection.open_approvals]
    waiting = (
        item
        for item in calls
        # inherited questions do not count: a fork asks again when it runs
        if is_open and item.call.asked > row.parent_seq and question_id(item.call) not in pending
    )
    return ApprovalState(head=projection.seq, pending_calls=tuple(waiting), pending=pending)


async def find_answer(
    log: SessionLog, approval: Approval, state: ApprovalState
) -> GivenAnswer | None:
    """The answer to the question at that position, if there is one. Raises: SessionNotFound."""
    question = approval.question_id or approval.tool_use_id
    for event in await log.read(approval.session_id, after=approval.asked, types=_ANSWERS):
        answer = event.payload
        if isinstance(answer, AnswerEvent) and answered_id(answer) == question:
            return GivenAnswer(event=answer, at=event.time)
    if question in state.pending:
        item, answer = state.pending[question]
        return GivenAnswer(event=answer, at=from_micros(item.time))
    return None


TASK = "approval"
_TRIES = 8  # passes over a session, whose log may grow meanwhile
_BATCH = 200  # approvals read at once
_SESSIONS_PER_SWEEP = 500  # so that a sweep ends in seconds
_RECENT = timedelta(days=7)  # sessions that are compared again
_MAX_REMEMBERED = 100_000  # sessions known to agree


class NotificationWriter(Protocol):
    """An `Outbox`: notifications are written in the same transaction as the change."""

    async def prepare_changes(self, *notices: Notification) -> list[RecordChange]: ...

    async def enqueue_deliveries(self, changes: Iterable[RecordChange]) -> None: ...


class NoNotifications:
    """Discards notifications, for processes without webhooks."""

    async def prepare_changes(self, *notices: Notification) -> list[RecordChange]:
        return []

    async def enqueue_deliveries(self, changes: Iterable[RecordChange]) -> None:
        pass


class ApprovalReconciler:
    def __init__(
        self,
        log: SessionLog,
        *,
        put: PutJob = no_enqueue,
        notification_writer: NotificationWriter | None = None,
        sessions: Sessions | None = None,
        clock: Clock = clocks.now,
    ) -> None:
        records = log.store.records
        self.log = log
        self.projections = Projections(log) if sessions is None else sessions.projections
        self.repository = approval_repository(records, clock)
        own = Repository(records, SESSION_KIND, SessionRecord, clock=clock)
        self.sessions = own if sessions is None else sessions.repository
        self.policies = ApprovalPolicies(records, clock=clock)
        self._records = records
        self._put = put
        self._notifications = notification_writer or NoNotifications()
        self._clock = clock
        self._checked_seqs: dict[str, int] = {}
        self._upto: SessionRow | None = None

    async def catch_up(self, tenant: str, session_id: str) -> None:
        """Record which calls wait now, and the answers to those that waited. May run at any time,
        concurrently."""
        for _ in range(_TRIES):  # again after each change: the log may have grown in the meantime
            try:
                session = await self.sessions.get(tenant, session_id)
                state = await read_approval_state(self.log, self.projections, session)
                if not await self._reconcile(tenant, session, state):
                    return
            except (NotFound, SessionNotFound):
                return await self.forget(tenant, session_id)

    async def forget(self, tenant: str, session_id: str) -> None:
        """Delete the approvals of a deleted session."""
        for kind in (KIND, SPEAKER_KIND):
            await delete_children(self._records, kind, tenant=tenant, parent=session_id)

    async def sweep(self) -> int:
        """Enqueue what is due, in case its job was lost, and reconcile sessions whose worker died
        before it caught up; returns how many were due. Call it periodically."""
        due = await self.repository.due(self._clock(), limit=_BATCH)
        for row, approval in due:
            await self._put(_job(row.tenant, approval))
        await self._reconcile_recent()
        return len(due)

    async def put_next(self, tenant: str, approval: Approval) -> None:
        if approval.due is not None:
            await self._put(_job(tenant, approval), at=approval.due)

    async def replace(
        self,
        tenant: str,
        row: RecordRow,
        approval: Approval,
        notifications: Sequence[Notification] = (),
    ) -> bool:
        """Write an approval with its notifications; False if another process changed it first."""
        deliveries = await self._notifications.prepare_changes(*notifications)
        try:
            await self._records.write(self.repository.replace_change(row, approval), *deliveries)
        except (StaleVersion, NotFound):
            return False
        await self._notifications.enqueue_deliveries(deliveries)
        await self.put_next(tenant, approval)
        return True

    async def _reconcile(self, tenant: str, session: SessionRecord, state: ApprovalState) -> bool:
        """Returns whether anything changed."""
        rows = await self._records.list(
            RecordQuery(kind=KIND, tenant=tenant, parent=session.id, is_archived=False, limit=1000)
        )
        current = {row.id for row in rows}
        waiting = {
            approval_id(session.id, pending.call.id, pending.call.asked): pending
            for pending in state.pending_calls
        }
        new = {id_: pending for id_, pending in waiting.items() if id_ not in current}
        has_changed = await self._begin(tenant, session, new) if new else False
        for row in rows:
            if row.id not in waiting:
                has_changed |= await self._close(tenant, row, state)
        return has_changed

    async def _begin(
        self, tenant: str, session: SessionRecord, new: dict[str, WaitingCall]
    ) -> bool:
        policy = await self.policies.of(tenant, session.agent.id)
        has_changed = False
        for id_, pending in new.items():
            approval = _new_approval(id_, session, pending, policy)
            with suppress(AlreadyExists):  # another process created it at the same time
                await self.repository.put(tenant, approval)
                await self.put_next(tenant, approval)
                has_changed = True
        return has_changed

    async def _close(self, tenant: str, row: RecordRow, state: ApprovalState) -> bool:
        current = self.repository.read(row)
        answer = await find_answer(self.log, current, state)
        if answer is None:
            void = replace(current, status="void", closed_at=self._clock())
            return await self.replace(tenant, row, void)
        event = answer.event
        closed = replace(
            current,
            status="answered",
            result=answer.result,
            answered_by=event.answered_by,
            message=answer.message,
            form=event.form if isinstance(event, events.ApprovalAnswered) else None,
            choice=event.choice if isinstance(event, events.ApprovalAnswered) else None,
            closed_at=answer.at,
        )
        expired = Notification(tenant=tenant, type="mainspring.approval_expired", id=current.id)
        notices = [expired] if event.answered_by == ANSWERED_BY_EXPIRY else []
        return await self.replace(tenant, row, closed, notices)

    async def _reconcile_recent(self) -> None:
        """One page of sessions per call, newest first, then from the start again."""
        rows = await self.log.sessions(before=self._upto, limit=_SESSIONS_PER_SWEEP)
        since = to_micros(self._clock() - _RECENT)
        for row in rows:
            is_new = self._checked_seqs.get(row.id) != row.head.seq
            if row.owner is None and row.updated >= since and is_new:
                await self._reconcile_row(row)
        self._upto = rows[-1] if len(rows) == _SESSIONS_PER_SWEEP else None
        if len(self._checked_seqs) > _MAX_REMEMBERED:
            self._checked_seqs.clear()

    async def _reconcile_row(self, row: SessionRow) -> None:
        with suppress(NotFound):  # a session of the command line
            record = await self._records.get(SESSION_KIND, row.id)
            await self.catch_up(record.tenant, row.id)
        self._checked_seqs[row.id] = row.head.seq


def _job(tenant: str, approval: Approval) -> Job:
    return Job(task=TASK, key=approval.id, tenant=tenant)


def _new_approval(
    id_: str, session: SessionRecord, pending: WaitingCall, policy: ApprovalPolicy
) -> Approval:
    call, preview = pending.call, pending.call.preview
    asked_at = call.asked_at or session.updated_at
    input_, is_cut = shorten_input(call.input)
    request = None if call.open_approval is None else call.open_approval.request
    is_long = preview is not None and len(preview) > MAX_PREVIEW_CHARS
    return Approval(
        id=id_,
        session_id=session.id,
        session_thread_id=call.thread_id,
        agent_id=session.agent.id,
        agent_name=session.agent.name,
        tool_use_id=call.id,
        name=call.name,
        input=input_,
        preview=preview and preview[:MAX_PREVIEW_CHARS],
        is_cut=is_cut or is_long,
        reason=IN_DOUBT_REASON if call.in_doubt == "ask" else call.reason,
        asked=call.asked,
        asked_at=asked_at,
        may_answer=may_answer(policy, is_escalated=False),
        expires_at=_deadline(asked_at, policy.expires_after_seconds),
        is_left=policy.on_expiry == "leave",
        escalates_at=_deadline(asked_at, policy.escalate_after_seconds),
        escalate_to=policy.escalate_to,
        subagent=pending.subagent,
        subject=subject_of(call),
        question_id=request and request.approval_id,
        question=request and request.question,
        form_schema=request and request.form_schema,
        choices=() if request is None else request.choices,
    )


def may_answer(policy: ApprovalPolicy, *, is_escalated: bool) -> MayAnswer:
    return MayAnswer(role=policy.needed_role(is_escalated=is_escalated), four_eyes=policy.four_eyes)


def _deadline(moment: datetime, seconds: int | None) -> datetime | None:
    return None if seconds is None else moment + timedelta(seconds=seconds)
