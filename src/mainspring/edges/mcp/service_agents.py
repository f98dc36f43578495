"""Agents of the service for MCP clients, with the same methods and checks as the API. Sessions run
in workers, not in the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Literal

import anyio
from anyio import CancelScope

from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput, MainspringError, NotFound
from mainspring.core.sender import Origin
from mainspring.core.tool import Tool
from mainspring.edges.mcp.agent_host import (
    FinalTexts,
    HostedSession,
    PendingApproval,
    PublishedAgent,
    RunReport,
    SearchLine,
    run_report,
    step_text,
    transcript_of,
)
from mainspring.log import search as searching
from mainspring.log.store import SessionScope
from mainspring.runtime.skills.skill import Skill
from mainspring.service.access.principal import Principal
from mainspring.service.approvals.approval_record import Approval
from mainspring.service.approvals.approvals import ApprovalAnswer
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.service_groups import ResourceServices, SessionServices
from mainspring.service.sessions.events.event_content import SendInterrupt, SendMessage
from mainspring.service.sessions.session_listing import ListSessions
from mainspring.service.sessions.session_params import CreateSession
from mainspring.service.sessions.session_view import LoadedSession
from mainspring.service.storage.repository import ListQuery

_MAX_AGENTS = 200  # of a tenant that become tools
_MAX_APPROVALS = 200  # listed at once
_GRACE_SECONDS = 5.0  # to interrupt a session after its client is gone
_ENDS = (events.StatusIdle, events.StatusTerminated)


@dataclass(frozen=True, slots=True)
class ServiceAgents:
    """An `AgentHost` for one principal of the service."""

    resources: ResourceServices
    services: SessionServices
    principal: Principal

    @property
    def may_run(self) -> bool:
        return self.principal.is_at_least("user")

    @property
    def may_answer(self) -> bool:
        return self.principal.is_person and self.principal.is_at_least("user")

    @property
    def memory_tools(self) -> Mapping[str, Tool]:
        return {}  # memory stores are the API's

    async def agents(self) -> Sequence[PublishedAgent]:
        page = await self.resources.agents.page(self.principal.tenant, ListQuery(limit=_MAX_AGENTS))
        return [
            PublishedAgent(id=agent.id, name=agent.name, description=agent.description or "")
            for agent in page.data
            if self.principal.agent_id in (None, agent.id)
        ]

    async def skills(self) -> Sequence[Skill]:
        return []  # the API has them

    async def begin(self, agent_id: str, message: str) -> str:
        self.principal.require("user")
        session = await self.services.sessions.create(
            self.principal,
            CreateSession(
                agent=agent_id,
                environment_id=await self._environment(),
                initial_events=(SendMessage(content=(TextBlock(message),)),),
            ),
            origin=Origin(type="api", id=self.principal.key_id),
        )
        return session.id

    async def send(self, agent_id: str, session_id: str, message: str) -> None:
        self.principal.require("user")
        await self._find(agent_id, session_id)
        await self.services.event_sender.send(
            self.principal, session_id, [SendMessage(content=(TextBlock(message),))]
        )

    async def run(
        self, agent_id: str, session_id: str, on_step: Callable[[str], None]
    ) -> RunReport:
        self.principal.require("user")
        session = await self._find(agent_id, session_id)
        if session.record.archived_at is not None:
            raise InvalidInput(f"session {session_id} is archived")
        try:
            return await self._follow(session, on_step)
        except anyio.get_cancelled_exc_class():
            stop = self.services.event_sender.send(self.principal, session_id, [SendInterrupt()])
            with (
                CancelScope(shield=True),
                anyio.move_on_after(_GRACE_SECONDS),
                suppress(MainspringError),
            ):
                await stop
            raise

    async def _follow(self, session: LoadedSession, on_step: Callable[[str], None]) -> RunReport:
        texts = FinalTexts(session.row.thread_id)
        log, id_ = self.services.sessions.log, session.record.id
        if _is_running(session):
            async with aclosing(log.follow(id_, after=session.projection.seq)) as following:
                async for event in following:
                    if (text := step_text(event)) is not None:
                        on_step(text)
                    texts.apply(event)
                    if isinstance(event.payload, _ENDS) and not _is_running(
                        await self.services.sessions.find(self.principal, id_)
                    ):
                        break
        return await run_report(log, id_, texts.text)

    async def sessions(self, *, agent: str | None, limit: int) -> Sequence[HostedSession]:
        page = await self.services.sessions.page(self.principal, ListSessions(limit=limit))
        return [
            HostedSession(
                session_id=item.id,
                agent=item.agent.name,
                status=item.status,
                title=(item.title or "")[:200],
                updated=item.updated_at.isoformat(timespec="seconds"),
                cost_usd=str(item.usage.list_cost.amount),
            )
            for item in page.data
            if agent in (None, item.agent.name)
        ]

    async def transcript(self, session_id: str) -> str:
        log = self.services.sessions.log
        row = await self.services.sessions.row(self.principal, session_id)
        return await transcript_of(log, row)

    async def search(self, query: str, *, limit: int) -> Sequence[SearchLine]:
        """Only sessions of the caller's tenant are searched, so the time and the number of the
        results say nothing about those of others."""
        lines: list[SearchLine] = []
        hits = await searching.search(
            self.services.sessions.log,
            query,
            limit=limit * 20,
            scope=SessionScope(tenant=self.principal.tenant),
        )
        for hit in hits:
            try:
                await self.services.sessions.record(self.principal, hit.session_id)
            except NotFound:
                continue
            lines.append(SearchLine(session_id=hit.session_id, seq=hit.seq, text=hit.snippet))
            if len(lines) == limit:
                break
        return lines

    async def approvals(self, session_id: str | None) -> Sequence[PendingApproval]:
        if session_id is not None:
            record = await self.services.sessions.record(self.principal, session_id)
            await self.services.approvals.keeper.catch_up(self.principal.tenant, record.id)
        page = await self.services.approvals.page(
            self.principal,
            ListQuery(limit=_MAX_APPROVALS, parent=session_id, is_ascending=True),
        )
        return [self._pending(item) for item in page.data]

    async def answer(
        self, approval_id: str, result: Literal["allow", "deny"], message: str | None
    ) -> None:
        answer = ApprovalAnswer(result=result, message=message)
        await self.services.approvals.answer(self.principal, approval_id, answer)

    def _pending(self, approval: Approval) -> PendingApproval:
        rule = approval.may_answer
        is_yours = self.may_answer and self.principal.is_at_least(rule.role) and not rule.four_eyes
        return PendingApproval(
            id=approval.id,
            session_id=approval.session_id,
            tool=approval.name,
            what=approval.preview or str(approval.input),
            reason=approval.reason,
            is_yours=is_yours,
        )

    async def _find(self, agent_id: str, session_id: str) -> LoadedSession:
        session = await self.services.sessions.find(self.principal, session_id)
        if session.record.agent.id != agent_id:
            raise NotFound("session", session_id)
        return session

    async def _environment(self) -> str:
        """The newest cloud environment, since MCP clients do not choose one."""
        page = await self.resources.environments.page(self.principal.tenant, ListQuery(limit=100))
        for environment in page.data:
            if isinstance(environment.config, CloudConfig):
                return environment.id
        raise InvalidInput("the tenant has no environment; create one with the API")


def _is_running(session: LoadedSession) -> bool:
    return session.status in ("running", "rescheduling") or session.has_pending_input
