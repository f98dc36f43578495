"""Models and tools that an agent's files name, compared with those that exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import partial
from typing import TypeAlias

from mainspring.harness.permissions.tool_names import ALIASES, ALL_TOOLS, BUILTIN_TOOL_NAMES
from mainspring.runtime.agent_folder import manifest
from mainspring.runtime.agent_folder.validation import IgnoredItem
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.subagent import Subagent

MissingModel: TypeAlias = Callable[[str], str | None]
"""Why there is no model of a name; `None` if there is one."""
_TOOL_NAMES = {
    ALL_TOOLS,
    *BUILTIN_TOOL_NAMES,
    *ALIASES,
    *ALIASES.values(),
    "stop_agent",
    "close_worktree",
}


def check_manifest_names(
    missing_model: MissingModel, said: manifest.AgentManifest
) -> Iterator[Finding]:
    tell = partial(Finding, file=manifest.FILE)
    for name in said.tools:
        if not _is_tool(name):
            fix = _suggestion(name) or f"there are {', '.join(sorted(BUILTIN_TOOL_NAMES))}"
            line = said.lines.get("tools")
            yield tell(level="warning", line=line, what=f"there is no tool {name}", fix=fix)
    if (why := missing_model(said.model)) is not None:
        what, _, fix = why.partition("; ")
        yield tell(level="error", line=said.lines.get("model"), what=what, fix=fix)


def check_subagent_names(missing_model: MissingModel, subagent: Subagent) -> Iterator[IgnoredItem]:
    """These are no mistakes: files of Claude Code name what only Claude Code has."""
    for name in subagent.tools or ():
        if not _is_tool(name):
            why = f"there is none here; {_suggestion(name)}".removesuffix("; ")
            yield IgnoredItem(f"{subagent.name}: tool {name}", why)
    if (why := missing_model(subagent.model or "")) is not None:
        what = f"{subagent.name}: model {subagent.model}"
        yield IgnoredItem(what, f"it has its parent's, for there is {why}")


def _is_tool(name: str) -> bool:
    return name.startswith("mcp__") or name.partition("(")[0] in _TOOL_NAMES


def _suggestion(name: str) -> str:
    near = get_close_matches(name.partition("(")[0], sorted(_TOOL_NAMES), n=1)
    return f"did you mean {near[0]}?" if near else ""
