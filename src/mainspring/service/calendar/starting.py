"""What schedules and triggers need of sessions: to start one, once, and to speak to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from mainspring.core.sender import Origin
from mainspring.service.calendar.model import InitialEvent
from mainspring.service.describing.agent_roster import AgentReference
from mainspring.service.sessions.mounted import ResourceAsked
from mainspring.service.sessions.record import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A session that is to be there."""

    key: str
    """Whose session it is: the same key, the same session, however often it is ordered."""
    agent: AgentReference
    environment_id: str
    origin: Origin
    """The deployment or trigger that orders it."""
    title: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    vault_ids: tuple[str, ...] = ()
    resources: tuple[ResourceAsked, ...] = ()
    """With their tokens."""
    budget: Budget | None = None
    initial_events: tuple[InitialEvent, ...] = ()
    deployment_id: str | None = None


class Sessions(Protocol):
    async def start(self, tenant: str, order: Order) -> str:
        """The id of the session, made now or when it was ordered before, with the initial events
        sent to it once.

        Raises:
            NotFound, InvalidInput, RateLimited, Forbidden: it cannot be made, now or ever.
        """
        ...

    async def send(
        self, tenant: str, session_id: str, text: str, *, key: str, origin: Origin
    ) -> None:
        """A message of the trigger `origin`; sent once, however often with this key.

        Raises:
            NotFound, SessionNotFound: there is no such session any more.
            InvalidInput: it takes none, being archived or terminated.
        """
        ...

    async def is_busy(self, tenant: str, session_id: str) -> bool:
        """Whether it works; not when it is idle, ended or gone."""
        ...
