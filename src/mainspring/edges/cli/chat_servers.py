"""`/mcp` in chat: the MCP servers of the session, their tools, and what can be done about them."""

from __future__ import annotations

from anyio import to_thread

from mainspring.capabilities.mcp.foreign_text import clean_line
from mainspring.capabilities.mcp.session_servers import SessionServers
from mainspring.capabilities.mcp.tools import server_key, tool_prefix
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput, McpFailed
from mainspring.edges.cli.mcp_views import server_row, server_view, tool_view, unused_view
from mainspring.edges.cli.printing import Screen
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
    opened = None if session_id is None else SERVERS.of_session(session_id)
    word, _, name = arguments.partition(" ")
    name = name.strip()
    if word and name not in {server.name for server in project.every}:
        names = ", ".join(server.name for server in project.every) or "none"
        raise InvalidInput(f"{USAGE}; there are: {names}")
    match word:
        case "":
            _print_servers(notes, project, opened)
        case "tools":
            _print_tools(notes, _opened(opened, name), name)
        case "reconnect":
            await _reconnect(notes, _opened(opened, name), name)
        case "enable" | "disable":
            _set_enabled(settings, notes, project, name, is_enabled=word == "enable")
        case _:
            raise InvalidInput(USAGE)


def _print_servers(
    notes: Screen, project: ProjectServers, opened: SessionServers[McpServer] | None
) -> None:
    views = [unused_view(project, server.name) for server in project.every]
    if opened is not None:
        views = [server_view(opened, view) for view in views]
    if not views:
        return notes.paragraph(("no MCP servers here; `mainspring mcp add` adds one", "dim"))
    heads = ["NAME", "TRANSPORT", "STATE", "TOOLS", "TOKENS", "FILE", ""]
    notes.table(heads, [server_row(view) for view in views])
    if opened is None:
        notes.paragraph(("they are connected with the first message", "dim"))
    return None


def _print_tools(notes: Screen, opened: SessionServers[McpServer], name: str) -> None:
    views = [
        tool_view(tool)
        for tool_name, tool in sorted(opened.tools.items())
        if tool_name.startswith(tool_prefix(name))
    ]
    rows = [
        [(view.name, "bold"), (str(view.tokens), ""), (clean_line(view.description, 80), "dim")]
        for view in views
    ]
    notes.table(["TOOL", "TOKENS", "DESCRIPTION"], rows)


async def _reconnect(notes: Screen, opened: SessionServers[McpServer], name: str) -> None:
    try:
        await opened.connections[server_key(name)].reconnect()
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
    word = "enabled" if is_enabled else "disabled"
    notes.paragraph((f"{name} is {word} from the next message on", "dim"))


def _opened(opened: SessionServers[McpServer] | None, name: str) -> SessionServers[McpServer]:
    if opened is None or server_key(name) not in opened.connections:
        raise InvalidInput(f"{name} is not connected in this session yet")
    return opened
