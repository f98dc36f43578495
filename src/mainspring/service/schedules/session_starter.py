"""How schedules and triggers start a session and send messages to it, once each: the port and its
implementation over the session services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.sender import Origin
from mainspring.service.access.principal import Principal
from mainspring.service.resources.agent_multiagent import AgentParams, AgentReference
from mainspring.service.schedules.deployment_types import (
    Action,
    CampaignAction,
    DreamAction,
    EvalAction,
    InitialEvent,
    WorkflowAction,
)
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.events.event_content import SendMessage
from mainspring.service.sessions.resource_types import ResourceParams
from mainspring.service.sessions.session_params import CreateSession
from mainspring.service.sessions.session_record import ListCostBudget
from mainspring.service.sessions.sessions import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStartRequest:
    """A session that a deployment or trigger starts."""

    key: str
    """The same key always gives the same session."""
    agent: AgentReference
    environment_id: str
    origin: Origin
    """The deployment or trigger that starts it."""
    title: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    vault_ids: tuple[str, ...] = ()
    resources: tuple[ResourceParams, ...] = ()
    """Resources, with their tokens."""
    budget: ListCostBudget | None = None
    initial_events: tuple[InitialEvent, ...] = ()
    deployment_id: str | None = None
    action: Action | None = None
    """An action to start instead of a session."""


class SessionStarter(Protocol):
    async def start(self, tenant: str, request: SessionStartRequest) -> str:
        """The id of the session, created now or by an earlier call with the same key; the initial
        events are sent once.

        Raises:
            NotFound, InvalidInput, RateLimited, Forbidden: it cannot be created.
        """
        ...

    async def send(
        self, tenant: str, session_id: str, text: str, *, key: str, origin: Origin
    ) -> None:
        """Send a message of the trigger `origin`; with the same key it is sent once.

        Raises:
            NotFound, SessionNotFound: the session no longer exists.
            InvalidInput: it accepts none, being archived or terminated.
        """
        ...

    async def is_busy(self, tenant: str, session_id: str) -> bool:
        """Whether it runs; false if it is idle, ended or deleted."""
        ...


StartDream: TypeAlias = Callable[[Principal, str, DreamAction, str], Awaitable[str]]
"""Starts a dream: principal, the agent's id, the action and a key, to the session of the dream;
once per key. Raises: InvalidInput: it is not due."""


class EvalStarter(Protocol):
    async def start(
        self, tenant: str, action: EvalAction, budget: ListCostBudget | None, key: str
    ) -> str:
        """Start an eval run, once per key; returns its session. Raises: InvalidInput."""
        ...

    async def is_busy(self, tenant: str, run_id: str) -> bool: ...


class WorkflowStarter(Protocol):
    async def start_planned(
        self, principal: Principal, request: SessionStartRequest, action: WorkflowAction
    ) -> str:
        """Start a run, once per key; returns its session. Raises: NotFound, InvalidInput."""
        ...


class CampaignStarter(Protocol):
    async def start_scheduled(self, tenant: str, key: str) -> str:
        """Start a campaign, once per key; returns its session. Raises: InvalidInput."""
        ...

    async def is_busy(self, tenant: str, session_id: str) -> bool: ...


_PRINCIPAL_NAME = "schedules and triggers"


@dataclass(frozen=True, slots=True)
class ServiceSessionStarter:
    sessions: Sessions
    event_sender: EventSender
    start_dream: StartDream | None = None
    evals: EvalStarter | None = None
    workflows: WorkflowStarter | None = None
    campaigns: CampaignStarter | None = None

    async def start(self, tenant: str, request: SessionStartRequest) -> str:
        if request.action is not None:
            return await self._start_action(tenant, request, request.action)
        session = await self.sessions.create(
            _principal(tenant, request.origin),
            CreateSession(
                agent=AgentParams(id=request.agent.id, version=request.agent.version),
                environment_id=request.environment_id,
                title=request.title,
                metadata=request.metadata,
                vault_ids=request.vault_ids,
                resources=request.resources,
                budget=request.budget,
                initial_events=request.initial_events,
            ),
            origin=request.origin,
            deployment_id=request.deployment_id,
            key=request.key,
        )
        return session.id

    async def _start_action(self, tenant: str, request: SessionStartRequest, action: Action) -> str:
        match action:
            case DreamAction() if self.start_dream is not None:
                principal = _principal(tenant, request.origin)
                return await self.start_dream(principal, request.agent.id, action, request.key)
            case EvalAction() if self.evals is not None:
                return await self.evals.start(tenant, action, request.budget, request.key)
            case WorkflowAction() if self.workflows is not None:
                principal = _principal(tenant, request.origin)
                return await self.workflows.start_planned(principal, request, action)
            case CampaignAction() if self.campaigns is not None:
                return await self.campaigns.start_scheduled(tenant, request.key)
            case _:
                raise InvalidInput("this action cannot be started here")

    async def send(
        self, tenant: str, session_id: str, text: str, *, key: str, origin: Origin
    ) -> None:
        message = SendMessage(content=(TextBlock(text),))
        await self.event_sender.send(_principal(tenant, origin), session_id, [message], key=key)

    async def is_busy(self, tenant: str, session_id: str) -> bool:
        try:
            session = await self.sessions.get(_principal(tenant), session_id)
        except NotFound:
            others = filter(None, (self.evals, self.campaigns))
            return any([await other.is_busy(tenant, session_id) for other in others])
        return session.status in ("running", "rescheduling")


def _principal(tenant: str, origin: Origin | None = None) -> Principal:
    system = "schedule" if origin is None else origin.id
    return Principal(
        tenant=tenant, key_id="schedule", role="user", name=_PRINCIPAL_NAME, system=system
    )
