"""Tool names and groups of tools; Claude Code's names in rules and calls are mapped to ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

_Tool = TypeVar("_Tool")

ALL_TOOLS = "*"
TASK_TOOLS = frozenset(("task_create", "task_get", "task_list", "task_update"))
"""The tools of the task list: an agent that may use one of them may use them all."""
CRON_TOOLS = frozenset(("cron_create", "cron_delete", "cron_list"))
MCP_RESOURCE_TOOLS = frozenset(("read_mcp_resource",))
ONLY_IF_NAMED = (CRON_TOOLS, MCP_RESOURCE_TOOLS)
"""Groups of tools for agents that name one of them. Few agents schedule, and all would pay for the
definitions; the application selects resources of MCP servers."""
BUILTIN_TOOL_NAMES = frozenset(
    (
        *("read", "write", "edit", "glob", "grep", "artifact", "think", *TASK_TOOLS),
        *("bash", "python", "service_start", "service_output", "service_stop", "web_fetch"),
        "web_search",
        *CRON_TOOLS,
    )
)
"""The names of all built-in tools, whether or not a session has them."""
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "Agent": "agent",
        "AskUserQuestion": "ask_user",
        "Bash": "bash",
        "CronCreate": "cron_create",
        "CronDelete": "cron_delete",
        "CronList": "cron_list",
        "Edit": "edit",
        "ExitPlanMode": "exit_plan_mode",
        "Glob": "glob",
        "Grep": "grep",
        "NotebookEdit": "notebook_edit",
        "Read": "read",
        "SendMessage": "send_message",
        "Skill": "skill",
        "Task": "agent",
        "TaskCreate": "task_create",
        "TaskGet": "task_get",
        "TaskList": "task_list",
        "TaskUpdate": "task_update",
        "TodoWrite": "task_create",
        "ToolSearch": "tool_search",
        "WebFetch": "web_fetch",
        "WebSearch": "web_search",
        "Write": "write",
        "todo": "task_create",
    }
)
"""Our tools' names in other products, each with our name."""

TOOL_NAMES = frozenset((ALL_TOOLS, *BUILTIN_TOOL_NAMES, *ALIASES, *ALIASES.values())) | {
    *("stop_agent", "close_worktree", "mcp_skill", "read_mcp_resource")
}
"""The names that a list of tools may have, beside those of MCP servers."""
READ_TOOLS = frozenset(("read", "glob", "grep"))
EDIT_TOOLS = frozenset(("edit", "write", "notebook_edit", "close_worktree"))
SHELL_TOOLS = frozenset(("bash", "service_start"))
"""Tools that run their `command` in a shell."""
NEEDS_A_PERSON = frozenset(("ask_user", "exit_plan_mode"))
INTERNAL_TOOLS = frozenset(
    (
        *("agent", "close_worktree", "history_read", "history_search", "send_message", "skill"),
        *("knowledge_search", "memory_read", "memory_search"),
        *("skill_search", "start_workflow", "stop_agent", "stop_workflow", "think"),
        *("tool_search", *TASK_TOOLS),
    )
)
"""Tools that change only the session itself; the calls of a subagent and of a workflow are
authorized separately."""
NETWORK_TOOLS = frozenset(("web_fetch", "web_search"))
"""Tools that only read, but whose request itself sends data out."""
READ_ANYTHING = frozenset(("python",))
"""Tools that only read, but which files is unknown in advance."""
_OLDER_NAMES = frozenset(("Task", "TodoWrite", "todo"))
_CLAUDE_CODE_NAMES = {
    ours: theirs for theirs, ours in ALIASES.items() if theirs not in _OLDER_NAMES
}
_FAMILIES = {"read": READ_TOOLS, "edit": EDIT_TOOLS, "bash": SHELL_TOOLS, "task_create": TASK_TOOLS}
"""A rule for one of these covers the whole family."""


def is_tool_name(name: str) -> bool:
    """Whether a list of tools may have this name, with or without a rule in parentheses."""
    return name.startswith("mcp__") or name.partition("(")[0] in TOOL_NAMES


def canonical_name(name: str) -> str:
    return ALIASES.get(name, name)


def claude_code_name(name: str) -> str:
    """The tool's name in rules, and in Claude Code's hooks and settings."""
    return _CLAUDE_CODE_NAMES.get(name, name)


def tool_family(name: str) -> frozenset[str]:
    """The tools that a rule with this name covers."""
    return _FAMILIES.get(name, frozenset((name,)))


def select_tools(tools: Mapping[str, _Tool], names: Sequence[str]) -> dict[str, _Tool]:
    """The tools that an agent may use: those in `names`, or all except groups that must be
    named."""
    unnamed = {name for group in ONLY_IF_NAMED if not group.intersection(names) for name in group}
    selected = {*names, *(TASK_TOOLS if TASK_TOOLS.intersection(names) else ())}
    return {
        name: tool
        for name, tool in tools.items()
        if name not in unnamed
        and (ALL_TOOLS in names or name in selected or _covers_server_tool(names, name))
    }


def _covers_server_tool(names: Sequence[str], tool: str) -> bool:
    """Whether `mcp__server` or `mcp__server__*` in `names` covers a tool."""
    return any(
        name.startswith("mcp__") and tool.startswith(f"{name.removesuffix('__*')}__")
        for name in names
    )
