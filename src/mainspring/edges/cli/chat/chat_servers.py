"""`/mcp` in chat: shows the session's MCP servers and their tools, reconnects and disables them."""

from __future__ import annotations

from anyio import to_thread

from mainspring.capabilities.mcp.session_servers import SessionServers
from mainspring.capabilities.mcp.tools import server_key, tool_prefix
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput, McpFailed
from mainspring.edges.cli.render.mcp_views import (
    SERVER_HEADS,
    TOOL_HEADS,
    server_row,
    server_views,
    tool_row,
    tool_view,
)
from mainspring.edges.cli.render.printing import Screen
from mainspring.runtime.agent_folder import mcp_edits
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.settings.session_servers import ProjectServers
from mainspring.wiring.mcp_servers import SERVERS, read_project_servers
from mainspring.wiring.settings_files import edit_servers

USAGE = "/mcp, /mcp tools|reconnect|enable|disable NAME"


async def run_mcp_command(
    settings: Settings, notes: Screen, session_id: str | None, arguments: str
) -> None:
    """
    Raises:
        InvalidInput: there is no such server, or it is not connected.
    """
    project = await to_thread.run_sync(read_project_servers, settings)
    servers = None if session_id is None else SERVERS.of_session(session_id)
    word, _, name = arguments.partition(" ")
    name = name.strip()
    if word and name not in {server.name for server in project.every}:
        names = ", ".join(server.name for server in project.every) or "none"
        raise InvalidInput(f"{USAGE}; there are: {names}")
    match word:
        case "":
            _print_servers(notes, project, servers)
        case "tools":
            _print_tools(notes, _require_connected(servers, name), name)
        case "reconnect":
            await _reconnect(notes, _require_connected(servers, name), name)
        case "enable" | "disable":
            _set_enabled(settings, notes, project, name, is_enabled=word == "enable")
        case _:
            raise InvalidInput(USAGE)


def _print_servers(
    notes: Screen, project: ProjectServers, servers: SessionServers[McpServer] | None
) -> None:
    views = server_views(project, servers)
    if not views:
        return notes.paragraph(("no MCP servers here; `mainspring mcp add` adds one", "dim"))
    notes.table(SERVER_HEADS, [server_row(view) for view in views])
    if servers is None:
        notes.paragraph(("they are connected with the first message", "dim"))
    return None


def _print_tools(notes: Screen, servers: SessionServers[McpServer], name: str) -> None:
    views = [
        tool_view(tool)
        for tool_name, tool in sorted(servers.tools.items())
        if tool_name.startswith(tool_prefix(name))
    ]
    notes.table(TOOL_HEADS, [tool_row(view, 80) for view in views])


async def _reconnect(notes: Screen, servers: SessionServers[McpServer], name: str) -> None:
    try:
        await servers.connections[server_key(name)].reconnect()
    except McpFailed as error:
        raise InvalidInput(f"{name}: {error}") from error
    notes.paragraph((f"{name} is connected; its tools are read before the next turn", "dim"))


def _set_enabled(
    settings: Settings, notes: Screen, project: ProjectServers, name: str, *, is_enabled: bool
) -> None:
    scope = next(server.scope for server in project.every if server.name == name)
    if scope not in ("project", "user"):
        raise InvalidInput(f"{name} is defined for all users, or by another program")
    edit_servers(
        settings, scope, lambda file: mcp_edits.enable_server(file, name, is_enabled=is_enabled)
    )
    state = "enabled" if is_enabled else "disabled"
    notes.paragraph((f"{name} is {state} from the next message on", "dim"))


def _require_connected(
    servers: SessionServers[McpServer] | None, name: str
) -> SessionServers[McpServer]:
    if servers is None or server_key(name) not in servers.connections:
        raise InvalidInput(f"{name} is not connected in this session yet")
    return servers
