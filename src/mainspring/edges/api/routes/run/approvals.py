"""`/v1/mainspring/approvals`: calls that wait for a person, the answers, and the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainspring.core.ids import AgentId, ApprovalId, SessionId
from mainspring.edges.api.route import ApiCall, Empty, PageQuery, Timestamp, list_query, route
from mainspring.service.approvals.approval_policy import ApprovalPolicy, SetApprovalPolicy
from mainspring.service.approvals.approval_record import Approval
from mainspring.service.approvals.approvals import (
    MAX_AT_ONCE,
    AnswerResult,
    ApprovalAnswer,
    Approvals,
)
from mainspring.service.storage.pagination import Page


class ListApprovals(PageQuery, frozen=True, kw_only=True):
    agent_id: AgentId | None = None
    session_id: SessionId | None = None
    asked_at_gte: Timestamp | None = None
    asked_at_lte: Timestamp | None = None
    include_closed: bool = False
    """Include approvals that were answered or are void."""
    order: Literal["asc", "desc"] = "asc"
    """`asc`: the longest waiting first."""


class AnswerSeveral(ApprovalAnswer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    approval_ids: Annotated[tuple[ApprovalId, ...], Meta(min_length=1, max_length=MAX_AT_ONCE)]


class AnsweredSeveral(Struct, frozen=True, kw_only=True):
    data: list[AnswerResult]


class WhosePolicy(Struct, frozen=True, kw_only=True):
    agent_id: AgentId | None = None
    """The agent; if absent, the policy of agents without their own."""


@dataclass(frozen=True, slots=True)
class ApprovalRoutes:
    approvals: Approvals

    # the policy comes first, else `policy` would match as an id
    @route(
        "GET /v1/mainspring/approvals/policy",
        "Get the policy: who may answer, and what happens if nobody does",
        role="operator",
    )
    async def policy(self, call: ApiCall[WhosePolicy, Empty]) -> ApprovalPolicy:
        return await self.approvals.policies.of(call.tenant, call.query.agent_id)

    @route(
        "POST /v1/mainspring/approvals/policy",
        "Set the policy: who may answer, and what happens if nobody does",
    )
    async def set_policy(self, call: ApiCall[Empty, SetApprovalPolicy]) -> ApprovalPolicy:
        return await self.approvals.policies.set(call.who, call.body)

    @route(
        "DELETE /v1/mainspring/approvals/policy",
        "Reset the policy to that of the tenant, or to the built-in one",
    )
    async def unset_policy(self, call: ApiCall[WhosePolicy, Empty]) -> ApprovalPolicy:
        return await self.approvals.policies.unset(call.who, call.query.agent_id)

    @route(
        "GET /v1/mainspring/approvals", "List the calls that wait for approval", for_agent_keys=True
    )
    async def list(self, call: ApiCall[ListApprovals, Empty]) -> Page[Approval]:
        query = call.query
        listing = list_query(
            query,
            label=query.agent_id,
            parent=query.session_id,
            created_from=query.asked_at_gte,
            created_upto=query.asked_at_lte,
            include_archived=query.include_closed,
            is_ascending=query.order == "asc",
        )
        return await self.approvals.page(call.who, listing)

    @route("GET /v1/mainspring/approvals/{approval_id}", "Get an approval", for_agent_keys=True)
    async def get(self, call: ApiCall[Empty, Empty]) -> Approval:
        return await self.approvals.get(call.who, call["approval_id"])

    @route(
        "POST /v1/mainspring/approvals/{approval_id}/answer",
        "Allow or deny a call",
        role="user",
        for_agent_keys=True,
    )
    async def answer(self, call: ApiCall[Empty, ApprovalAnswer]) -> Approval:
        return await self.approvals.answer(call.who, call["approval_id"], call.body)

    @route(
        "POST /v1/mainspring/approvals/answer",
        "Allow or deny several calls",
        role="user",
        for_agent_keys=True,
    )
    async def answer_several(self, call: ApiCall[Empty, AnswerSeveral]) -> AnsweredSeveral:
        answered = await self.approvals.answer_all(call.who, call.body.approval_ids, call.body)
        return AnsweredSeveral(data=answered)
