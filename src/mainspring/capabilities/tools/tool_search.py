"""The tool_search tool: which tools are deferred, and how the model finds and loads them, so
that their schemas need not be sent before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.core.content import TextBlock
from mainspring.core.events import ToolsLoaded
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.retrieval.bm25 import Bm25Index

_SELECT = "select:"
_MAX_LISTED_CHARS = 20_000
_MAX_LINE = 120


def tool_search(deferred: Sequence[ToolSpec]) -> Tool:
    specs = {spec.name: spec for spec in sorted(deferred, key=lambda spec: spec.name)}
    ranking = Bm25Index({name: spec.description for name, spec in specs.items()})

    @tool(description=_description(list(specs.values())), read_only=True, in_doubt="retry")
    async def tool_search(
        query: str, max_results: Annotated[int, Meta(ge=1, le=20)] = 5
    ) -> ToolResult:
        """Find tools.

        Args:
            query: Words that say what the tool is to do, or "select:name1,name2" for exactly these.
            max_results: How many tools to load at most.
        """
        if query.strip().lower().startswith(_SELECT):
            names = [name.strip() for name in query.strip()[len(_SELECT) :].split(",")]
            found = [specs[name] for name in dict.fromkeys(names) if name in specs]
            missing = [name for name in names if name and name not in specs]
        else:
            found = [specs[name] for name in ranking.search(query, max_results)]
            missing = []
        return _outcome(found, missing, ranking)

    return tool_search


def _description(specs: Sequence[ToolSpec]) -> str:
    lines: list[str] = []
    room = _MAX_LISTED_CHARS
    for spec in specs:
        line = f"- {spec.name}: {one_line(spec.description)}"
        room -= len(line)
        if room < 0:
            lines.append(f"- and {len(specs) - len(lines)} more, which a search finds")
            break
        lines.append(line)
    intro = (
        "Load tools that are not loaded yet. Only their names are known until then: find them by"
        " what they do, or name them, and they can be called from the next message on. There are:"
    )
    return "\n".join([intro, *lines])


def one_line(description: str) -> str:
    """The beginning of a description, as one line."""
    first = " ".join(description.strip().partition("\n\n")[0].split())
    sentence = first.partition(". ")[0].rstrip(".")
    return sentence if len(sentence) <= _MAX_LINE else f"{sentence[: _MAX_LINE - 1]}…"


def _outcome(found: Sequence[ToolSpec], missing: Sequence[str], index: Bm25Index) -> ToolResult:
    notes = [f"There is no deferred tool {name!r}.{_like(name, index)}" for name in missing]
    if not found:
        text = " ".join(notes) or "No tool fits. Try other words for what it is to do."
        return ToolResult.text(text, ok=False, error="failed")
    shown = [msgspec.json.encode(spec, order="sorted").decode() for spec in found]
    text = "\n".join(["Loaded; call them like any other tool:", *shown, *notes])
    return ToolResult((TextBlock(text),), facts=(ToolsLoaded(names=tuple(s.name for s in found)),))


def _like(name: str, index: Bm25Index) -> str:
    similar = ", ".join(index.search(name, 3))
    return f" Similar: {similar}." if similar else ""


MAX_LOADED_TOOLS = 40


def deferred_tools(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Of many tools: those of MCP servers, and of others what is over the number."""
    if len(tools) <= MAX_LOADED_TOOLS:
        return {}
    own = [name for name in tools if not name.startswith("mcp__")]
    at_once = frozenset(own[:MAX_LOADED_TOOLS])
    return {name: tool for name, tool in tools.items() if name not in at_once}


def tool_search_tools(deferred: Mapping[str, Tool]) -> list[Tool]:
    """What the model loads them with."""
    return [tool_search([tool.spec for tool in deferred.values()])] if deferred else []
