"""Where each thread of a session sits: whose agent it is, which tools it has, who pays."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.core.content import TextBlock
from mainspring.core.events import ThreadMessageReceived
from mainspring.core.tool import Tool
from mainspring.harness.context.view import Prefix
from mainspring.harness.desk import Desk
from mainspring.harness.ensemble import Member
from mainspring.harness.limits import Limits
from mainspring.harness.tiers import Tier
from mainspring.runtime.agent import Agent
from mainspring.runtime.crew.built_in import GENERAL
from mainspring.runtime.crew.casting import cast_as, only_for, strictest
from mainspring.runtime.crew.evidence import Evidence
from mainspring.runtime.crew.subagent import Subagent
from mainspring.runtime.desks import Office, Seat, desk_for
from mainspring.runtime.kit import Kit, Opening, bare
from mainspring.runtime.skills.preloaded import preload, preloading

if TYPE_CHECKING:
    from mainspring.runtime.crew.crew import Crew

FORK = "fork"
"""The name of a subagent that begins with all that its parent has read and said."""

_ANYBODY = Subagent(name=FORK, description="", prompt="")

Extras = Callable[["Crew", Member, Agent], Sequence[Tool]]
"""What a thread can do besides: call others, bring up skills."""


@dataclass(slots=True, kw_only=True)
class Seating:
    office: Office
    agent: Agent
    """The main thread's."""
    kit: Kit
    extras: Extras
    _agents: dict[str, Agent] = field(default_factory=dict[str, Agent], init=False)
    _prefixes: dict[str, Prefix] = field(default_factory=dict[str, Prefix], init=False)

    def main_desk(self, crew: Crew) -> Desk:
        member = self.office.record.ensemble.main
        seat = Seat(
            member=member,
            agent=self.agent,
            kit=self.kit,
            tools=self.extras(crew, member, self.agent),
            others=crew,
        )
        return self._remembered(member, desk_for(self.office, seat))

    @asynccontextmanager
    async def seated(self, member: Member, crew: Crew) -> AsyncGenerator[Desk, None]:
        agent, kind = self.agent_of(member), self.kind_of(member)
        is_first = member.thread.turns == 0 and not member.thread.running
        if kind.skills:
            text = await to_thread.run_sync(preload, kind, self.agent.skills)
            agent = replace(agent, instructions="\n\n".join((agent.instructions, text)))
        async with self._kit_for(member, agent) as kit:
            seat = Seat(
                member=member,
                agent=agent,
                kit=replace(kit, tools=only_for(self._cast_of(member), kit.tools), client_tools=()),
                tools=self.extras(crew, member, agent),
                others=crew,
                above=self._above(member),
                prefix=self._prefixes.get(member.parent_id or "") if kind.name == FORK else None,
            )
            desk = desk_for(self.office, seat)
            desk.is_heard_for = True
            desk.note(*kit.facts)
            if is_first:
                desk.note(*preloading(kind, self.agent.skills))
            if kind.must_run_something:
                desk.gates = Evidence(desk.gates)
            yield self._remembered(member, desk)

    def agent_of(self, member: Member) -> Agent:
        """Who a thread is, by its type and by who has called it."""
        if member.birth is None or member.parent_id is None:
            return self.agent
        if member.id not in self._agents:
            parent = self.agent_of(self.office.record.ensemble.members[member.parent_id])
            kind = self.kind_of(member)
            if kind.name == FORK:
                self._agents[member.id] = replace(parent, limits=Limits())
            else:
                cast = cast_as(kind, parent, member.birth, self.office.models)
                self._agents[member.id] = cast
        return self._agents[member.id]

    def kind_of(self, member: Member) -> Subagent:
        """The type of a thread that is not the main one."""
        if member.name == FORK:
            return _ANYBODY
        known = {kind.name: kind for kind in self.agent.subagents}
        return known.get(member.name or "", GENERAL)

    def task_of(self, member: Member, parent: Member, prompt: str) -> ThreadMessageReceived:
        """The first thing that a thread reads."""
        kind = self.kind_of(member)
        text = "\n\n".join(filter(None, (kind.initial_prompt, prompt)))
        return ThreadMessageReceived(
            from_session_thread_id=parent.id,
            from_agent_name=parent.name,
            content=(TextBlock(text),),
        )

    def _above(self, member: Member) -> list[Tier]:
        chain = list(self.office.record.ensemble.upwards(member))[1:]
        return [Tier(each.account, self.agent_of(each).limits) for each in chain]

    def _cast_of(self, member: Member) -> Subagent:
        """Whose tools a thread has: those of a fork are its parent's, whoever that is."""
        chain = self.office.record.ensemble.upwards(member)
        called = (each for each in chain if each.birth is not None)
        return next((kind for kind in map(self.kind_of, called) if kind.name != FORK), _ANYBODY)

    def _kit_for(self, member: Member, agent: Agent) -> AbstractAsyncContextManager[Kit]:
        chain = list(self.office.record.ensemble.upwards(member))
        worktree = next((each.worktree for each in chain if each.worktree is not None), None)
        opening = Opening(
            agent=agent,
            thread=member.thread,
            writer=self.office.record.writer,
            log=self.office.log,
            mode=strictest(self.kind_of(each) for each in chain if each.birth is not None),
            subagent=member.name,
            workspace=None if worktree is None else Path(worktree.path),
        )
        outfit = self.kit.for_thread or bare(self.kit.gates)
        return outfit(opening)

    def _remembered(self, member: Member, desk: Desk) -> Desk:
        """What stands before its messages: forks of it begin with the same bytes."""
        self._prefixes[member.id] = desk.prefix
        return desk
