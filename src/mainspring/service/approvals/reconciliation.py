"""Reconciles approval records with the session logs, which are the truth: one record for each
call that waits. It may run anywhere, at any time, several at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol

from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import AlreadyExists, NotFound, SessionNotFound, StaleVersion
from mainspring.log.records import RecordChange, RecordQuery, RecordRow
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.service.approvals import answer_permission
from mainspring.service.approvals.answer_permission import ANSWERED_BY_EXPIRY
from mainspring.service.approvals.approval_policy import ApprovalPolicies, ApprovalPolicy
from mainspring.service.approvals.approval_record import (
    KIND,
    MAX_PREVIEW_CHARS,
    Approval,
    MayAnswer,
    approval_id,
    approval_repository,
    shorten_input,
)
from mainspring.service.approvals.pending_calls import (
    ApprovalQuestion,
    ApprovalState,
    PendingCall,
    find_answer,
    read_approval_state,
    read_questions,
)
from mainspring.service.jobs.dispatcher import Job, PutJob, no_enqueue
from mainspring.service.sessions.session_digest import Digests
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.storage.notifications import Notification
from mainspring.service.storage.repository import SESSION_KIND, Repository, delete_children

TASK = "approval"
_TRIES = 8
_BATCH = 200
_SESSIONS_PER_SWEEP = 500
_RECENT = timedelta(days=7)
_MAX_REMEMBERED = 100_000


class NotificationWriter(Protocol):
    """An `Outbox`: notifications are written in the same transaction as the change."""

    async def prepare_changes(self, *notices: Notification) -> list[RecordChange]: ...

    async def enqueue_deliveries(self, changes: Iterable[RecordChange]) -> None: ...


class NoNotifications:
    """For processes without webhooks."""

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
        digests: Digests | None = None,
        clock: Clock = clocks.now,
    ) -> None:
        records = log.store.records
        self.log = log
        self.digests = digests or Digests(log)
        self.repository = approval_repository(records, clock)
        self.sessions = Repository(records, SESSION_KIND, SessionRecord, clock=clock)
        self.policies = ApprovalPolicies(records, clock=clock)
        self._records = records
        self._put = put
        self._renderer = notification_writer or NoNotifications()
        self._clock = clock
        self._patrolled: dict[str, int] = {}
        self._upto: SessionRow | None = None

    async def catch_up(self, tenant: str, session_id: str) -> None:
        """Note what waits now, and what became of that which did. May be done at any time, by
        several at once."""
        for _ in range(_TRIES):  # again after each change: the log may have grown in the meantime
            try:
                session = await self.sessions.get(tenant, session_id)
                seen = await read_approval_state(self.log, self.digests, session)
                if not await self._reconcile(tenant, session, seen):
                    return
            except (NotFound, SessionNotFound):
                return await self.forget(tenant, session_id)

    async def forget(self, tenant: str, session_id: str) -> None:
        """Delete the approvals of a deleted session."""
        for kind in (KIND, answer_permission.SPEAKER_KIND):
            await delete_children(self._records, kind, tenant=tenant, parent=session_id)

    async def sweep(self) -> int:
        """Have done what is due and has no job, as one that was lost, and look after sessions
        whose worker died before it caught up; how many were due. Call it now and then."""
        due = await self.repository.due(self._clock(), limit=_BATCH)
        for record, approval in due:
            await self._put(_job(record.tenant, approval))
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
        """Write it with its notifications; False if somebody else changed it first."""
        telling = await self._renderer.prepare_changes(*notifications)
        try:
            await self._records.write(self.repository.replace_change(row, approval), *telling)
        except (StaleVersion, NotFound):
            return False
        await self._renderer.enqueue_deliveries(telling)
        await self.put_next(tenant, approval)
        return True

    async def _reconcile(self, tenant: str, session: SessionRecord, seen: ApprovalState) -> bool:
        """Returns whether anything changed."""
        open_ = await self._records.list(
            RecordQuery(kind=KIND, tenant=tenant, parent=session.id, is_archived=False, limit=1000)
        )
        current = {record.id for record in open_}
        waiting = {
            approval_id(session.id, pending_call.call_id, pending_call.asked): pending_call
            for pending_call in seen.pending_calls
        }
        new = {id_: asking for id_, asking in waiting.items() if id_ not in current}
        has_changed = await self._begin(tenant, session, new) if new else False
        for record in open_:
            if record.id not in waiting:
                has_changed |= await self._close(tenant, record, seen)
        return has_changed

    async def _begin(
        self, tenant: str, session: SessionRecord, new: dict[str, PendingCall]
    ) -> bool:
        policy = await self.policies.of(tenant, session.agent.id)
        asked = await read_questions(self.log, session.id, (item.call_id for item in new.values()))
        has_changed = False
        for id_, asking in new.items():
            if asking.call_id not in asked:
                continue
            approval = _new_approval(id_, session, asking, asked[asking.call_id], policy)
            with suppress(AlreadyExists):  # another process created it at the same time
                await self.repository.put(tenant, approval)
                await self.put_next(tenant, approval)
                has_changed = True
        return has_changed

    async def _close(self, tenant: str, row: RecordRow, seen: ApprovalState) -> bool:
        current = self.repository.read(row)
        given = await find_answer(
            self.log, current.session_id, current.tool_use_id, current.asked, seen
        )
        if given is None:
            void = replace(current, status="void", closed_at=self._clock())
            return await self.replace(tenant, row, void)
        said = given.confirmation
        closed = replace(
            current,
            status="answered",
            result=said.result,
            answered_by=said.answered_by,
            message=said.deny_message,
            closed_at=given.at,
        )
        expired = Notification(tenant=tenant, type="mainspring.approval_expired", id=current.id)
        notices = [expired] if said.answered_by == ANSWERED_BY_EXPIRY else []
        return await self.replace(tenant, row, closed, notices)

    async def _reconcile_recent(self) -> None:
        """One page of sessions per call, newest first, then from the start again."""
        rows = await self.log.sessions(before=self._upto, limit=_SESSIONS_PER_SWEEP)
        since = to_micros(self._clock() - _RECENT)
        for row in rows:
            is_news = self._patrolled.get(row.id) != row.head.seq
            if row.owner is None and row.updated >= since and is_news:
                await self._reconcile_row(row)
        self._upto = rows[-1] if len(rows) == _SESSIONS_PER_SWEEP else None
        if len(self._patrolled) > _MAX_REMEMBERED:
            self._patrolled.clear()

    async def _reconcile_row(self, row: SessionRow) -> None:
        with suppress(NotFound):  # a session of the command line
            record = await self._records.get(SESSION_KIND, row.id)
            await self.catch_up(record.tenant, row.id)
        self._patrolled[row.id] = row.head.seq


def _job(tenant: str, approval: Approval) -> Job:
    return Job(task=TASK, key=approval.id, tenant=tenant)


def _new_approval(
    id_: str,
    session: SessionRecord,
    pending_call: PendingCall,
    question: ApprovalQuestion,
    policy: ApprovalPolicy,
) -> Approval:
    given, is_cut = shorten_input(question.input)
    preview = question.preview
    is_long = preview is not None and len(preview) > MAX_PREVIEW_CHARS
    return Approval(
        id=id_,
        session_id=session.id,
        session_thread_id=pending_call.thread_id,
        agent_id=session.agent.id,
        agent_name=session.agent.name,
        tool_use_id=pending_call.call_id,
        name=question.name,
        input=given,
        preview=preview and preview[:MAX_PREVIEW_CHARS],
        is_cut=is_cut or is_long,
        reason=question.reason,
        asked=pending_call.asked,
        asked_at=question.at,
        may_answer=may_answer(policy, is_escalated=False),
        expires_at=_deadline(question.at, policy.expires_after_seconds),
        is_left=policy.on_expiry == "leave",
        escalates_at=_deadline(question.at, policy.escalate_after_seconds),
        escalate_to=policy.escalate_to,
        subagent=pending_call.subagent,
    )


def may_answer(policy: ApprovalPolicy, *, is_escalated: bool) -> MayAnswer:
    return MayAnswer(role=policy.needed_role(is_escalated=is_escalated), four_eyes=policy.four_eyes)


def _deadline(moment: datetime, seconds: int | None) -> datetime | None:
    return None if seconds is None else moment + timedelta(seconds=seconds)
