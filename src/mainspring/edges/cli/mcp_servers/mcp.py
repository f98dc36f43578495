"""`mainspring mcp`. Arguments, headers and variables of servers are never printed: they may hold
secrets.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import typer
from anyio import to_thread

from mainspring.capabilities.mcp.tools import server_key, tool_result
from mainspring.config import Settings
from mainspring.core.content import plain_text
from mainspring.core.errors import InvalidInput, McpFailed
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.mcp_servers.login_browser import give_inputs, log_in
from mainspring.edges.cli.mcp_servers.mcp_inspection import ask_arguments, offers
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.mcp_views import (
    SERVER_HEADS,
    TOOL_HEADS,
    LoginState,
    ToolView,
    server_row,
    server_view,
    server_views,
    tool_row,
    tool_view,
    unused_view,
)
from mainspring.edges.cli.render.printing import (
    Screen,
    plural,
    print_list,
    print_note,
    print_result,
)
from mainspring.runtime.agent_folder import mcp_edits
from mainspring.runtime.definition_files.json_file import JsonObject, as_object
from mainspring.runtime.settings.session_servers import ProjectServers
from mainspring.runtime.settings.tool_pins import accept_tools
from mainspring.wiring.mcp_packages import forget_packages
from mainspring.wiring.mcp_servers import connect_servers, read_project_servers, stored_grants
from mainspring.wiring.settings_files import edit_servers

app = command_group()

ServerName: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The server's name.")]


ServerScope: TypeAlias = Literal["project", "user"]
ScopeOption: TypeAlias = Annotated[
    ServerScope, typer.Option(help="project: .mcp.json; user: ~/.mainspring/mcp.json.")
]


@command(app)
async def add(  # parameters: a command's options
    settings: Settings,
    *,
    name: ServerName,
    target: Annotated[
        list[str],
        typer.Argument(metavar="URL|COMMAND...", help="An address, or a command after `--`."),
    ],
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", "-e", help="A variable for the command. Can be repeated.", metavar="NAME=VALUE"
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            help="A header for the address. Can be repeated.",
            metavar="'NAME: VALUE'",
        ),
    ] = None,
    scope: ScopeOption = "project",
    json: JsonOption = False,
) -> int:
    """Add a server: an address, or a command that runs in a sandbox. For a secret, write `${NAME}`:
    the file then has only the name of a variable."""
    is_url = len(target) == 1 and target[0].startswith(("http://", "https://"))
    entry: JsonObject = {"type": "http", "url": target[0]}
    if not is_url:
        entry = {"type": "stdio", "command": target[0], "args": target[1:]}
    entry |= {"env": _pairs(env, "=")} if env else {}
    entry |= {"headers": _pairs(header, ":")} if header else {}
    return await _add(settings, name, entry, scope, json=json)


@command(app, "add-json")
async def add_json(
    settings: Settings,
    *,
    name: ServerName,
    text: Annotated[str, typer.Argument(metavar="JSON", help="The definition, as in `.mcp.json`.")],
    scope: ScopeOption = "project",
    json: JsonOption = False,
) -> int:
    """Add a server from its published JSON definition."""
    return await _add(settings, name, _object(text), scope, json=json)


@command(app, "import")
async def import_servers(
    settings: Settings,
    *,
    program: Annotated[
        Literal["claude-desktop", "cursor", "vscode"],
        typer.Argument(help="The program to import from."),
    ],
    scope: ScopeOption = "user",
    json: JsonOption = False,
) -> int:
    """Import the servers of another program. Servers whose name is already used are skipped."""
    place, home = Path(settings.folder), Path(settings.home)
    file = mcp_edits.foreign_file(program, folder=place, home=home)
    status = 0
    for name, entry in mcp_edits.read_foreign(file).items():
        try:
            await _add(settings, name, entry, scope, json=json)
        except InvalidInput as error:
            Screen(settings, stderr=True).paragraph((f"{name}: {error}", "yellow"))
            status = 1
    return status


@command(app)
async def ls(
    settings: Settings,
    *,
    connect: Annotated[
        bool, typer.Option(help="Whether to connect to the servers, or only list them.")
    ] = True,
    json: JsonOption = False,
) -> int:
    """List the servers of this folder, and whether they work."""
    project = await to_thread.run_sync(read_project_servers, settings)
    views = server_views(project, None)
    if connect and project.usable:
        async with connect_servers(settings, project) as servers:
            views = server_views(project, servers)
    return print_list(
        settings,
        views,
        json=json,
        heads=SERVER_HEADS,
        row=server_row,
        empty="no MCP servers here; `mainspring mcp add` adds one",
    )


@command(app)
async def tools(
    settings: Settings,
    *,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this server.")] = None,
    json: JsonOption = False,
) -> int:
    """List the MCP tools of sessions in this folder. Shows their approximate size in tokens."""
    project = await _read_servers(settings, name)
    views: list[ToolView] = []
    async with connect_servers(settings, project, None if name is None else (name,)) as servers:
        for problem in servers.problems:
            print_note(settings, problem, "yellow")
        views = [tool_view(tool) for _, tool in sorted(servers.tools.items())]
    return print_list(
        settings,
        views,
        json=json,
        heads=TOOL_HEADS,
        row=lambda view: tool_row(view, 100),
        empty="no tools",
    )


@command(app, "test")
async def check(settings: Settings, *, name: ServerName, json: JsonOption = False) -> int:
    """Connect to a server and show what it offers. Exit status 1 if it does not work."""
    project = await _read_servers(settings, name)
    view = unused_view(project, name)
    async with connect_servers(settings, project, (name,)) as servers:
        view = server_view(servers, view)
        connection = servers.connections.get(server_key(name))
        output = "" if connection is None else connection.error_output
    is_ok = view.state == "connected"
    style = "green" if is_ok else "red"
    detail = f" {view.version}, {plural(view.tools, 'tool')}" if is_ok else f" {view.detail}"
    print_result(settings, view, (view.state, style), (detail, ""), json=json)
    for line in () if json else output.splitlines()[-20:]:
        print_note(settings, f"  {line}")
    return 0 if is_ok else 1


@command(app)
async def auth(  # parameters: a command's options
    settings: Settings,
    *,
    name: ServerName,
    status: Annotated[
        bool, typer.Option("--status", help="Only show whether you are logged in.")
    ] = False,
    logout: Annotated[bool, typer.Option("--logout", help="Log out: delete the tokens.")] = False,
    paste: Annotated[
        bool,
        typer.Option("--paste", help="Use a browser on another machine, and paste the address."),
    ] = False,
    device: Annotated[
        bool, typer.Option("--device", help="Log in with a code, on any machine.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Log in to a server, or enter the inputs that it needs. Both are stored in the vault."""
    project = await _read_servers(settings, name)
    server = next((item for item in project.usable if item.name == name), None)
    if server is None:
        raise InvalidInput(f"{name} is not used here: {unused_view(project, name).detail}")
    if server.missing_inputs and not (logout or status):
        result = {"name": name, "inputs": await give_inputs(settings, server)}
        return print_result(settings, result, (f"{name}: ", "bold"), ("stored", ""), json=json)
    grants = stored_grants(settings, server)
    if logout:
        await grants.remove()
    elif not status:
        await log_in(settings, server, paste=paste, device=device)
    grant = await grants.load()
    expires = None if grant is None else grant.expires_at
    state = LoginState(
        name=name,
        is_logged_in=grant is not None,
        issuer=None if grant is None else grant.issuer,
        scope=None if grant is None else grant.scope,
        expires_at=None if expires is None else datetime.fromtimestamp(expires, UTC),
    )
    text = "not logged in" if grant is None else f"logged in at {grant.issuer}"
    print_result(settings, state, (f"{name}: ", "bold"), (text, ""), json=json)
    return 0 if grant is not None or logout else 1


