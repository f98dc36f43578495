"""The MCP servers of a session: started in sandboxes of their own or reached over HTTP, and what
their tools become.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

import aiohttp
import anyio
from yarl import URL

from mainspring import __version__
from mainspring.capabilities.mcp.foreign_text import clean_line
from mainspring.capabilities.mcp.http import HttpTransport
from mainspring.capabilities.mcp.messages import Implementation
from mainspring.capabilities.mcp.server_connection import OpenTransport, ServerConnection
from mainspring.capabilities.mcp.stdio import StdioTransport
from mainspring.capabilities.mcp.tools import server_key, server_tools
from mainspring.capabilities.mcp.transport import MAX_MESSAGE_BYTES
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.capabilities.sandbox.attached_program import attach_program
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.core.errors import McpFailed
from mainspring.core.ids import new_id
from mainspring.core.ports import ExecRequest
from mainspring.core.tool import Tool
from mainspring.runtime.agent_folder.mcp_file import McpServer
from mainspring.wiring.builtin_tools import ALL_TOOLS

CLIENT = Implementation(name="mainspring", version=__version__)
_SERVER_SECONDS = 30 * 24 * 3600.0
_CONNECT_SECONDS = 30.0


@dataclass(slots=True, kw_only=True)
class SessionServers:
    """The connections of one session. They end with its sandbox."""

    servers: tuple[McpServer, ...]
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


async def open_servers(servers: tuple[McpServer, ...], sandbox: SandboxSession) -> SessionServers:
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
        connections={
            key: ServerConnection(
                partial(_open_transport, server, key, sandbox),
                sandbox.group,
                implementation=CLIENT,
                call_seconds=None if server.timeout_ms is None else server.timeout_ms / 1000,
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


async def _load_tools(opened: SessionServers, key: str, server: McpServer) -> None:
    connection = opened.connections[key]
    try:
        tool_list = await connection.list_tools()
    except McpFailed as error:
        last = clean_line(connection.error_output.rpartition("\n")[2], 200)
        wrote = f" (it wrote: {last})" if last else ""
        opened.problems.append(f"MCP server {server.name}: {error}{wrote}")
        return
    found = server_tools(key, tool_list, connection.call, disabled=server.disabled_tools)
    opened.tools |= {tool.spec.name: tool for tool in found.tools}
    opened.problems += [
        f"MCP server {server.name}, a tool left out: {why}" for why in found.rejected
    ]


async def _open_transport(server: McpServer, key: str, sandbox: SandboxSession) -> OpenTransport:
    if server.transport == "stdio":
        return await _start_program(server, key, sandbox)
    return OpenTransport(transport=http_transport(server.url, server.headers))


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
    transport = StdioTransport(program)
    return OpenTransport(
        transport=transport,
        run=transport.run,
        is_ended=lambda: transport.end is not None,
        error_output=program.error_output,
    )


def http_transport(url: str, headers: Mapping[str, str]) -> HttpTransport:
    """
    Raises:
        McpFailed: not a URL that can be used.
    """
    try:
        target = URL(url)
    except ValueError as error:
        raise McpFailed("its url is not a URL") from error
    if target.scheme not in ("http", "https") or not target.host or target.user is not None:
        raise McpFailed("its url must begin with https:// or http://, without a user name")

    async def make_headers() -> Mapping[str, str]:
        return headers

    http = aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        trust_env=False,
    )
    return HttpTransport(
        url,
        http,
        new_decoder=partial(SseDecoder, max_event_bytes=MAX_MESSAGE_BYTES),
        make_headers=make_headers,
    )


def _covers(listed: str, tool: str) -> bool:
    """Whether `mcp__server`, `mcp__server__*` or a tool's own name stands for a tool."""
    return listed.startswith("mcp__") and (
        listed == tool or tool.startswith(f"{listed.removesuffix('__*')}__")
    )
