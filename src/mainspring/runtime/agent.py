"""An agent: its instructions, tools, skills, subagents and limits. A value, which `Runtime`
runs."""

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
from mainspring.runtime.skills.catalogue import render_catalogue
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.subagent import Subagent


@dataclass(frozen=True, kw_only=True)
class Agent:
    name: str = "assistant"
    description: str = ""
    """For people; the model does not see it."""
    instructions: str = ""
    model: str = "default"
    """`provider:name`, or several in order of preference, separated by commas. `default` is the
    value of MAINSPRING_MODEL, else a provider that has a key, else the offline model."""
    tools: Sequence[Tool] = ()
    built_ins: Sequence[str] = ()
    """Names of the built-in tools that it may use, or `*` for all of them. They work in the
    workspace and its sandbox, under its permission rules."""
    client_tools: Sequence[ToolSpec] = ()
    """Tools that the caller runs: the session waits for `Session.settle`."""
    limits: Limits = field(default_factory=Limits)
    effort: Effort = "none"
    rules: Sequence[str] = ()
    """Rules that always apply: pinned, never compacted away."""
    subagents: Sequence[Subagent] = ()
    """The subagents that it may call, each on a thread of its own."""
    max_depth: int = 2
    """How deeply subagents may call other subagents."""
    max_at_once: int = 20
    """How many subagents may run at the same time in a session, at any depth."""
    has_one_model: bool = False
    """Its subagents always use its model, whatever a call or a definition says."""
    is_coordinator: bool = False
    """It only calls subagents, sends them messages and stops them."""
    skills: Sequence[Skill] = ()
    """The skills that it or its user can use."""
    version: str | None = None
    """The version of the folder that describes it, if any: a session keeps the version that it
    began with."""

    @property
    def needs_workspace(self) -> bool:
        """Whether it, or one of its subagents, works in a folder."""
        called = (subagent.own for subagent in self.subagents)
        return bool(self.built_ins) or any(own is not None and own.built_ins for own in called)


def prefix_of(agent: Agent, tools: Iterable[ToolSpec], *, environment: str = "") -> PromptPrefix:
    """The part of the prompt before the messages, in every session of the agent."""
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
    """The agent's own tools and the built-in ones, by name.

    Raises:
        InvalidInput: two of them have the same name.
    """
    tools: dict[str, Tool] = {}
    for tool in (*agent.tools, *built_in):
        if tool.spec.name in tools:
            raise InvalidInput(f"{agent.name} has two tools called {tool.spec.name!r}")
        tools[tool.spec.name] = tool
    if duplicates := sorted(spec.name for spec in agent.client_tools if spec.name in tools):
        raise InvalidInput(f"{agent.name} has two tools called {duplicates[0]!r}")
    return tools


def skill_folders(agent: Agent) -> list[Path]:
    """The folders of all skills: whoever uses one may read and run its files, but not change
    them."""
    subagent_skills = (
        skill
        for subagent in agent.subagents
        if subagent.own is not None
        for skill in subagent.own.skills
    )
    skills = (*agent.skills, *subagent_skills)
    on_disk = (skill for skill in skills if skill.kind == "skill" and skill.file)
    return [Path(folder) for folder in dict.fromkeys(skill.folder for skill in on_disk)]
