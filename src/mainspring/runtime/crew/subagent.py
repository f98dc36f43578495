"""A type of subagent: whom an agent may call for help. A value; who is at work is `crew`'s."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from mainspring.core.model import Effort, ToolSpec
from mainspring.runtime.folder.scopes import Scope
from mainspring.runtime.skills.skill import Skill

Isolation: TypeAlias = Literal[
    "shared",  # the parent's workspace and sandbox
    "worktree",  # a git worktree of its own, to be merged or thrown away
]


class Own(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent in its own right has, and nothing of who calls it."""

    built_ins: tuple[str, ...] = ()
    client_tools: tuple[ToolSpec, ...] = ()
    skills: tuple[Skill, ...] = ()


class Subagent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str
    """When to call it: the calling model reads this and nothing else."""
    prompt: str
    """Its own instructions."""
    tools: tuple[str, ...] | None = None
    """Names, ours or Claude Code's, `mcp__server` and `Agent(a, b)`; `None`: the parent's."""
    disallowed_tools: tuple[str, ...] = ()
    """Taken away first."""
    model: str | None = None
    """`None`: the parent's. `small`: a cheap one, if the provider is known to have it."""
    effort: Effort | None = None
    permission_mode: str | None = None
    """Never laxer than the parent's; `None`: `bubble`."""
    max_turns: int | None = None
    max_cost_usd: str | None = None
    skills: tuple[str, ...] = ()
    """Whose whole text it begins with."""
    mcp_servers: tuple[object, ...] = ()
    hooks: dict[str, object] = field(default_factory=dict[str, object])
    memory: str | None = None
    is_background: bool = False
    isolation: Isolation = "shared"
    initial_prompt: str = ""
    color: str | None = None
    reads_instructions: bool = True
    """Whether it is told what the agent's instruction files say, too."""
    must_run_something: bool = False
    """It may not end before a tool of its has run something: a verdict needs evidence."""
    own: Own | None = None
    """`None`: it has its parent's tools and skills, as far as `tools` goes."""
    scope: Scope | None = None
    """`None`: one of ours, or made in Python."""
    file: str = ""
    extra: dict[str, object] = field(default_factory=dict[str, object])
    """Keys of its frontmatter that we know nothing of, as they are."""
