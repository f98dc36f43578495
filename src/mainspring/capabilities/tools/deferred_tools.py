"""Which tools of an agent the model is only told the names of, until it asks for one."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.capabilities.tools.tool_search import tool_search
from mainspring.core.tool import Tool

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
