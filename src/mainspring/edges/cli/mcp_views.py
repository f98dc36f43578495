"""What `mainspring mcp` prints of servers and tools. No argument, header or variable is in it."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from mainspring.capabilities.mcp.foreign_text import clean_line
from mainspring.capabilities.mcp.session_servers import SessionServers
from mainspring.capabilities.mcp.tools import server_key
from mainspring.capabilities.providers.token_estimate import text_tokens
from mainspring.core.tool import Tool
from mainspring.edges.cli.printing import StyledText
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.settings.session_servers import ProjectServers


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
    """About what the definitions of its tools cost in every request."""


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
    why = project.unused_reason(server)
    return ServerView(
        name=name,
        transport=server.transport,
        file=server.file,
        state="unknown" if why is None else "unused",
        detail=why or "",
    )


def server_view(opened: SessionServers[McpServer], view: ServerView) -> ServerView:
    key = server_key(view.name)
    connection = opened.connections.get(key)
    if connection is None or view.state == "unused":
        return view
    if connection.error is not None:
        last = clean_line(connection.error_output.rpartition("\n")[2], 200)
        detail = f"{connection.error}: {last}" if last else connection.error
        return msgspec.structs.replace(view, state="failed", detail=detail)
    own = [tool for name, tool in opened.tools.items() if name.startswith(f"mcp__{key}__")]
    return msgspec.structs.replace(
        view,
        state="connected",
        version="" if connection.info is None else connection.info.version,
        tools=len(own),
        tokens=sum(tool_view(tool).tokens for tool in own),
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


def tool_view(tool: Tool) -> ToolView:
    name = tool.spec.name
    return ToolView(
        server=name.removeprefix("mcp__").partition("__")[0],
        name=name,
        description=tool.spec.description,
        tokens=text_tokens(msgspec.json.encode(tool.spec).decode()),
    )
