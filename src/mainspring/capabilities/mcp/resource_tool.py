"""The tool with which the model reads resources of MCP servers."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.capabilities.mcp.foreign_text import clean_line
from mainspring.capabilities.mcp.references import read_resource
from mainspring.capabilities.mcp.server_connection import ServerConnection
from mainspring.core.errors import McpFailed
from mainspring.core.tool import Tool
from mainspring.function_tools.define import tool

_MAX_LISTED = 200


def resource_tool(connections: Mapping[str, ServerConnection]) -> Tool:
    """`connections`: by the server's name in the names of its tools."""

    @tool(read_only=True, concurrent=True)
    async def read_mcp_resource(server: str, uri: str = "") -> str:
        """Read a resource of an MCP server, or list the resources that it has.

        Args:
            server: The server, as in `mcp__SERVER__tool`.
            uri: The resource; without it, all are listed.
        """
        connection = connections.get(server)
        if connection is None:
            return f"There is no MCP server {clean_line(server, 80)}: {', '.join(connections)}."
        if uri:
            return await read_resource(connection, server, uri)
        try:
            resources = await (await connection.client()).list_resources()
        except McpFailed as error:
            return f"The resources could not be listed: {clean_line(str(error), 300)}"
        lines = [clean_line(f"{item.uri} {item.title or item.name}", 500) for item in resources]
        more = [f"[{len(lines) - _MAX_LISTED:,} more]"] if len(lines) > _MAX_LISTED else []
        return "\n".join([*lines[:_MAX_LISTED], *more]) or "It has none."

    return read_mcp_resource
