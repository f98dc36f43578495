"""Which tools of an agent the model is only told the names of, until it asks for one."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.capabilities.tools.tool_search import tool_search
from mainspring.core.tool import Tool

MOST_AT_ONCE = 40


def deferred_of(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Of many tools: those of MCP servers, and of others what is over the number."""
    if len(tools) <= MOST_AT_ONCE:
        return {}
    own = [name for name in tools if not name.startswith("mcp__")]
    at_once = frozenset(own[:MOST_AT_ONCE])
    return {name: tool for name, tool in tools.items() if name not in at_once}


def loading(deferred: Mapping[str, Tool]) -> list[Tool]:
    """What the model loads them with."""
    return [tool_search([tool.spec for tool in deferred.values()])] if deferred else []
