"""Approval policies of tenants and agents: who may answer, and what happens if nobody does. Every
path that answers a call checks `AnswerPermission`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, Forbidden, InvalidInput, NotFound
from mainspring.core.ids import AgentId, stable_id
from mainspring.log.records import Records
from mainspring.service.access.principal import ROLES, Principal
from mainspring.service.approvals.approval_record import (
    AnswerRole,
    approval_id,
    approval_repository,
)
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.storage.metadata import apply_patch
from mainspring.service.storage.repository import IndexColumns, Repository

KIND = "approval_policy"
OnExpiry: TypeAlias = Literal["deny", "leave"]
Seconds = Annotated[int, Meta(ge=1, le=366 * 86_400)]
Group = Annotated[str, Meta(min_length=1, max_length=256)]


class ApprovalPolicy(Struct, frozen=True, kw_only=True):
    id: str
    agent_id: str | None = None
    """The agent; `null`: all agents of the tenant without a policy of their own."""
    role: AnswerRole = "user"
    """The minimum role that may answer."""
    four_eyes: bool = False
    """Whether the creator of the session, and everyone who sent messages in it, may not answer."""
    expires_after_seconds: int | None = None
    on_expiry: OnExpiry = "deny"
    """`leave`: the approval is shown as overdue and keeps waiting."""
    escalate_after_seconds: int | None = None
    escalate_to: str | None = None
    """Free text that names whom to notify; it is sent with the webhook."""
    escalated_role: AnswerRole | None = None
    """The minimum role after escalation, if it is higher."""
    updated_at: datetime | None = None
    """`null` for the built-in policy, which applies if none is set."""
    type: Literal["approval_policy"] = "approval_policy"

    def needed_role(self, *, is_escalated: bool) -> AnswerRole:
        raised = self.escalated_role
        if not is_escalated or raised is None or ROLES.index(raised) < ROLES.index(self.role):
            return self.role
        return raised


class SetApprovalPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Omitted fields keep their values; an agent without a policy starts with the tenant's. `null`
    clears a field."""

    agent_id: Annotated[AgentId, Meta(min_length=1, max_length=128)] | None = None
    role: AnswerRole | UnsetType = UNSET
    four_eyes: bool | UnsetType = UNSET
    expires_after_seconds: Seconds | UnsetType | None = UNSET
    on_expiry: OnExpiry | UnsetType = UNSET
    escalate_after_seconds: Seconds | UnsetType | None = UNSET
    escalate_to: Group | UnsetType | None = UNSET
    escalated_role: AnswerRole | UnsetType | None = UNSET


class ApprovalPolicies:
    def __init__(self, records: Records, *, clock: Clock = clocks.now) -> None:
        self._repository = Repository(records, KIND, ApprovalPolicy, clock=clock)
        self._clock = clock

    async def of(self, tenant: str, agent_id: str | None = None) -> ApprovalPolicy:
        """The policy of an agent: its own, else the tenant's, else the built-in one."""
        for owner in dict.fromkeys((agent_id, None)):
            if (policy := await self._repository.find(tenant, _id(tenant, owner))) is not None:
                return policy
        return ApprovalPolicy(id=_id(tenant, None))

    async def require_overriding(self, principal: Principal, agent_id: str) -> None:
        """Check that the principal may weaken the policy: only those who may approve calls may do
        so.

        Raises: Forbidden.
        """
        policy = await self.of(principal.tenant, agent_id)
        principal.require("operator" if policy.four_eyes and policy.role == "user" else policy.role)

    async def set(self, principal: Principal, request: SetApprovalPolicy) -> ApprovalPolicy:
        """Set a policy. Who may answer changes at once; deadlines of waiting calls do not change.

        Raises: InvalidInput, Forbidden: an agent would set its own.
        """
        principal.require_human()
        tenant = principal.tenant
        id_ = _id(tenant, request.agent_id)

        def change(current: ApprovalPolicy) -> ApprovalPolicy:
            now = self._clock()
            return _check_policy(apply_patch(current, request, id=id_, updated_at=now))

        try:
            return await self._repository.update(tenant, id_, change)
        except NotFound:
            pass
        try:
            return await self._repository.put(
                tenant, change(await self.of(tenant, request.agent_id))
            )
        except AlreadyExists:  # created by another request at the same time
            return await self._repository.update(tenant, id_, change)

    async def unset(self, principal: Principal, agent_id: str | None = None) -> ApprovalPolicy:
        """Remove a policy; returns the one that applies now.

        Raises: NotFound: there was none; Forbidden.
        """
        principal.require_human()
        tenant = principal.tenant
        id_ = _id(tenant, agent_id)
        try:
            await self._repository.remove(tenant, id_)
        except NotFound:
            raise NotFound(KIND, f"of {agent_id or 'this tenant'}") from None
        return await self.of(tenant, agent_id)


