"""An agent: who it is, what it may use, how far it may go. A value; running it is `Runtime`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mainspring.core.model import Effort
from mainspring.core.tool import Tool
from mainspring.harness.context.prompt import system_prompt
from mainspring.harness.context.view import Prefix, specs
from mainspring.harness.limits import Limits


@dataclass(frozen=True, kw_only=True)
class Agent:
    name: str = "assistant"
    instructions: str = ""
    model: str = "scripted:demo"
    """`provider:name`, or several in order of preference, separated by commas."""
    tools: Sequence[Tool] = ()
    limits: Limits = field(default_factory=Limits)
    effort: Effort = "none"
    rules: Sequence[str] = ()
    """What must hold whatever happens: pinned, never compacted away."""


def prefix_of(agent: Agent, tools: Mapping[str, Tool]) -> Prefix:
    """What stands before the messages of every session of the agent."""
    return Prefix(
        model=agent.model,
        system=system_prompt(instructions=agent.instructions, rules=agent.rules),
        tools=specs(tools),
        effort=agent.effort,
    )
