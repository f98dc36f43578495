"""Who may answer a call that waits for a person. Every path that answers a call checks it here."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, Forbidden, NotFound
from mainspring.core.ids import stable_id
from mainspring.log.records import Records
from mainspring.service.access.principal import Principal
from mainspring.service.approvals.approval_policy import ApprovalPolicies, ApprovalPolicy
from mainspring.service.approvals.approval_record import approval_id, approval_repository
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.storage.repository import IndexColumns, Repository

SPEAKER_KIND = "session_speaker"


class _Speaker(Struct, frozen=True, kw_only=True):
    id: str
    session_id: str
    key_id: str


ANSWERED_BY_EXPIRY = "expired"
"""Recorded as the answerer if nobody answered in time. No key has this id: key ids are longer."""


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
        """`askings`: the calls, and where in the log each was asked.

        Raises: Forbidden.
        """
        principal.require_human()
        policy = await self._policies.of(principal.tenant, session.agent.id)
        is_escalated = await self._is_escalated(policy, principal.tenant, session.id, askings)
        principal.require(policy.needed_role(is_escalated=is_escalated))
        if policy.four_eyes and await self._has_spoken(principal, session):
            raise Forbidden(
                f"four eyes: {principal.name or principal.key_id} made this session or spoke in it;"
                " somebody else has to answer"
            )

    async def note_speaker(self, principal: Principal, session: SessionRecord) -> None:
        """Record that somebody spoke in a session: with four eyes, they may not approve its calls.
        The creator of the session need not be recorded."""
        if await self._has_spoken(principal, session):
            return
        id_ = _speaker_id(session.id, principal.key_id)
        with suppress(AlreadyExists):  # two messages of theirs at once
            await self._speakers.put(
                principal.tenant, _Speaker(id=id_, session_id=session.id, key_id=principal.key_id)
            )

    async def _has_spoken(self, principal: Principal, session: SessionRecord) -> bool:
        if principal.key_id == session.created_by.key_id:
            return True
        try:
            await self._speakers.get(principal.tenant, _speaker_id(session.id, principal.key_id))
        except NotFound:
            return False
        return True

    async def _is_escalated(
        self, policy: ApprovalPolicy, tenant: str, session_id: str, askings: Mapping[str, int]
    ) -> bool:
        if policy.escalated_role is None:
            return False
        for call_id, asked in askings.items():
            try:
                found = await self._approvals.get(tenant, approval_id(session_id, call_id, asked))
            except NotFound:
                continue  # too new: no record exists yet
            if found.escalated_at is not None:
                return True
        return False


def _speaker_id(session_id: str, key_id: str) -> str:
    return stable_id("spkr", session_id, key_id)
