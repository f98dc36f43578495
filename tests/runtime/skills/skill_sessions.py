"""Sessions with skills in them, and a shell that only notes what it was to run."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio

from mainspring import Agent, Runtime, open_runtime
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import AgentToolResult, SkillUsed, ToolCallAuthorized
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.harness.permissions.call_analysis import CallLocation
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Policy, PolicyRule
from mainspring.harness.toolbox import Toolbox
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.session.session import Session
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_discovery import discover
from mainspring.runtime.skills.substitution import SkillFacts
from mainspring.runtime.subagent import Subagent
from mainspring.testing import Scripted

FACTS = SkillFacts(session_id="sesn_1", project="/work")
SAY = ToolSpec(name="bash", description="Runs.", input_schema={"type": "object"})


def written(folder: Path, name: str, head: str = "", body: str = "Do $ARGUMENTS.") -> Path:
    place = folder / ".claude" / "skills" / name
    place.mkdir(parents=True)
    text = f"---\nname: {name}\ndescription: Does {name}.\n{head}---\n{body}\n"
    (place / "SKILL.md").write_text(text)
    return place


def found(folder: Path, *, trusted: bool = True) -> tuple[Skill, ...]:
    return discover(Scopes(folder=folder), is_pinned=lambda _: trusted).skills


def bash(ran: list[str]) -> Tool:
    """A shell that only says what it was to run."""

    async def run(call: Call) -> ToolResult:
        ran.append(str(call.input["command"]))
        return ToolResult.text(f"ran {call.input['command']}")

    return Tool(spec=SAY, run=run)


class Site:
    """Where sessions are run by rules, with a shell that notes what it was to run."""

    def __init__(self, runtime: Runtime, *rules: PolicyRule) -> None:
        self.runtime = runtime
        self.ran: list[str] = []
        self._rules = rules
        runtime.toolbox_factory = self._toolbox_factory

    @asynccontextmanager
    async def _toolbox_factory(self, opening: SetupRequest) -> AsyncGenerator[Toolbox]:
        gate = PermissionEngine(
            thread=opening.thread,
            policy=Policy(workspace="/work", rules=self._rules),
            location=lambda: CallLocation(
                workspace="/work", cwd="/work", home="/", resolve=os.path.normpath
            ),
            clock=lambda: datetime(2026, 5, 1, tzinfo=UTC),
            is_sandboxed=False,
        )
        yield Toolbox(authorizer=gate, tools=[bash(self.ran)], for_thread=self._toolbox_factory)

    async def played(self, agent: Agent, *messages: str) -> Session:
        session = await self.runtime.start(agent)
        for message in messages:
            await session.send(message)
            with anyio.fail_after(60):
                await session.run()
        return session


@asynccontextmanager
async def site(folder: Path, model: Scripted, *rules: PolicyRule) -> AsyncGenerator[Site]:
    async with open_runtime(store=str(folder / "log.db")) as runtime:
        runtime.models.put("default", model)
        yield Site(runtime, *rules)


def agent(skills: Sequence[Skill], subagents: Sequence[Subagent] = ()) -> Agent:
    return Agent(name="lead", skills=skills, subagents=subagents)


def results(events: Sequence[Event]) -> list[str]:
    return [plain_text(e.payload.content) for e in events if isinstance(e.payload, AgentToolResult)]


def uses(events: Sequence[Event]) -> list[SkillUsed]:
    return [event.payload for event in events if isinstance(event.payload, SkillUsed)]


def decisions(events: Sequence[Event]) -> list[tuple[str, str | None]]:
    return [
        (event.payload.decision, event.payload.rule)
        for event in events
        if isinstance(event.payload, ToolCallAuthorized)
    ]
