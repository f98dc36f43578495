"""The interface through which MCP tools use agents, on this machine or in the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from msgspec import Struct

from mainspring import __version__
from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.tool import Tool
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.runtime.export_sessions.exporter import export_session
from mainspring.runtime.session.session_summary import summarize_session
from mainspring.runtime.skills.skill import Skill


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedAgent:
    id: str
    name: str
    description: str
    input_schema: Mapping[str, object] | None = None
    """The schema of its input; `None` if its input is a message."""


class RunReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a run, as a client reads it."""

    session_id: str
    status: str
    """Why the run ended: `completed`, `requires_action`, `max_turns`, ..."""
    text: str
    """The last message of the agent."""
    turns: int
    cost_usd: str
    detail: str | None = None


class HostedSession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    session_id: str
    agent: str
    status: str
    title: str
    updated: str
    turns: int = 0
    cost_usd: str


class SearchLine(Struct, frozen=True, kw_only=True):
    session_id: str
    seq: int
    text: str


class PendingApproval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits for a person."""

    id: str
    session_id: str
    tool: str
    what: str
    """The effect that the call would have."""
    reason: str | None = None
    """Why a person is asked."""
    is_yours: bool = False
    """Whether the caller may answer it."""


class AgentHost(Protocol):
    """Acts for one caller, with its permissions. What the caller may not see is not found."""

    @property
    def may_run(self) -> bool: ...

    @property
    def may_answer(self) -> bool:
        """Whether the caller may answer approvals with a tool call. A person whom its client asks
        may always answer, if the caller has the permission."""
        ...

    @property
    def memory_tools(self) -> Mapping[str, Tool]:
        """The memory tools that the caller may use, by name."""
        ...

    async def agents(self) -> Sequence[PublishedAgent]: ...

    async def skills(self) -> Sequence[Skill]: ...

    async def begin(self, agent_id: str, message: str) -> str:
        """Start a session with a first message; returns its id."""
        ...

    async def send(self, agent_id: str, session_id: str, message: str) -> None:
        """Raises: NotFound: there is no such session of this agent."""
        ...

    async def run(
        self, agent_id: str, session_id: str, on_step: Callable[[str], None]
    ) -> RunReport:
        """Run a session until it ends or waits. Cancelling interrupts it.

        Raises: NotFound: there is no such session of this agent.
        """
        ...

    async def sessions(self, *, agent: str | None, limit: int) -> Sequence[HostedSession]: ...

    async def transcript(self, session_id: str) -> str:
        """The session as Markdown. Raises: NotFound."""
        ...

    async def search(self, query: str, *, limit: int) -> Sequence[SearchLine]: ...

    async def approvals(self, session_id: str | None) -> Sequence[PendingApproval]:
        """Raises: NotFound."""
        ...

    async def answer(
        self, approval_id: str, result: Literal["allow", "deny"], message: str | None
    ) -> None:
        """Raises: NotFound; Forbidden: the caller may not; StaleVersion: it no longer waits."""
        ...


def step_text(event: Event) -> str | None:
    """The line that reports an event as progress of a run, if there is one."""
    match event.payload:
        case events.AgentToolUse(name=name) | events.AgentMcpToolUse(name=name):
            return f"calls {name}"
        case events.AgentMessage(content=content):
            text = " ".join(plain_text(content).split())
            return text[:200] or None
        case _:
            return None


class FinalTexts:
    """The messages of an agent after its last tool call in a run."""

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._texts: list[str] = []

    def apply(self, event: Event) -> None:
        if event.thread_id != self._thread_id:
            return
        match event.payload:
            case events.AgentMessage(content=content):
                self._texts.append(plain_text(content))
            case events.AgentToolUse() | events.AgentMcpToolUse() | events.AgentCustomToolUse():
                self._texts.clear()
            case _:
                pass

    @property
    def text(self) -> str:
        return "\n\n".join(self._texts)


async def run_report(log: SessionLog, session_id: str, text: str) -> RunReport:
    """The report of a run that ended with the message `text`."""
    summary = await summarize_session(log, await log.session(session_id))
    return RunReport(
        session_id=session_id,
        status=summary.reason or summary.status,
        text=text,
        turns=summary.turns,
        cost_usd=str(summary.cost_usd),
    )


async def transcript_of(log: SessionLog, session: SessionRow) -> str:
    pieces = export_session(log, session, "markdown", version=__version__)
    return b"".join([piece async for piece in pieces]).decode("utf-8", "replace")
