"""Agents of this machine for MCP clients. Their sessions run in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

import anyio
import msgspec
from anyio import CancelScope

from mainspring.core.errors import Forbidden, InvalidInput, LeaseHeld, NotFound, SessionNotFound
from mainspring.core.sender import Origin
from mainspring.core.tool import Tool
from mainspring.edges.cli.run.session_runner import SessionRunner
from mainspring.edges.mcp.agent_host import (
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
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow, all_sessions
from mainspring.runtime.session.run_result import RunResult
from mainspring.runtime.session.session import Session
from mainspring.runtime.session.session_summary import (
    ThreadPendingCall,
    read_pending_calls,
    summarize_session,
)
from mainspring.runtime.skills.skill import Skill
from mainspring.service.access.principal import Principal

_GRACE_SECONDS = 10.0
"""How long an interrupted session may take to end."""
_MAX_SCANNED = 2_000
"""The maximum number of sessions that one list reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAgents:
    """An `AgentHost` over agents that were opened on this machine, each with its own runtime; they
    share one log."""

    runners: Mapping[str, SessionRunner]
    """By the name of the agent."""
    log: SessionLog
    principal: Principal
    answers_by_call: bool
    """Whether the client itself may answer approvals, not only the person whom it asks."""
    memory: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """The tools of the memory that the agents share."""

    @property
    def may_run(self) -> bool:
        return self.principal.is_at_least("user")

    @property
    def may_answer(self) -> bool:
        return self.answers_by_call and self._may_decide

    @property
    def _may_decide(self) -> bool:
        """The permission to answer, by the service's default policy; an agent never has it."""
        return self.principal.is_person and self.principal.is_at_least("user")

    @property
    def memory_tools(self) -> Mapping[str, Tool]:
        """A person is asked before a write, so writing needs the permission to answer."""
        if not self.may_run:
            return {}
        return {
            name: tool
            for name, tool in self.memory.items()
            if self._may_decide or name != "memory_write"
        }

    async def agents(self) -> Sequence[PublishedAgent]:
        return [
            PublishedAgent(
                id=name,
                name=name,
                description=runner.agent.description,
                input_schema=runner.agent.input_schema,
            )
            for name, runner in self.runners.items()
        ]

    async def skills(self) -> Sequence[Skill]:
        skills = [skill for runner in self.runners.values() for skill in runner.agent.skills]
        return list({skill.name: skill for skill in skills}.values())

    async def begin(self, agent_id: str, message: str) -> str:
        runner = self.runners[agent_id]
        origin = Origin(type="api", id=f"mcp:{self.principal.key_id}")
        session = await runner.runtime.start(
            runner.agent, message, metadata=runner.metadata, origin=origin
        )
        return session.id

    async def send(self, agent_id: str, session_id: str, message: str) -> None:
        await (await self._session(agent_id, session_id)).send(message)

    async def run(
        self, agent_id: str, session_id: str, on_step: Callable[[str], None]
    ) -> RunReport:
        session = await self._session(agent_id, session_id)
        try:
            result = await _run_or_interrupt(session, on_step)
        except LeaseHeld as error:
            raise InvalidInput(f"another process is running {session_id}") from error
        report = await run_report(self.log, session_id, "" if result is None else result.text)
        why = "there is nothing to do" if result is None else result.detail
        return msgspec.structs.replace(report, detail=why)

    async def sessions(self, *, agent: str | None, limit: int) -> Sequence[HostedSession]:
        lines: list[HostedSession] = []
        async with aclosing(self._rows()) as rows:
            async for row in rows:
                summary = await summarize_session(self.log, row)
                if summary.agent is None or agent not in (None, summary.agent):
                    continue
                lines.append(
                    HostedSession(
                        session_id=row.id,
                        agent=summary.agent,
                        status=summary.status,
                        title=(summary.title or "")[:200],
                        updated=summary.updated.isoformat(timespec="seconds"),
                        turns=summary.turns,
                        cost_usd=str(summary.cost_usd),
                    )
                )
                if len(lines) == limit:
                    break
        return lines

    async def transcript(self, session_id: str) -> str:
        return await transcript_of(self.log, await self._row(session_id))

    async def search(self, query: str, *, limit: int) -> Sequence[SearchLine]:
        hits = await searching.search(self.log, query, limit=limit * 5)
        lines: list[SearchLine] = []
        for hit in hits:
            if await self._agent_of(hit.session_id) in self.runners:
                text = hit.snippet
                lines.append(SearchLine(session_id=hit.session_id, seq=hit.seq, text=text))
        return lines[:limit]

    async def approvals(self, session_id: str | None) -> Sequence[PendingApproval]:
        if session_id is not None:
            return await self._pending(await self._row(session_id))
        async with aclosing(self._rows()) as rows:
            return [item async for row in rows for item in await self._pending(row)]

    async def answer(
        self, approval_id: str, result: Literal["allow", "deny"], message: str | None
    ) -> None:
        if not self._may_decide:
            raise Forbidden(f"this needs the role user; the key has {self.principal.role}")
        session_id, _, call_id = approval_id.partition(":")
        row = await self._row(session_id)
        waiting = {item.call.id for item in await self._waiting(row)}
        if call_id not in waiting:
            raise NotFound("approval", approval_id)
        runner = self.runners[await self._agent_of(session_id)]
        session = await runner.runtime.resume(runner.agent, session_id)
        await session.answer(call_id, result, message=message)

    async def _pending(self, row: SessionRow) -> list[PendingApproval]:
        return [
            PendingApproval(
                id=f"{row.id}:{item.call.id}",
                session_id=row.id,
                tool=item.call.name,
                what=item.call.preview or msgspec.json.encode(item.call.input).decode(),
                reason=item.call.reason,
                is_yours=self._may_decide,
            )
            for item in await self._waiting(row)
        ]

    async def _waiting(self, row: SessionRow) -> list[ThreadPendingCall]:
        """Calls that wait for a decision, not for the result of a client's own tool."""
        calls = await read_pending_calls(self.log, row)
        return [item for item in calls if item.call.kind == "tool"]

    async def _session(self, agent_id: str, session_id: str) -> Session:
        if await self._agent_of(session_id) != agent_id:
            raise NotFound("session", session_id)
        runner = self.runners[agent_id]
        return await runner.runtime.resume(runner.agent, session_id)

    async def _row(self, session_id: str) -> SessionRow:
        if await self._agent_of(session_id) not in self.runners:
            raise NotFound("session", session_id)
        return await self.log.session(session_id)

    async def _agent_of(self, session_id: str) -> str:
        """The name of the session's agent; empty if there is no such session."""
        try:
            row = await self.log.session(session_id)
        except SessionNotFound:
            return ""
        return (await summarize_session(self.log, row)).agent or ""

    async def _rows(self) -> AsyncGenerator[SessionRow, None]:
        """Sessions of the published agents, the newest first."""
        scanned = 0
        async with aclosing(all_sessions(self.log.store)) as rows:
            async for row in rows:
                scanned += 1
                if scanned > _MAX_SCANNED:
                    return
                if await self._agent_of(row.id) in self.runners:
                    yield row


async def _run_or_interrupt(session: Session, on_step: Callable[[str], None]) -> RunResult | None:
    """Run a session. Cancelling interrupts it as a person would, so that its log is complete."""
    result: RunResult | None = None
    is_done = anyio.Event()

    async def run(scope: CancelScope) -> None:
        nonlocal result
        try:
            with scope:
                result = await session.run(
                    tell=lambda event: on_step(text) if (text := step_text(event)) else None
                )
        finally:
            is_done.set()

    scope = CancelScope(shield=True)
    async with anyio.create_task_group() as group:
        group.start_soon(run, scope)
        try:
            await is_done.wait()
        except anyio.get_cancelled_exc_class():
            with CancelScope(shield=True):
                await session.interrupt()
                with anyio.move_on_after(_GRACE_SECONDS):
                    await is_done.wait()
            scope.cancel()
            raise
    return result
