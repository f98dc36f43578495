"""The MCP servers of a session: started in sandboxes of their own or reached over HTTP, and what
their tools become.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import anyio
from anyio import to_thread

from mainspring import __version__
from mainspring.capabilities.mcp.channel import ChannelTransport
from mainspring.capabilities.mcp.client import ClientLimits, ToolList
from mainspring.capabilities.mcp.foreign_text import clean_line
from mainspring.capabilities.mcp.messages import Implementation
from mainspring.capabilities.mcp.server_connection import OpenTransport, ServerConnection
from mainspring.capabilities.mcp.stdio import LineChannel
from mainspring.capabilities.mcp.tools import (
    definition_hash,
    definition_text,
    server_key,
    server_tools,
)
from mainspring.capabilities.mcp.transport import MAX_MESSAGE_BYTES
from mainspring.capabilities.mcp.url_transport import open_url
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.capabilities.sandbox.attached_program import attach_program
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.capabilities.vault.assignments import looks_secret
from mainspring.capabilities.vault.redaction import scrubber
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, McpFailed
from mainspring.core.ids import new_id
from mainspring.core.ports import ExecRequest
from mainspring.core.tool import Tool
from mainspring.runtime.agent_folder.mcp_file import McpServer, read_mcp
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.definition_files.settings_file import is_secret_name
from mainspring.runtime.session.session_paths import add_protected_paths, hide_denied_paths
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.runtime.settings.session_servers import usable_servers
from mainspring.runtime.settings.tool_pins import (
    check_pins,
    danger_in,
    is_known_legacy,
    remember_legacy,
)
from mainspring.wiring.builtin_tools import ALL_TOOLS
from mainspring.wiring.sandbox_environment import read_environment, session_paths
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.settings_files import load_policy

CLIENT = Implementation(name="mainspring", version=__version__)
_SERVER_SECONDS = 30 * 24 * 3600.0


@dataclass(slots=True, kw_only=True)
class SessionServers:
    """The connections of one session. They end with its sandbox."""

    servers: tuple[McpServer, ...]
    home: Path
    """The user's."""
    connections: Mapping[str, ServerConnection]
    """By the name of the server in the names of its tools."""
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    problems: list[str] = field(default_factory=list[str])
    """What does not work, for people."""
    is_open: bool = True

    async def aclose(self) -> None:
        self.is_open = False
        async with anyio.create_task_group() as group:
            for connection in self.connections.values():
                group.start_soon(connection.aclose)

    def selected(self, names: Sequence[str]) -> dict[str, Tool]:
        """The tools that an agent may use."""
        return {
            name: tool
            for name, tool in sorted(self.tools.items())
            if ALL_TOOLS in names or any(_covers(listed, name) for listed in names)
        }

    @property
    def notes(self) -> list[str]:
        """What the model needs to know of servers that do not work."""
        return [
            f"The MCP server {name} is not available: {clean_line(connection.error, 200)}."
            for name, connection in sorted(self.connections.items())
            if connection.error is not None
        ]


_OPENED: WeakKeyDictionary[AsyncExitStack, SessionServers] = WeakKeyDictionary()
"""By the clean-up of the sandbox that they end with."""


async def open_servers(
    servers: tuple[McpServer, ...], sandbox: SandboxSession, home: Path
) -> SessionServers:
    """Those of an earlier run, if they are the same; else connect to all at once. What does not
    work is a problem, and never an error."""
    opened = _OPENED.get(sandbox.cleanup)
    if opened is not None and opened.is_open:
        if opened.servers == servers:
            return opened
        await opened.aclose()
    by_key: dict[str, McpServer] = {}
    for server in servers:
        by_key.setdefault(server_key(server.name), server)
    opened = SessionServers(
        servers=servers,
        home=home,
        connections={
            key: ServerConnection(
                partial(_open_transport, server, key, sandbox),
                sandbox.group,
                implementation=CLIENT,
                era="legacy" if is_known_legacy(home, server, clock.now()) else None,
                limits=_limits(server),
            )
            for key, server in by_key.items()
        },
    )
    _OPENED[sandbox.cleanup] = opened
    sandbox.cleanup.push_async_callback(opened.aclose)
    async with anyio.create_task_group() as group:
        for key, server in by_key.items():
            group.start_soon(_load_tools, opened, key, server)
    return opened


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectServers:
    """The servers that a session in a folder would have."""

    every: tuple[McpServer, ...]
    """Also those that are not used."""
    usable: tuple[McpServer, ...]
    is_trusted: bool
    loaded: LoadedPolicy

    def unused_reason(self, server: McpServer) -> str | None:
        if server.unused_reason is not None or server.name in (item.name for item in self.usable):
            return server.unused_reason
        is_own = server.scope == "project"
        return "this folder is not trusted" if is_own and not self.is_trusted else "disabled"


