"""Answers to calls that wait for a person: who may give one, and that the first one counts.

All that answers goes by this, so that no way in is laxer than another.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import Forbidden, NotFound
from mainspring.core.events import UserToolConfirmation
from mainspring.log.records import Records
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem
from mainspring.log.upcast import read_payload
from mainspring.service.access.principal import Principal
from mainspring.service.approvals.policy import ApprovalPolicy, Policies
from mainspring.service.approvals.record import approval_drawer, approval_id
from mainspring.service.approvals.speakers import Speakers
from mainspring.service.sessions.record import SessionRecord

EXPIRED = "expired"
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


class Leave:
    """Who may answer."""

    def __init__(self, records: Records, *, clock: Clock = clocks.now) -> None:
        self._policies = Policies(records, clock=clock)
        self._speakers = Speakers(records, clock=clock)
        self._approvals = approval_drawer(records, clock)

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
