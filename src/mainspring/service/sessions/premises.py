"""What sessions need around them: who describes agents, who wakes, who is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from mainspring.runtime.agent import Agent
from mainspring.service.access.principal import Principal
from mainspring.service.describing.environments import Environments
from mainspring.service.keeping.notice import Notify, unnoticed
from mainspring.service.sessions.agent import AgentBook
from mainspring.service.sessions.record import SessionRecord
from mainspring.service.sessions.surroundings import Surroundings

Wake: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Tenant and session: it has something to do."""
MayOverride: TypeAlias = Callable[[Principal, str], Awaitable[None]]
"""Raises `Forbidden`: they may not give sessions of this agent other tools."""


class Over(Protocol):
    async def __call__(self, tenant: str, session: SessionRecord, *, is_deleted: bool) -> None:
        """It takes no events any more; what it had elsewhere may go, if it is deleted all of it."""
        ...


async def _nothing_to_do(tenant: str, session: SessionRecord, *, is_deleted: bool) -> None:
    del tenant, session, is_deleted


async def anybody_may(_who: Principal, _agent_id: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who runs a session, as the runtime knows agents, and where."""

    agent: Agent
    workspace: str = ""
    """Empty: it is the client's, and we do not know it."""


async def _bare_actor(_tenant: str, session: SessionRecord) -> Actor:
    return Actor(agent=Agent(name=session.agent.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """What sessions need around them."""

    agents: AgentBook
    environments: Environments
    around: Surroundings
    wake: Wake
    over: Over = _nothing_to_do
    actor: Callable[[str, SessionRecord], Awaitable[Actor]] = _bare_actor
    """Of a tenant's session."""
    notify: Notify = unnoticed
    may_override: MayOverride = anybody_may
    """Asked before a session gets other tools than its agent has."""
