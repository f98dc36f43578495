"""An agent: who it is, what it may use, how far it may go. A value; running it is `Runtime`'s."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mainspring.core.errors import InvalidInput
from mainspring.core.model import Effort, ToolSpec
from mainspring.core.tool import Tool
from mainspring.harness.context.prompts import system_prompt
from mainspring.harness.context.request_builder import PromptPrefix, sorted_specs
from mainspring.harness.limits import Limits
from mainspring.harness.permissions.policy import PolicyRule
from mainspring.runtime.skills.catalogue import render_catalogue
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.subagent import Subagent


@dataclass(frozen=True, kw_only=True)
class Agent:
    name: str = "assistant"
    description: str = ""
    """What it is for, to people; the model is not told."""
    instructions: str = ""
    model: str = "default"
    """`provider:name`, or several in order of preference, separated by commas; `default` is what
    MAINSPRING_MODEL says, else a provider that there is a key for, else the offline model."""
    tools: Sequence[Tool] = ()
    built_ins: Sequence[str] = ()
    """Names of Mainspring's own tools that it may use, or `*` for all of them. They work in the
    workspace and its sandbox, under its permission rules."""
    client_tools: Sequence[ToolSpec] = ()
    """Tools that the caller runs: the session waits for `Session.settle`."""
    limits: Limits = field(default_factory=Limits)
    effort: Effort = "none"
    rules: Sequence[str] = ()
    """What must hold whatever happens: pinned, never compacted away."""
    subagents: Sequence[Subagent] = ()
    """Whom it may call for help, each on a thread of its own."""
    max_depth: int = 2
    """How deep subagents may call others."""
    max_at_once: int = 20
    """How many of them may be at work in a session at the same time, at whatever depth."""
    has_one_model: bool = False
    """Whom it calls uses its model too, whatever a call or a description says."""
    is_coordinator: bool = False
    """It only calls others, sends them messages and stops them."""
    skills: Sequence[Skill] = ()
    """What it, or its user, can bring up when it is needed."""
    version: str | None = None
    """Of the folder that describes it, if one does: a session keeps to what it began with."""


def prefix_of(agent: Agent, tools: Iterable[ToolSpec], *, environment: str = "") -> PromptPrefix:
    """What stands before the messages of every session of the agent."""
    return PromptPrefix(
        model=agent.model,
        system=system_prompt(
            instructions=agent.instructions,
            rules=agent.rules,
            skills="" if agent.is_coordinator else render_catalogue(agent.skills),
            environment=environment,
        ),
        tools=sorted_specs(tools),
        effort=agent.effort,
    )


def tools_of(agent: Agent, *built_in: Tool) -> dict[str, Tool]:
    """The agent's tools and ours, by name.

    Raises:
        InvalidInput: two of them have the same name.
    """
    tools: dict[str, Tool] = {}
    for tool in (*agent.tools, *built_in):
        if tool.spec.name in tools:
            raise InvalidInput(f"{agent.name} has two tools called {tool.spec.name!r}")
        tools[tool.spec.name] = tool
    if both := sorted(spec.name for spec in agent.client_tools if spec.name in tools):
        raise InvalidInput(f"{agent.name} has two tools called {both[0]!r}")
    return tools


def skill_folders(agent: Agent) -> list[Path]:
    """What skills bring with them: to be read and run by whoever uses one, and not changed."""
    own = (
        skill
        for subagent in agent.subagents
        if subagent.own is not None
        for skill in subagent.own.skills
    )
    every = (*agent.skills, *own)
    kept = (skill for skill in every if skill.kind == "skill" and skill.file)
    return [Path(folder) for folder in dict.fromkeys(skill.folder for skill in kept)]


def reading_rules(agent: Agent) -> tuple[PolicyRule, ...]:
    """Nobody need be asked before a file of a skill is read, wherever that stands."""
    return tuple(
        PolicyRule(text=f"Read(/{folder.as_posix()}/**)", behavior="allow", source="skills")
        for folder in skill_folders(agent)
    )
