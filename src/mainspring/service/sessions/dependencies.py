"""What session services depend on: agents, environments, lookups, and callbacks that wake a
session or clean up after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from mainspring.runtime.agent import Agent
from mainspring.service.access.principal import Principal
from mainspring.service.resources.agents import Agents
from mainspring.service.resources.environments import Environments
from mainspring.service.sessions.resource_types import ResourceLookups
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.storage.repository import Notify, ignore_notification

WakeSession: TypeAlias = Callable[[str, SessionRecord], Awaitable[None]]
"""Called with a tenant and a session that has new work."""
CheckOverride: TypeAlias = Callable[[Principal, str], Awaitable[None]]
"""Raises `Forbidden` if the principal may not override the tools of this agent for a session."""


END_TASK = "end"
"""The job that runs the `SessionEnd` hooks of an archived session."""


class OnSessionEnd(Protocol):
    async def __call__(self, tenant: str, session: SessionRecord, *, is_deleted: bool) -> None:
        """Called after a session was archived, or deleted with everything that belongs to it."""
        ...


async def _ignore_end(tenant: str, session: SessionRecord, *, is_deleted: bool) -> None:
    del tenant, session, is_deleted


async def _allow_override(_principal: Principal, _agent_id: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedAgent:
    """The agent that runs a session, and its workspace."""

    agent: Agent
    workspace: str = ""
    """Empty if the workspace is on the client's machine."""


async def _default_agent(_tenant: str, session: SessionRecord) -> ResolvedAgent:
    return ResolvedAgent(agent=Agent(name=session.agent.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDependencies:
    agents: Agents
    environments: Environments
    lookups: ResourceLookups
    wake_session: WakeSession
    on_session_end: OnSessionEnd = _ignore_end
    resolved_agent: Callable[[str, SessionRecord], Awaitable[ResolvedAgent]] = _default_agent
    notify: Notify = ignore_notification
    check_override: CheckOverride = _allow_override
    """Called before a session gets other tools than its agent has."""
