"""MCP servers and tools as `mainspring mcp` prints them, without arguments, headers and variables
of servers."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from mainspring.capabilities.mcp.protocol.foreign_text import clean_line
from mainspring.capabilities.mcp.session_servers import SessionServers
from mainspring.capabilities.mcp.tools import server_key
from mainspring.capabilities.providers.token_estimate import text_tokens
from mainspring.core.tool import Tool
from mainspring.edges.cli.render.printing import StyledText
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.settings.session_servers import ProjectServers

SERVER_HEADS = ["NAME", "TRANSPORT", "STATE", "TOOLS", "TOKENS", "FILE", ""]
TOOL_HEADS = ["TOOL", "TOKENS", "DESCRIPTION"]


class ServerView(Struct, frozen=True, kw_only=True):
    name: str
    transport: str
    file: str
    state: str
    """connected, failed, unused or unknown."""
    detail: str = ""
    version: str = ""
    """Of the protocol."""
    tools: int = 0
    tokens: int = 0
    """The estimated tokens of its tools' definitions in every request."""


class ToolView(Struct, frozen=True, kw_only=True):
    server: str
    name: str
    description: str
    tokens: int


class LoginState(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    is_logged_in: bool
    issuer: str | None = None
    scope: str | None = None
    expires_at: datetime | None = None


def unused_view(project: ProjectServers, name: str) -> ServerView:
    server = next(server for server in project.every if server.name == name)
    reason = project.unused_reason(server)
    return ServerView(
        name=name,
        transport=server.transport,
        file=server.file,
        state="unknown" if reason is None else "unused",
        detail=reason or "",
    )


def server_views(
    project: ProjectServers, servers: SessionServers[McpServer] | None
) -> list[ServerView]:
    """All servers of a project; `servers`: those that a session has connected to."""
    views = [unused_view(project, server.name) for server in project.every]
    return views if servers is None else [server_view(servers, view) for view in views]


def server_view(servers: SessionServers[McpServer], view: ServerView) -> ServerView:
    key = server_key(view.name)
    connection = servers.connections.get(key)
    if connection is None or view.state == "unused":
        return view
    if connection.error is not None:
        last = clean_line(connection.error_output.rpartition("\n")[2], 200)
        detail = f"{connection.error}: {last}" if last else connection.error
        return msgspec.structs.replace(view, state="failed", detail=detail)
    tools = [tool for name, tool in servers.tools.items() if name.startswith(f"mcp__{key}__")]
    return msgspec.structs.replace(
        view,
        state="connected",
        version="" if connection.info is None else connection.info.version,
        tools=len(tools),
        tokens=sum(tool_view(tool).tokens for tool in tools),
    )


def server_row(view: ServerView) -> list[StyledText]:
    styles = {"connected": "green", "failed": "red", "unused": "dim"}
    return [
        (view.name, "bold"),
        (view.transport, ""),
        (view.state, styles.get(view.state, "")),
        (str(view.tools) if view.state == "connected" else "", ""),
        (str(view.tokens) if view.state == "connected" else "", ""),
        (view.file, "dim"),
        (view.detail, ""),
    ]


def tool_row(view: ToolView, max_chars: int) -> list[StyledText]:
    description = clean_line(view.description, max_chars)
    return [(view.name, "bold"), (str(view.tokens), ""), (description, "dim")]


def tool_view(tool: Tool) -> ToolView:
    name = tool.spec.name
    return ToolView(
        server=name.removeprefix("mcp__").partition("__")[0],
        name=name,
        description=tool.spec.description,
        tokens=text_tokens(msgspec.json.encode(tool.spec).decode()),
    )
