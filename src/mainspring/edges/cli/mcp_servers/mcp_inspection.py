"""Questions of `mainspring mcp inspect` to a server and its user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from mainspring.capabilities.mcp.server_connection import ServerConnection
from mainspring.config import Settings
from mainspring.core.errors import McpFailed
from mainspring.edges.cli.render.printing import Screen
from mainspring.edges.cli.run.approval_prompt import fill_form, is_interactive
from mainspring.edges.cli.run.terminal_input import Keyboard


async def ask_arguments(
    settings: Settings, connection: ServerConnection, tool: str
) -> dict[str, object]:
    """Ask for the arguments of a tool with a form, at a terminal."""
    if not is_interactive():
        return {}
    tools = (await (await connection.client()).list_tools()).tools
    schemas = [item.input_schema for item in tools if item.name == tool]
    notes = Screen(settings, stderr=True)
    form = await fill_form(notes, Keyboard(settings).ask, schemas[0]) if schemas else None
    return form or {}


async def offers(connection: ServerConnection) -> list[str]:
    """The tools, resources and prompts of a server, as lines of JSON."""
    client = await connection.client()
    offers: dict[str, object] = {"server": connection.info, "tools": await client.list_tools()}
    listings: dict[str, Callable[[], Awaitable[object]]] = {
        "resources": client.list_resources,
        "prompts": client.list_prompts,
        "skills": client.list_skills,
    }
    for kind, listing in listings.items():
        try:
            offers[kind] = await listing()
        except McpFailed:
            offers[kind] = []  # the server does not support it
    return msgspec.json.format(msgspec.json.encode(offers), indent=2).decode().splitlines()
