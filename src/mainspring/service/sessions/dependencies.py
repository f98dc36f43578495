"""What session services depend on: agents, environments, lookups, and callbacks that wake a
session or clean up after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from mainspring.runtime.agent import Agent
from mainspring.service.access.principal import Principal
from mainspring.service.resources.environments import Environments
from mainspring.service.sessions.resource_lookups import ResourceLookups
from mainspring.service.sessions.session_agent import AgentLookup
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.storage.notifications import Notify, ignore_notification

WakeSession: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Tenant and session: it has something to do."""
CheckOverride: TypeAlias = Callable[[Principal, str], Awaitable[None]]
"""Raises `Forbidden`: they may not give sessions of this agent other tools."""


class OnSessionEnd(Protocol):
    async def __call__(self, tenant: str, session: SessionRecord, *, is_deleted: bool) -> None:
        """It takes no events any more; what it had elsewhere may go, if it is deleted all of it."""
        ...


async def _ignore_session_end(tenant: str, session: SessionRecord, *, is_deleted: bool) -> None:
    del tenant, session, is_deleted


async def allow_override(_who: Principal, _agent_id: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedAgent:
    """Who runs a session, as the runtime knows agents, and where."""

    agent: Agent
    workspace: str = ""
    """Empty: it is the client's, and we do not know it."""


async def _default_actor(_tenant: str, session: SessionRecord) -> ResolvedAgent:
    return ResolvedAgent(agent=Agent(name=session.agent.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDependencies:
    """What sessions need around them."""

    agents: AgentLookup
    environments: Environments
    lookups: ResourceLookups
    wake_session: WakeSession
    on_session_end: OnSessionEnd = _ignore_session_end
    resolved_agent: Callable[[str, SessionRecord], Awaitable[ResolvedAgent]] = _default_actor
    """Of a tenant's session."""
    notify: Notify = ignore_notification
    check_override: CheckOverride = allow_override
    """Asked before a session gets other tools than its agent has."""
