"""Models and tools that an agent's files name, held against those that there are."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.config import FOLDER, Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy import LazyModule
from mainspring.harness.permissions.names import ALIASES
from mainspring.runtime.crew.subagent import Subagent
from mainspring.runtime.folder import manifest
from mainspring.runtime.folder.checking import Ignored
from mainspring.runtime.folder.finding import Finding
from mainspring.wiring.built_ins import ALL, NAMES

if TYPE_CHECKING:
    from mainspring.capabilities.providers import catalog
else:
    catalog = LazyModule("mainspring.capabilities.providers.catalog")  # most agents name no model

_BY_CASE = ("inherit", "small", "default")
"""Whichever it is where the agent runs."""
_SCRIPT = "scripted:"
_TOOLS = {ALL, *NAMES, *ALIASES, *ALIASES.values(), "stop_agent", "close_worktree"}


def of_manifest(settings: Settings, said: manifest.Manifest) -> Iterator[Finding]:
    tell = partial(Finding, file=manifest.FILE)
    for name in said.tools:
        if not _is_tool(name):
            fix = _near(name) or f"there are {', '.join(sorted(NAMES))}"
            line = said.lines.get("tools")
            yield tell(level="warning", line=line, what=f"there is no tool {name}", fix=fix)
    if (why := without_model(settings, said.model)) is not None:
        what, _, fix = why.partition("; ")
        yield tell(level="error", line=said.lines.get("model"), what=what, fix=fix)


def of_subagent(settings: Settings, subagent: Subagent) -> Iterator[Ignored]:
    """Nothing of it is wrong: files of Claude Code name what only Claude Code has."""
    for name in subagent.tools or ():
        if not _is_tool(name):
            why = f"there is none here; {_near(name)}".removesuffix("; ")
            yield Ignored(f"{subagent.name}: tool {name}", why)
    if (why := without_model(settings, subagent.model or "")) is not None:
        what = f"{subagent.name}: model {subagent.model}"
        yield Ignored(what, f"it has its parent's, for there is {why}")


def _is_tool(name: str) -> bool:
    return name.startswith("mcp__") or name.partition("(")[0] in _TOOLS


def _near(name: str) -> str:
    near = get_close_matches(name.partition("(")[0], sorted(_TOOLS), n=1)
    return f"did you mean {near[0]}?" if near else ""


def without_model(settings: Settings, names: str) -> str | None:
    """Why there is no such model; of scripts, whoever runs them says so."""
    wanted = [each.strip() for each in names.split(",")]
    wanted = [each for each in wanted if each not in ("", *_BY_CASE)]
    wanted = [each for each in wanted if not each.startswith(_SCRIPT)]
    if not wanted:
        return None
    try:
        known = catalog.Catalog.load(Path(settings.folder) / FOLDER / "models.toml")
        for each in wanted:
            known.resolve(each)
    except InvalidInput as error:
        return str(error)
    return None
