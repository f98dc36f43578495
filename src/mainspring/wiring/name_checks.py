"""Models and tools that an agent's files name, held against those that there are."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.config import FOLDER, Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.harness.permissions.tool_names import ALIASES
from mainspring.runtime.agent_folder import manifest
from mainspring.runtime.agent_folder.validation import IgnoredItem
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.subagent import Subagent
from mainspring.wiring.builtin_tools import ALL_TOOLS, BUILTIN_TOOL_NAMES

if TYPE_CHECKING:
    from mainspring.capabilities.providers import catalog
else:
    catalog = LazyModule("mainspring.capabilities.providers.catalog")  # most agents name no model

_RELATIVE_MODELS = ("inherit", "small", "default")
"""Whichever it is where the agent runs."""
_SCRIPT_PREFIX = "scripted:"
_TOOL_NAMES = {
    ALL_TOOLS,
    *BUILTIN_TOOL_NAMES,
    *ALIASES,
    *ALIASES.values(),
    "stop_agent",
    "close_worktree",
}


def check_manifest_names(settings: Settings, said: manifest.AgentManifest) -> Iterator[Finding]:
    tell = partial(Finding, file=manifest.FILE)
    for name in said.tools:
        if not _is_tool(name):
            fix = _suggestion(name) or f"there are {', '.join(sorted(BUILTIN_TOOL_NAMES))}"
            line = said.lines.get("tools")
            yield tell(level="warning", line=line, what=f"there is no tool {name}", fix=fix)
    if (why := missing_model_reason(settings, said.model)) is not None:
        what, _, fix = why.partition("; ")
        yield tell(level="error", line=said.lines.get("model"), what=what, fix=fix)


def check_subagent_names(settings: Settings, subagent: Subagent) -> Iterator[IgnoredItem]:
    """Nothing of it is wrong: files of Claude Code name what only Claude Code has."""
    for name in subagent.tools or ():
        if not _is_tool(name):
            why = f"there is none here; {_suggestion(name)}".removesuffix("; ")
            yield IgnoredItem(f"{subagent.name}: tool {name}", why)
    if (why := missing_model_reason(settings, subagent.model or "")) is not None:
        what = f"{subagent.name}: model {subagent.model}"
        yield IgnoredItem(what, f"it has its parent's, for there is {why}")


def _is_tool(name: str) -> bool:
    return name.startswith("mcp__") or name.partition("(")[0] in _TOOL_NAMES


def _suggestion(name: str) -> str:
    near = get_close_matches(name.partition("(")[0], sorted(_TOOL_NAMES), n=1)
    return f"did you mean {near[0]}?" if near else ""


def missing_model_reason(settings: Settings, names: str) -> str | None:
    """Why there is no such model; of scripts, whoever runs them says so."""
    wanted = [name.strip() for name in names.split(",")]
    wanted = [entry for entry in wanted if entry not in ("", *_RELATIVE_MODELS)]
    wanted = [entry for entry in wanted if not entry.startswith(_SCRIPT_PREFIX)]
    if not wanted:
        return None
    try:
        known = catalog.Catalog.load(Path(settings.folder) / FOLDER / "models.toml")
        for item in wanted:
            known.resolve(item)
    except InvalidInput as error:
        return str(error)
    return None
