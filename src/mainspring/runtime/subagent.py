"""A type of subagent, and the built-in types that every agent may call; a file with the same
name replaces a built-in one.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

from msgspec import Struct, field

from mainspring.core.model import Effort, ToolSpec
from mainspring.runtime.definition_files.scopes import Scope
from mainspring.runtime.mcp_server import McpServerTools
from mainspring.runtime.skills.skill import Skill

Isolation: TypeAlias = Literal[
    "shared",  # the parent's workspace and sandbox
    "worktree",  # its own git worktree, to be merged or discarded
]


class StandaloneParts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parts of a subagent that is a complete agent and inherits nothing from its caller."""

    built_ins: tuple[str, ...] = ()
    client_tools: tuple[ToolSpec, ...] = ()
    skills: tuple[Skill, ...] = ()
    mcp_toolsets: tuple[McpServerTools, ...] = ()


class Subagent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str
    """When to call it; the calling model reads only this."""
    prompt: str
    """Its own instructions."""
    tools: tuple[str, ...] | None = None
    """Names of tools, ours or Claude Code's, `mcp__server` and `Agent(a, b)`; `None`: the parent's
    tools."""
    disallowed_tools: tuple[str, ...] = ()
    """Removed before `tools` applies."""
    model: str | None = None
    """`None`: the parent's. `small`: a cheap model, if the provider has one."""
    effort: Effort | None = None
    permission_mode: str | None = None
    """Never more permissive than the parent's; `None`: `bubble`."""
    max_turns: int | None = None
    max_cost_usd: str | None = None
    skills: tuple[str, ...] = ()
    """Skills whose full text its prompt includes."""
    mcp_servers: tuple[object, ...] = ()
    """Names of servers, and servers by name that only it has."""
    hooks: dict[str, object] = field(default_factory=dict[str, object])
    memory: str | None = None
    """The scope of its own memories: `user`, `project` or `local`."""
    is_background: bool = False
    isolation: Isolation = "shared"
    initial_prompt: str = ""
    color: str | None = None
    reads_instructions: bool = True
    """Whether its prompt includes the instruction files of the agent."""
    must_run_something: bool = False
    """It must run something with a tool before it ends: a verdict needs evidence."""
    own: StandaloneParts | None = None
    """`None`: it has the tools and skills of its parent that `tools` allows."""
    scope: Scope | None = None
    """`None`: built in, or defined in Python."""
    file: str = ""
    extra: dict[str, object] = field(default_factory=dict[str, object])
    """Unknown keys of its frontmatter, unchanged."""

    @property
    def server_names(self) -> frozenset[str]:
        """The MCP servers that it names or has itself."""
        names: list[object] = []
        for item in self.mcp_servers:
            names += cast("dict[object, object]", item) if isinstance(item, dict) else [item]
        return frozenset(name for name in names if isinstance(name, str))


_READ_ONLY_TOOLS = (
    "read",
    "glob",
    "grep",
    "bash",
    "web_fetch",
    "think",
    "history_search",
    "history_read",
)

GENERAL = Subagent(
    name="general",
    description=(
        "Does a piece of work of several steps by itself: research, changes, anything that would"
        " fill your own context with what you do not need afterwards."
    ),
    prompt=(
        "You do one piece of work for another agent. It sees nothing of what you do but your last"
        " message: end with what was asked for, complete, with the paths and facts that are needed"
        " to go on, and say what you could not do or did not check."
    ),
)
EXPLORE = Subagent(
    name="explore",
    description=(
        "Finds things out by reading: where something is, how it works, what depends on it. Quick"
        " and cheap; it changes nothing."
    ),
    prompt=(
        "You look things up for another agent, and change nothing: no edits, no files, no commands"
        " with effects. Search wide first, then read what matters; run independent searches at"
        " once. Your last message is all it sees: answer what was asked, with file paths and line"
        " numbers, and say where you have not looked."
    ),
    tools=_READ_ONLY_TOOLS,
    model="small",
    permission_mode="plan",
    reads_instructions=False,
)
PLAN = Subagent(
    name="plan",
    description="Works out how to do something before it is done: reads, weighs, writes a plan.",
    prompt=(
        "You plan work that others will do, and change nothing yourself. Read what is there before"
        " you decide; name what exists and can be used. Your last message is the plan: what is to"
        " be done in which order, which files, what could go wrong, and how it will be known that"
        " it works. Name the few files that matter most."
    ),
    tools=_READ_ONLY_TOOLS,
    permission_mode="plan",
)
VERIFY = Subagent(
    name="verify",
    description=(
        "Tries to show that finished work is wrong: runs it, tests it, attacks it. Call it after"
        " work that matters, with what was to be done and what was changed."
    ),
    prompt=(
        "You try to show that a piece of work is wrong. Do not trust what you are told about it and"
        " do not repair it: run it. Build it, run its tests, call it with the input that its author"
        " did not think of: empty, huge, twice at once, wrong. For each check give the command and"
        " what it printed; reading code is not a check. Change nothing in the workspace but files"
        " that you make in a temporary folder. End with one line: VERDICT: PASS, VERDICT: FAIL, or"
        " VERDICT: PARTIAL if the environment kept you from checking."
    ),
    tools=(*_READ_ONLY_TOOLS, "python", "service_start", "service_output", "service_stop"),
    must_run_something=True,
)
BUILT_IN_SUBAGENTS: tuple[Subagent, ...] = (EXPLORE, GENERAL, PLAN, VERIFY)
