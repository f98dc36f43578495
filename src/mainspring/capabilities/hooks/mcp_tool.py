"""Hooks that are tools of an MCP server: what they return is read as a program's output is."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, cast

import msgspec

from mainspring.capabilities.hooks.config import McpTool
from mainspring.capabilities.hooks.verdict import Failed, Reply, read_output
from mainspring.core.hook import HookEvent

CallTool: TypeAlias = Callable[[str, str, Mapping[str, object]], Awaitable[str]]
"""Server, tool and input to the text of the result; raises if the tool failed."""

_PATH = re.compile(r"\$\{([\w.]+)\}")


async def run_mcp_tool(
    handler: McpTool, event: HookEvent, payload: bytes, call_tool: CallTool | None
) -> Reply:
    if call_tool is None:
        return Failed("needs an MCP server, and this session has none")
    told = msgspec.json.decode(payload, type=dict[str, object])
    filled = {name: _filled(value, told) for name, value in handler.input.items()}
    answer = await call_tool(handler.server, handler.tool, filled)
    return read_output(event, answer.encode(errors="replace"))


def _filled(value: object, told: Mapping[str, object]) -> object:
    """An input with `${tool_input.file_path}` and the like put in."""
    if isinstance(value, str):
        return _PATH.sub(lambda found: _at(found[1], told), value)
    if isinstance(value, list):
        return [_filled(item, told) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _filled(item, told) for name, item in fields.items()}
    return value


def _at(path: str, told: Mapping[str, object]) -> str:
    name, _, rest = path.partition(".")
    value = told.get(name)
    if rest:
        return _at(rest, cast("dict[str, object]", value)) if isinstance(value, dict) else ""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
