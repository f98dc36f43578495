"""Sessions as schedules and triggers ask for them: `starting.Sessions` over the real ones."""

from __future__ import annotations

from mainspring.core.content import TextBlock
from mainspring.core.errors import NotFound
from mainspring.core.sender import Origin
from mainspring.service.access.principal import Principal
from mainspring.service.calendar.starting import Order
from mainspring.service.describing.agent_roster import AgentAsked
from mainspring.service.sessions.sending import Sending
from mainspring.service.sessions.sending_params import SendMessage
from mainspring.service.sessions.sessions import CreateSession, Sessions

_NAME = "schedules and triggers"


class Ordering:
    def __init__(self, sessions: Sessions, sending: Sending) -> None:
        self._sessions = sessions
        self._sending = sending

    async def start(self, tenant: str, order: Order) -> str:
        made = await self._sessions.create(
            _who(tenant, order.origin),
            CreateSession(
                agent=AgentAsked(id=order.agent.id, version=order.agent.version),
                environment_id=order.environment_id,
                title=order.title,
                metadata=order.metadata,
                vault_ids=order.vault_ids,
                resources=order.resources,
                budget=order.budget,
                initial_events=order.initial_events,
            ),
            origin=order.origin,
            deployment_id=order.deployment_id,
            key=order.key,
        )
        return made.id

    async def send(
        self, tenant: str, session_id: str, text: str, *, key: str, origin: Origin
    ) -> None:
        said = SendMessage(content=(TextBlock(text),))
        await self._sending.send(_who(tenant, origin), session_id, [said], key=key)

    async def is_busy(self, tenant: str, session_id: str) -> bool:
        try:
            session = await self._sessions.get(_who(tenant), session_id)
        except NotFound:
            return False
        return session.status in ("running", "rescheduling")


def _who(tenant: str, origin: Origin | None = None) -> Principal:
    system = "schedule" if origin is None else origin.id
    return Principal(tenant=tenant, key_id="schedule", role="user", name=_NAME, system=system)
