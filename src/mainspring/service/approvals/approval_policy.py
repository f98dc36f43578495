"""Approval policies of tenants and agents: who may answer, and what happens if nobody does."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, InvalidInput, NotFound
from mainspring.core.ids import AgentId, stable_id
from mainspring.log.records import Records
from mainspring.service.access.principal import ROLES, Principal
from mainspring.service.storage.repository import Repository

KIND = "approval_policy"
AnswerRole: TypeAlias = Literal["user", "operator", "admin"]
OnExpiry: TypeAlias = Literal["deny", "leave"]
Seconds = Annotated[int, Meta(ge=1, le=366 * 86_400)]
Group = Annotated[str, Meta(min_length=1, max_length=256)]


class ApprovalPolicy(Struct, frozen=True, kw_only=True):
    id: str
    agent_id: str | None = None
    """The agent; `None`: all agents of the tenant without a policy of their own."""
    role: AnswerRole = "user"
    """The minimum role that may answer."""
    four_eyes: bool = False
    """Whoever created the session or spoke in it may not answer."""
    expires_after_seconds: int | None = None
    on_expiry: OnExpiry = "deny"
    """`leave`: it is shown as overdue and keeps waiting."""
    escalate_after_seconds: int | None = None
    escalate_to: str | None = None
    """Free text that names whom to notify; it is sent with the webhook."""
    escalated_role: AnswerRole | None = None
    """The minimum role after escalation, if it is higher."""
    updated_at: datetime | None = None
    """`None` for the built-in policy, which nobody has set."""
    type: Literal["approval_policy"] = "approval_policy"

    def needed_role(self, *, is_escalated: bool) -> AnswerRole:
        raised = self.escalated_role
        if not is_escalated or raised is None or ROLES.index(raised) < ROLES.index(self.role):
            return self.role
        return raised


class SetApprovalPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is not given stays, or is the tenant's for an agent that has no policy yet; `null`
    takes it away."""

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
            try:
                return await self._repository.get(tenant, _id(tenant, owner))
            except NotFound:
                continue
        return ApprovalPolicy(id=_id(tenant, None))

    async def require_overriding(self, principal: Principal, agent_id: str) -> None:
        """Only those who may approve calls may weaken the policy.

        Raises: Forbidden.
        """
        policy = await self.of(principal.tenant, agent_id)
        principal.require("operator" if policy.four_eyes and policy.role == "user" else policy.role)

    async def set(self, principal: Principal, request: SetApprovalPolicy) -> ApprovalPolicy:
        """Who may answer changes at once; deadlines of waiting calls do not change.

        Raises: InvalidInput, Forbidden: an agent would set its own.
        """
        principal.require_human()
        tenant = principal.tenant
        id_ = _id(tenant, request.agent_id)
        given = {
            name: value
            for name in request.__struct_fields__
            if (value := getattr(request, name)) is not UNSET
        }

        def change(current: ApprovalPolicy) -> ApprovalPolicy:
            return _check_policy(replace(current, **given, id=id_, updated_at=self._clock()))

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
        """The policy that applies now.

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
        raise InvalidInput("escalate_after_seconds: say when it is escalated")
    if expires is not None and escalates is not None and escalates >= expires:
        raise InvalidInput(
            f"escalate_after_seconds: {escalates} is not before it expires, after {expires}"
        )
    return policy
