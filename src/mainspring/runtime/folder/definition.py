"""An agent as data: what a session adopts, to go on with it whatever becomes of the files."""

from __future__ import annotations

from msgspec import Struct, field

from mainspring.core.model import Effort
from mainspring.harness.limits import Limits
from mainspring.runtime.agent import Agent
from mainspring.runtime.crew.subagent import Subagent
from mainspring.runtime.skills.skill import Skill


class Definition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of an agent but tools that are code of its caller's: these come from the caller again."""

    name: str
    description: str = ""
    instructions: str = ""
    model: str = "default"
    effort: Effort = "none"
    tools: tuple[str, ...] = ()
    """Names of built-in ones."""
    rules: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    subagents: tuple[Subagent, ...] = ()
    skills: tuple[Skill, ...] = ()
    max_depth: int = 2
    max_at_once: int = 20
    is_coordinator: bool = False
    version: str | None = None


def definition_of(agent: Agent) -> Definition:
    return Definition(
        name=agent.name,
        description=agent.description,
        instructions=agent.instructions,
        model=agent.model,
        effort=agent.effort,
        tools=tuple(agent.built_ins),
        rules=tuple(agent.rules),
        limits=agent.limits,
        subagents=tuple(agent.subagents),
        skills=tuple(agent.skills),
        max_depth=agent.max_depth,
        max_at_once=agent.max_at_once,
        is_coordinator=agent.is_coordinator,
        version=agent.version,
    )


def agent_of(definition: Definition) -> Agent:
    return Agent(
        name=definition.name,
        description=definition.description,
        instructions=definition.instructions,
        model=definition.model,
        effort=definition.effort,
        built_ins=definition.tools,
        rules=definition.rules,
        limits=definition.limits,
        subagents=definition.subagents,
        skills=definition.skills,
        max_depth=definition.max_depth,
        max_at_once=definition.max_at_once,
        is_coordinator=definition.is_coordinator,
        version=definition.version,
    )