@command(app)
async def inspect(
    settings: Settings,
    *,
    name: ServerName,
    tool: Annotated[
        str | None,
        typer.Argument(metavar="TOOL", help="The tool to call, by the server's name for it."),
    ] = None,
    arguments: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="The tool's arguments as JSON. At a terminal, a form asks for them.",
            metavar="JSON",
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Also print every message.")] = False,
) -> int:
    """Show what a server offers, or call a tool. The output is JSON; no model is involved."""
    project = await _read_servers(settings, name)
    tool_input = None if arguments is None else _object(arguments)
    notes = Screen(settings, stderr=True)

    def trace(way: str, message: bytes) -> None:
        notes.line((f"{way:9}", "bold"), (message.decode("utf-8", "replace"), "dim"))

    failure: McpFailed | None = None
    lines, is_ok = list[str](), True
    async with connect_servers(settings, project, (name,), trace if raw else None) as servers:
        connection = servers.connections.get(server_key(name))
        try:
            if connection is None:
                raise McpFailed(f"not used here: {unused_view(project, name).detail}")
            if tool is None:
                lines = await offers(connection)
            else:
                tool_input = tool_input or await ask_arguments(settings, connection, tool)
                client = await connection.client()
                result = tool_result(await client.call_tool(tool, tool_input))
                lines, is_ok = plain_text(result.content).splitlines(), result.ok
        except McpFailed as error:
            failure = error
    if failure is not None:
        raise InvalidInput(f"{name}: {failure}") from failure
    screen = Screen(settings)
    for line in lines:
        screen.line((line, ""))
    return 0 if is_ok else 1