def read_project_servers(settings: Settings) -> ProjectServers:
    """Raises: InvalidInput: the settings cannot be read."""
    folder, home = Path(settings.folder).resolve(), Path(settings.home)
    scopes = Scopes(folder=folder, home=home, managed=MANAGED)
    loaded = load_policy(folder, home=home)
    return ProjectServers(
        every=read_mcp(scopes, settings.environment).servers,
        usable=usable_servers(scopes, settings.environment, loaded),
        is_trusted=loaded.is_trusted,
        loaded=loaded,
    )


@asynccontextmanager
async def connect_servers(
    settings: Settings, project: ProjectServers, names: Collection[str] | None = None
) -> AsyncGenerator[SessionServers, None]:
    """Connect to the servers as a session would, without one. `names`: only these.

    Raises: InvalidInput, SandboxFailed.
    """
    key = new_id("mcp")
    loaded = project.loaded
    paths = session_paths(settings, Path(settings.folder), key)
    paths = add_protected_paths(
        await to_thread.run_sync(hide_denied_paths, paths, loaded.policy), loaded.policy
    )
    environment = read_environment(loaded.sandbox, loaded.preferences.sandbox_env)
    wanted = tuple(item for item in project.usable if names is None or item.name in names)
    async with SandboxPool(settings) as pool:
        sandbox = await pool.open_session(key, paths, environment)
        opened = await open_servers(wanted, sandbox, Path(settings.home))
        yield opened


def _limits(server: McpServer) -> ClientLimits:
    seconds = server.timeout_ms and server.timeout_ms / 1000
    return ClientLimits(call_seconds=seconds) if seconds else ClientLimits()


async def _load_tools(opened: SessionServers, key: str, server: McpServer) -> None:
    connection, redact = opened.connections[key], _redactor(server)
    try:
        tool_list = await connection.list_tools()
    except McpFailed as error:
        last = clean_line(connection.error_output.rpartition("\n")[2], 200)
        wrote = f" (it wrote: {last})" if last else ""
        opened.problems.append(redact(f"MCP server {server.name}: {error}{wrote}"))
        return
    if connection.info is not None and connection.info.era == "legacy":
        await to_thread.run_sync(remember_legacy, opened.home, server, clock.now())
    refused = await to_thread.run_sync(_refused_tools, opened.home, server, tool_list)
    found = server_tools(key, tool_list, connection.call, refused=refused, redact=redact)
    opened.tools |= {tool.spec.name: tool for tool in found.tools}
    opened.problems += [
        redact(f"MCP server {server.name}, a tool left out: {why}") for why in found.rejected
    ]


def _redactor(server: McpServer) -> Callable[[str], str]:
    """A server may repeat what it was given: neither the model nor the log is to have it."""
    secrets = {
        name: value
        for name, value in server.env.items()
        if is_secret_name(name) or looks_secret(value.encode())
    }
    for name, value in server.headers.items():
        secrets |= {name: value, f"{name} value": value.rpartition(" ")[2]}
    scrub = scrubber(secrets)
    return lambda text: scrub(text.encode(errors="replace")).decode(errors="replace")


def _refused_tools(home: Path, server: McpServer, tool_list: ToolList) -> dict[str, str | None]:
    """Disabled ones, those whose texts try to steer the model, and those that are not what they
    were."""
    refused: dict[str, str | None] = dict.fromkeys(server.disabled_tools)
    for tool in tool_list.tools:
        if tool.name not in refused and (why := danger_in(definition_text(tool))) is not None:
            refused[tool.name] = why
    hashes = {tool.name: definition_hash(tool) for tool in tool_list.tools}
    try:
        changed = check_pins(home, server, hashes)
    except InvalidInput as error:  # nobody can tell what they were
        changed = dict.fromkeys(hashes, str(error))
    return {**changed, **refused}


async def _open_transport(server: McpServer, key: str, sandbox: SandboxSession) -> OpenTransport:
    if server.transport == "stdio":
        return await _start_program(server, key, sandbox)

    async def make_headers() -> Mapping[str, str]:
        return server.headers

    new_decoder = partial(SseDecoder, max_event_bytes=MAX_MESSAGE_BYTES)
    return OpenTransport(
        transport=await open_url(server.transport, server.url, new_decoder, make_headers)
    )


async def _start_program(server: McpServer, key: str, sandbox: SandboxSession) -> OpenTransport:
    name = f"mcp{hashlib.sha256(key.encode()).hexdigest()[:9]}"  # becomes part of a socket's path
    wanted = ExecRequest(
        key=new_id("mcp"),
        argv=(server.command, *server.args),
        cwd=server.cwd,
        env={**sandbox.variables, **server.env},
        wall_seconds=_SERVER_SECONDS,
        max_bytes=64_000,
    )
    program = await attach_program(sandbox.open_another(name), wanted)
    return OpenTransport(
        transport=ChannelTransport(LineChannel(program)), error_output=program.error_output
    )


def _covers(listed: str, tool: str) -> bool:
    """Whether `mcp__server`, `mcp__server__*` or a tool's own name stands for a tool."""
    return listed.startswith("mcp__") and (
        listed == tool or tool.startswith(f"{listed.removesuffix('__*')}__")
    )
