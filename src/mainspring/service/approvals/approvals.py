"""Approvals of a tenant: calls of all its sessions that wait for a person, and the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import (
    EventIdTaken,
    InvalidInput,
    MainspringError,
    NotFound,
    SessionNotFound,
    StaleVersion,
    StoreFailed,
)
from mainspring.core.events import PermissionUpdated, RuleText
from mainspring.core.sender import Sender
from mainspring.harness.permissions.always_allow import always_allow_rule, rule_update
from mainspring.harness.state.open_call import OpenCall
from mainspring.log.session_log import SessionLog
from mainspring.runtime.approvals import Answer, AnswerEvent, answer_call
from mainspring.service.access.principal import Principal
from mainspring.service.approvals.approval_policy import ANSWERED_BY_EXPIRY, AnswerPermission
from mainspring.service.approvals.approval_record import KIND, Approval, ApprovalResult
from mainspring.service.approvals.reconciliation import (
    ApprovalReconciler,
    NotificationWriter,
    may_answer,
)
from mainspring.service.jobs.dispatcher import Job, PutJob, no_enqueue
from mainspring.service.sessions.dependencies import WakeSession
from mainspring.service.sessions.events.earlier_answers import answer_client_id, answered_by
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery, Notification

MAX_MESSAGE_CHARS = 10_000  # of an answer
MAX_AT_ONCE = 100  # answers of one request

_EXPIRY_SENDER = Sender(kind="system", id="approval_expiry")


class ApprovalAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    result: ApprovalResult
    message: Annotated[str, Meta(min_length=1, max_length=MAX_MESSAGE_CHARS)] | None = None
    """The reason for a denial, which the agent reads; or a comment, if another part asks."""
    form: dict[str, Any] | None = None
    """The fields of `form_schema`, with the result allow."""
    choice: str | None = None
    """One of the `choices`, with the result allow."""
    for_session: bool = False
    """Allow similar calls in this session from now on without asking; needs the role operator."""


class AnswerResult(Struct, frozen=True, kw_only=True):
    """The result of one of several answers."""

    id: str
    approval: Approval | None = None
    error: str | None = None


async def no_wake(_tenant: str, _session: SessionRecord) -> None:
    """No-op: workers find inbox items by polling."""


class Approvals:
    def __init__(
        self,
        log: SessionLog,
        *,
        wake_session: WakeSession = no_wake,
        put: PutJob = no_enqueue,
        notification_writer: NotificationWriter | None = None,
        sessions: Sessions | None = None,
        clock: Clock = clocks.now,
    ) -> None:
        """`sessions`: shares its caches, so that a process decodes each record and folds each log
        once."""
        self.keeper = ApprovalReconciler(
            log, put=put, notification_writer=notification_writer, sessions=sessions, clock=clock
        )
        self.policies = self.keeper.policies
        self._log = log
        self._wake_session = wake_session
        self._clock = clock
        self._repository = self.keeper.repository
        self._permission = AnswerPermission(log.store.records, clock=clock)

    async def page(self, principal: Principal, query: ListQuery) -> Page[Approval]:
        """Waiting approvals; with `include_archived`, closed ones too."""
        if principal.agent_id is not None:
            if query.label not in (None, principal.agent_id):
                return Page(data=[])
            query = dataclasses.replace(query, label=principal.agent_id)
        page = await self._repository.page(principal.tenant, query)
        approvals = [await self._with_policy(principal.tenant, item) for item in page.data]
        return Page(data=approvals, next_page=page.next_page)

    async def get(self, principal: Principal, approval_id: str) -> Approval:
        """Raises: NotFound."""
        return await self._with_policy(principal.tenant, await self._load(principal, approval_id))

    async def answer(
        self, principal: Principal, approval_id: str, answer: ApprovalAnswer
    ) -> Approval:
        """Answer an approval. Repeating the same answer returns the same approval.

        Raises: NotFound, InvalidInput, Forbidden; StaleVersion: somebody else has already
        answered, or it no longer waits.
        """
        approval = await self._load(principal, approval_id)
        principal.require_human()
        decision = Answer(
            decision=answer.result, text=answer.message, form=answer.form, choice=answer.choice
        )
        who = answered_by(principal)
        if answer.message is not None and answer.result != "deny" and approval.is_of_call:
            raise InvalidInput("message: allowed only with the result deny")
        if answer.for_session:
            principal.require("operator")
            if answer.result != "allow":
                raise InvalidInput("for_session: allowed only with the result allow")
        if approval.status == "waiting":
            session = await self.keeper.sessions.get(principal.tenant, approval.session_id)
            await self._permission.check(principal, session, {approval.tool_use_id: approval.asked})
            call = await self._asked_call(session, approval)
            if call is not None:
                event = answer_call(call, decision, answered_by=who)
                rule = _rule(call) if answer.for_session else None
                if await self._submit(call, session, event, principal.sender, rule):
                    await self._wake_session(principal.tenant, session)
            await self.keeper.catch_up(principal.tenant, session.id)
            approval = await self._load(principal, approval_id)
        _check_same_answer(approval, decision, who)
        return await self._with_policy(principal.tenant, approval)

    async def answer_all(
        self, principal: Principal, approval_ids: Sequence[str], answer: ApprovalAnswer
    ) -> list[AnswerResult]:
        """Each answer is independent: a refused one does not affect the others."""
        answered: list[AnswerResult] = []
        for id_ in dict.fromkeys(approval_ids):
            try:
                answered.append(
                    AnswerResult(id=id_, approval=await self.answer(principal, id_, answer))
                )
            except StoreFailed:
                raise
            except MainspringError as error:
                answered.append(AnswerResult(id=id_, error=str(error)))
        return answered

    async def attend(self, job: Job) -> None:
        """Handle a job `approval`: escalate or expire an approval that is due."""
        tenant = job.tenant
        try:
            await self.keeper.catch_up(
                tenant, (await self._repository.get(tenant, job.key)).session_id
            )
            row = await self._repository.row(tenant, job.key)
        except NotFound:
            return
        approval, now = self._repository.read(row), self._clock()
        if approval.due is None or approval.due > now:
            return await self.keeper.put_next(tenant, approval)
        if approval.expires_at is not None and approval.expires_at <= now and not approval.is_left:
            return await self._expire(tenant, approval)
        notice = Notification(tenant=tenant, type="mainspring.approval_escalated", id=approval.id)
        escalated = replace(approval, escalated_at=now)
        if not await self.keeper.replace(tenant, row, escalated, [notice]):
            await self.attend(job)  # it was changed concurrently: check again

    async def _expire(self, tenant: str, approval: Approval) -> None:
        assert approval.expires_at is not None
        waited = approval.expires_at - approval.asked_at
        denial = Answer(decision="deny", text=f"nobody answered within {_duration_text(waited)}")
        session = await self.keeper.sessions.get(tenant, approval.session_id)
        call = await self._asked_call(session, approval)
        if call is not None:
            event = answer_call(call, denial, answered_by=ANSWERED_BY_EXPIRY)
            if await self._submit(call, session, event, _EXPIRY_SENDER):
                await self._wake_session(tenant, session)
        await self.keeper.catch_up(tenant, session.id)

    async def _submit(
        self,
        call: OpenCall,
        session: SessionRecord,
        answer: AnswerEvent,
        sender: Sender,
        rule: RuleText | None = None,
    ) -> bool:
        """Put the answer into the inbox; False if another answer was first."""
        try:
            await self._log.submit(
                session.id,
                answer,
                sender=sender,
                client_id=answer_client_id(call.id, call.asked),
                thread_id=call.thread_id,
            )
        except (EventIdTaken, SessionNotFound):
            return False
        if rule is not None:
            await self._log.submit(
                session.id,
                PermissionUpdated(updates=(rule_update(rule),), tool_use_id=call.id),
                sender=sender,
                client_id=f"permit:{call.id}:{call.asked}",
            )
        return True

    async def _asked_call(self, session: SessionRecord, approval: Approval) -> OpenCall | None:
        """The call, if its question is still open in the log; the record may be older."""
        try:
            projection = await self.keeper.projections.of(await self._log.session(session.id))
        except SessionNotFound:
            return None
        call = projection.call(approval.tool_use_id)
        is_open = session.archived_at is None and projection.status != "terminated"
        return call if is_open and call is not None and call.asked == approval.asked else None

    async def _load(self, principal: Principal, approval_id: str) -> Approval:
        approval = await self._repository.get(principal.tenant, approval_id)
        if principal.agent_id not in (None, approval.agent_id):
            raise NotFound(KIND, approval_id)
        return approval

    async def _with_policy(self, tenant: str, approval: Approval) -> Approval:
        """The approval with the role that may answer now."""
        if approval.status != "waiting":
            return approval
        policy = await self.policies.of(tenant, approval.agent_id)
        is_escalated = approval.escalated_at is not None
        return replace(approval, may_answer=may_answer(policy, is_escalated=is_escalated))


def _rule(call: OpenCall) -> RuleText:
    rule = None if call.is_suspended else always_allow_rule(call.name, call.input)
    if rule is None:
        raise InvalidInput(
            "for_session: no rule is narrow enough for this call; allow it once instead"
        )
    return rule


def _check_same_answer(approval: Approval, answer: Answer, answered_by: str) -> None:
    """Raises: StaleVersion: another answer came first."""
    if approval.status != "answered":
        raise StaleVersion(
            f"{approval.id} no longer waits: it was interrupted, or its session has ended"
        )
    expected = (answer.decision, answered_by, answer.form, answer.choice)
    if (approval.result, approval.answered_by, approval.form, approval.choice) != expected:
        who = (
            "nobody in time" if approval.answered_by == ANSWERED_BY_EXPIRY else approval.answered_by
        )
        raise StaleVersion(
            f"{approval.id} has been answered already: {approval.result} by {who or 'a client'};"
            " the first answer counts"
        )


def _duration_text(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            number = seconds // size
            return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
    return f"{seconds} seconds"