def _id(tenant: str, agent_id: str | None) -> str:
    return stable_id("appol", tenant, agent_id or "")


def _check_policy(policy: ApprovalPolicy) -> ApprovalPolicy:
    expires, escalates = policy.expires_after_seconds, policy.escalate_after_seconds
    if escalates is None and (policy.escalate_to or policy.escalated_role):
        raise InvalidInput("escalate_after_seconds: required with escalate_to and escalated_role")
    if expires is not None and escalates is not None and escalates >= expires:
        raise InvalidInput(
            f"escalate_after_seconds: {escalates} must be less than expires_after_seconds,"
            f" which is {expires}"
        )
    return policy


SPEAKER_KIND = "session_speaker"


class _Speaker(Struct, frozen=True, kw_only=True):
    id: str
    session_id: str
    key_id: str


ANSWERED_BY_EXPIRY = "expired"
"""The recorded answerer of an expired approval. No key has this id: key ids are longer."""


class AnswerPermission:
    """Decides who may answer a call, by the policy of its agent."""

    def __init__(self, records: Records, *, clock: Clock = clocks.now) -> None:
        self._policies = ApprovalPolicies(records, clock=clock)
        self._speakers = Repository(
            records,
            SPEAKER_KIND,
            _Speaker,
            columns=lambda speaker: IndexColumns(parent=speaker.session_id),
            clock=clock,
        )
        self._approvals = approval_repository(records, clock)

    async def check(
        self, principal: Principal, session: SessionRecord, askings: Mapping[str, int]
    ) -> None:
        """`askings`: the calls, and the log position of each question.

        Raises: Forbidden.
        """
        principal.require_human()
        policy = await self._policies.of(principal.tenant, session.agent.id)
        is_escalated = await self._is_escalated(policy, principal.tenant, session.id, askings)
        principal.require(policy.needed_role(is_escalated=is_escalated))
        if policy.four_eyes and await self._has_spoken(principal, session):
            raise Forbidden(
                f"four eyes: {principal.name or principal.key_id} created this session or wrote in"
                " it; somebody else must answer"
            )

    async def note_speaker(self, principal: Principal, session: SessionRecord) -> None:
        """Record that a principal sent a message in a session: with four eyes, it may not approve
        calls of the session. The creator need not be recorded."""
        if await self._has_spoken(principal, session):
            return
        id_ = _speaker_id(session.id, principal.key_id)
        with suppress(AlreadyExists):  # two messages at the same time
            await self._speakers.put(
                principal.tenant, _Speaker(id=id_, session_id=session.id, key_id=principal.key_id)
            )

    async def _has_spoken(self, principal: Principal, session: SessionRecord) -> bool:
        if principal.key_id == session.created_by.key_id:
            return True
        id_ = _speaker_id(session.id, principal.key_id)
        return await self._speakers.find(principal.tenant, id_) is not None

    async def _is_escalated(
        self, policy: ApprovalPolicy, tenant: str, session_id: str, askings: Mapping[str, int]
    ) -> bool:
        if policy.escalated_role is None:
            return False
        for call_id, asked_seq in askings.items():
            id_ = approval_id(session_id, call_id, asked_seq)
            approval = await self._approvals.find(tenant, id_)  # `None`: too new
            if approval is not None and approval.escalated_at is not None:
                return True
        return False


def _speaker_id(session_id: str, key_id: str) -> str:
    return stable_id("spkr", session_id, key_id)
