"""Who may answer a call that waits for a person, and that only the first answer counts.
Everything that answers goes through this.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, Forbidden, NotFound
from mainspring.core.events import UserToolConfirmation
from mainspring.core.ids import stable_id
from mainspring.log.records import Records
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem
from mainspring.log.upcast import read_payload
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


class SessionSpeakers:
    def __init__(self, records: Records, *, clock: Clock = clocks.now) -> None:
        self._repository = Repository(
            records,
            SPEAKER_KIND,
            _Speaker,
            columns=lambda speaker: IndexColumns(parent=speaker.session_id),
            clock=clock,
        )

    async def note(self, who: Principal, session: SessionRecord) -> None:
        """Whoever made the session need not be noted."""
        if await self.has(who, session):
            return
        id_ = _speaker_id(session.id, who.key_id)
        with suppress(AlreadyExists):  # they said two things at once
            await self._repository.put(
                who.tenant, _Speaker(id=id_, session_id=session.id, key_id=who.key_id)
            )

    async def has(self, who: Principal, session: SessionRecord) -> bool:
        if who.key_id == session.created_by.key_id:
            return True
        try:
            await self._repository.get(who.tenant, _speaker_id(session.id, who.key_id))
        except NotFound:
            return False
        return True


def _speaker_id(session_id: str, key_id: str) -> str:
    return stable_id("spkr", session_id, key_id)


ANSWERED_BY_EXPIRY = "expired"
"""Who has answered when nobody did in time. Nobody else is called so: keys have longer ids."""
_CONFIRMATION = frozenset({"user.tool_confirmation"})


def answered_by(who: Principal) -> str:
    return f"{who.key_id}:{who.name}" if who.name else who.key_id


def answer_client_id(call_id: str, asked: int) -> str:
    """What an inbox takes once: of two answers to one question, only the first gets in."""
    return f"answer:{call_id}:{asked}"


def is_answer(client_id: str) -> bool:
    return client_id.startswith("answer:")


async def pending_answers(
    log: SessionLog, session_id: str
) -> dict[str, tuple[InboxItem, UserToolConfirmation]]:
    """By call, those that were given and are not in the log yet."""
    found: dict[str, tuple[InboxItem, UserToolConfirmation]] = {}
    for item in await log.store.pending(session_id, types=_CONFIRMATION):
        payload = read_payload(item.type, item.body, item.version)
        if isinstance(payload, UserToolConfirmation):
            found.setdefault(payload.tool_use_id, (item, payload))
    return found


class AnswerPermission:
    """Who may answer."""

    def __init__(self, records: Records, *, clock: Clock = clocks.now) -> None:
        self._policies = ApprovalPolicies(records, clock=clock)
        self._speakers = SessionSpeakers(records, clock=clock)
        self._approvals = approval_repository(records, clock)

    async def check(
        self, who: Principal, session: SessionRecord, askings: Mapping[str, int]
    ) -> None:
        """`askings`: the calls, and where in the log each was asked.

        Raises: Forbidden.
        """
        who.require_human()
        policy = await self._policies.of(who.tenant, session.agent.id)
        is_escalated = await self._is_escalated(policy, who.tenant, session.id, askings)
        who.require(policy.needed_role(is_escalated=is_escalated))
        if policy.four_eyes and await self._speakers.has(who, session):
            raise Forbidden(
                f"four eyes: {who.name or who.key_id} made this session or spoke in it;"
                " somebody else has to answer"
            )

    async def _is_escalated(
        self, policy: ApprovalPolicy, tenant: str, session_id: str, askings: Mapping[str, int]
    ) -> bool:
        if policy.escalated_role is None:
            return False
        for call_id, asked in askings.items():
            try:
                found = await self._approvals.get(tenant, approval_id(session_id, call_id, asked))
            except NotFound:
                continue  # asked so lately that nobody has looked yet
            if found.escalated_at is not None:
                return True
        return False