@command(app)
async def accept(
    settings: Settings,
    *,
    name: ServerName,
    update: Annotated[
        bool, typer.Option("--update", help="Also update npx or uvx packages at the next start.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Accept the current tools of a server. Until then, tools that have changed or are new since
    you first used the server are not used."""
    project = await _read_servers(settings, name)
    servers = [server for server in project.usable if server.name == name]
    count = sum(accept_tools(Path(settings.home), server) for server in servers)
    updated = update and any([forget_packages(settings, server) for server in servers])
    result = {"accepted": name, "changed": bool(count), "updated": updated}
    return print_result(settings, result, ("accepted ", "green"), (name, "bold"), json=json)


@command(app)
async def enable(
    settings: Settings,
    *,
    name: ServerName,
    scope: ScopeOption = "project",
    json: JsonOption = False,
) -> int:
    """Enable a server."""
    return await _set_enabled(settings, name, scope, is_enabled=True, json=json)


@command(app)
async def disable(
    settings: Settings,
    *,
    name: ServerName,
    scope: ScopeOption = "project",
    json: JsonOption = False,
) -> int:
    """Disable a server, but keep its entry."""
    return await _set_enabled(settings, name, scope, is_enabled=False, json=json)


@command(app)
async def remove(
    settings: Settings,
    *,
    name: ServerName,
    scope: ScopeOption = "project",
    json: JsonOption = False,
) -> int:
    """Remove a server from its file."""
    file = edit_servers(settings, scope, lambda file: mcp_edits.remove_server(file, name))
    result = {"removed": name, "file": str(file)}
    return print_result(settings, result, ("removed ", ""), (name, "bold"), json=json)


async def _add(
    settings: Settings, name: str, entry: JsonObject, scope: ServerScope, *, json: bool
) -> int:
    file = edit_servers(settings, scope, lambda file: mcp_edits.add_server(file, name, entry))
    result = {"added": name, "file": str(file)}
    return print_result(
        settings, result, ("added ", "green"), (name, "bold"), (f" to {file}", "dim"), json=json
    )


async def _set_enabled(
    settings: Settings, name: str, scope: ServerScope, *, is_enabled: bool, json: bool
) -> int:
    edit_servers(
        settings, scope, lambda file: mcp_edits.enable_server(file, name, is_enabled=is_enabled)
    )
    state = "enabled" if is_enabled else "disabled"
    return print_result(settings, {state: name}, (f"{state} ", ""), (name, "bold"), json=json)


async def _read_servers(settings: Settings, name: str | None) -> ProjectServers:
    """Raises: InvalidInput: there is no server of this name."""
    project = await to_thread.run_sync(read_project_servers, settings)
    if name is not None and name not in {server.name for server in project.every}:
        names = ", ".join(server.name for server in project.every) or "none"
        raise InvalidInput(f"there is no MCP server {name}; there are: {names}")
    return project


def _pairs(texts: list[str], separator: str) -> dict[str, str]:
    pairs = [text.partition(separator) for text in texts]
    if wrong := [name for name, match, _ in pairs if not match or not name.strip()]:
        raise InvalidInput(f"{wrong[0]!r} has no name, or no {separator}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _object(text: str) -> JsonObject:
    try:
        value = as_object(msgspec.json.decode(text))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {error}") from error
    if value is None:
        raise InvalidInput("must be a JSON object")
    return value
