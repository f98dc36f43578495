"""The MCP servers of a session: each runs in its own sandbox or is reached by its URL. Connections
last across runs. Also the tools that the servers offer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, Literal
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from mainspring.capabilities.mcp.elicitation import Elicitations
from mainspring.capabilities.mcp.programs.package_cache import PackageCache, ServerProgram
from mainspring.capabilities.mcp.protocol.client import ClientLimits, ToolList
from mainspring.capabilities.mcp.protocol.foreign_text import clean_line
from mainspring.capabilities.mcp.protocol.messages import Implementation
from mainspring.capabilities.mcp.protocol.transport import Transport
from mainspring.capabilities.mcp.references import message_context, resource_tool
from mainspring.capabilities.mcp.server_connection import OpenTransport, ServerConnection
from mainspring.capabilities.mcp.server_ports import (
    Entry,
    ProgramHost,
    Redactor,
    ServerEntry,
    ServerFacts,
)
from mainspring.capabilities.mcp.server_requests import RequestHandlers, Sample, request_handlers
from mainspring.capabilities.mcp.server_skills import (
    ParseFrontmatter,
    ServerSkills,
    publishes_skills,
    read_skill_list,
    skill_tools,
)
from mainspring.capabilities.mcp.stored_rounds import OpenSeal
from mainspring.capabilities.mcp.tools import (
    definition_hash,
    definition_text,
    server_key,
    server_tools,
    tool_prefix,
)
from mainspring.capabilities.mcp.transports.channel import ChannelTransport, LineChannel
from mainspring.capabilities.mcp.transports.server_auth import Learn, ServerAuth
from mainspring.capabilities.mcp.transports.traced_transport import Trace, TracedTransport
from mainspring.core.errors import InvalidInput, McpFailed
from mainspring.core.events import ErrorDetail, KnownPayload, RetryStatus, SessionFailed
from mainspring.core.ids import new_id
from mainspring.core.ports import ExecRequest
from mainspring.core.tool import Tool

_SERVER_SECONDS = 30 * 24 * 3600.0  # of a server's program, which should end with its session


OpenAddress = Callable[[Literal["http", "sse", "ws"], str, ServerAuth], Awaitable[Transport]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess(Generic[Entry]):
    """How a session reaches servers, and with which credentials."""

    scrub: Redactor
    """Learns the secrets that servers get, since they may repeat them."""
    is_secret: Callable[[str, str], bool]
    """Whether a variable is secret, by its name and value."""
    history: ServerFacts[Entry]
    authenticate: Callable[[Entry, Learn], ServerAuth]
    open_address: OpenAddress
    trace: Trace | None = None
    """Called with every message."""
    open_seal: OpenSeal | None = None
    """Seals the state that servers leave with a call until a person has answered."""
    make_sample: Callable[[Callable[[Iterable[KnownPayload]], None]], Sample] | None = None
    """Asks the session's model on behalf of servers that may do so; its argument records the
    costs."""

    def learn_secrets(self, server: Entry) -> None:
        """Redact the secrets that a server gets, which it may repeat, from the model's input and
        the log."""
        secrets = {name: value for name, value in server.env.items() if self.is_secret(name, value)}
        for name, value in server.headers.items():
            secrets |= {name: value, f"{name} value": value.rpartition(" ")[2]}
        self.scrub.learn(secrets)


@dataclass(frozen=True, slots=True)
class ServerHost:
    """The resources that a session's connections use, and that they are closed with."""

    group: TaskGroup
    cleanup: AsyncExitStack
    sandbox: ProgramHost | None
    packages: PackageCache | None = None


@dataclass(slots=True, kw_only=True, weakref_slot=True, eq=False)
class SessionServers(Generic[Entry]):
    """The connections of one session."""

    servers: tuple[Entry, ...]
    access: ServerAccess[Entry]
    connections: dict[str, ServerConnection] = field(default_factory=dict[str, ServerConnection])
    """By the name of the server in the names of its tools."""
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    skills: dict[str, ServerSkills] = field(default_factory=dict[str, ServerSkills])
    """The skills as first listed, so that the model's prompt stays the same."""
    problems: list[str] = field(default_factory=list[str])
    """Messages for people about servers and tools that do not work."""
    is_open: bool = True
    is_reported: bool = False

    async def aclose(self) -> None:
        self.is_open = False
        async with anyio.create_task_group() as group:
            for connection in self.connections.values():
                group.start_soon(connection.aclose)

    @property
    def resource_tool(self) -> Tool:
        return resource_tool(self.connections)

    def skill_tools(
        self, parse: ParseFrontmatter, servers: Collection[str] | None = None
    ) -> dict[str, Tool]:
        """The tool for the skills of these servers, or of all."""
        keys = None if servers is None else set(map(server_key, servers))
        skills = {key: own for key, own in self.skills.items() if keys is None or key in keys}
        return skill_tools(skills, parse)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the model about servers that are not available."""
        return tuple(
            f"The MCP server {name} is not available: {clean_line(connection.error, 200)}."
            for name, connection in sorted(self.connections.items())
            if connection.error is not None
        )

    def message_context(
        self, resources: Sequence[str]
    ) -> Callable[[str], Awaitable[Sequence[str]]]:
        return message_context(self.connections, resources)

    async def reload(self) -> bool:
        """Reload the tools of servers that announced a change; False if there are none."""
        changed = [
            server
            for server in self.servers
            if self.connections[server_key(server.name)].has_changed_tools
        ]
        for server in changed:
            await self.load_tools(server_key(server.name), server)
        return bool(changed)

    def failures(self) -> Iterator[SessionFailed]:
        for server in self.servers:
            connection = self.connections[server_key(server.name)]
            if connection.error is not None:
                failed = "authentication" if connection.needs_auth else "connection"
                yield SessionFailed(
                    error=ErrorDetail(
                        type=f"mcp_{failed}_failed_error",
                        message=f"MCP server {server.name}: {clean_line(connection.error, 300)}",
                        retry_status=RetryStatus(type="retrying"),
                        mcp_server_name=server.name,
                    )
                )

    async def load_tools(self, key: str, server: Entry) -> None:
        connection, redact = self.connections[key], self.access.scrub.redacted
        try:
            tool_list = await connection.list_tools()
        except McpFailed as error:
            last = clean_line(connection.error_output.rpartition("\n")[2], 200)
            wrote = f" (it wrote: {last}{_unseen(server, connection.error_output)})" if last else ""
            self.problems.append(redact(f"MCP server {server.name}: {error}{wrote}"))
            connection.error = connection.error or str(error)
            return
        history = self.access.history
        if connection.info is not None and connection.info.era == "legacy":
            await to_thread.run_sync(history.remember_legacy, server)
        refused_tools = await to_thread.run_sync(_refused_tools, history, server, tool_list)
        offered = server_tools(server.name, tool_list, connection.call, refused=refused_tools)
        prefix = tool_prefix(server.name)
        other_tools = {
            name: tool for name, tool in self.tools.items() if not name.startswith(prefix)
        }
        self.tools = {**other_tools, **{tool.spec.name: tool for tool in offered.tools}}
        self.problems += [
            redact(f"MCP server {server.name}, a tool left out: {why}") for why in offered.rejected
        ]
        if key not in self.skills and publishes_skills(connection):
            await self._load_skills(key, server)

    async def _load_skills(self, key: str, server: Entry) -> None:
        redact, danger_in = self.access.scrub.redacted, self.access.history.danger_in
        try:
            skills, rejected = await read_skill_list(server.name, self.connections[key], danger_in)
        except McpFailed as error:
            self.problems.append(redact(f"MCP server {server.name}, its skills: {error}"))
            return
        self.skills[key] = skills
        self.problems += [
            redact(f"MCP server {server.name}, a skill left out: {why}") for why in rejected
        ]


class ServerPool(Generic[Entry]):
    """The connections of all sessions of a process, while they are in use."""

    def __init__(self, version: str) -> None:
        """`version`: the version of this program, which is sent to servers."""
        self._client = Implementation(name="mainspring", version=version)
        self._opened: WeakKeyDictionary[AsyncExitStack, SessionServers[Entry]] = WeakKeyDictionary()
        """The servers of each session, by the exit stack that closes them."""
        self._by_session: WeakValueDictionary[str, SessionServers[Entry]] = WeakValueDictionary()

    def assign(self, session_id: str, opened: SessionServers[Entry]) -> None:
        self._by_session[session_id] = opened

    def of_session(self, session_id: str) -> SessionServers[Entry] | None:
        """The connections of a session in this process."""
        servers = self._by_session.get(session_id)
        return servers if servers is not None and servers.is_open else None

    async def open(
        self, servers: tuple[Entry, ...], host: ServerHost, access: ServerAccess[Entry]
    ) -> SessionServers[Entry]:
        """Reuse the connections of an earlier run if the servers are the same; otherwise connect to
        all concurrently. Failures are reported as problems, never raised."""
        for server in servers:
            access.learn_secrets(server)
        session_servers = self._opened.get(host.cleanup)
        if session_servers is not None and session_servers.is_open:
            if session_servers.servers == servers:
                session_servers.access = access  # each run has its own log
                return session_servers
            await session_servers.aclose()
        session_servers = SessionServers(servers=servers, access=access)
        by_key: dict[str, Entry] = {}
        for server in servers:
            key = server_key(server.name)
            if by_key.setdefault(key, server) is server:
                session_servers.connections[key] = _connection(
                    session_servers, server, host, self._client
                )
        self._opened[host.cleanup] = session_servers
        host.cleanup.push_async_callback(session_servers.aclose)
        async with anyio.create_task_group() as group:
            for key, server in by_key.items():
                group.start_soon(session_servers.load_tools, key, server)
        return session_servers


def _connection(
    opened: SessionServers[Entry], server: Entry, host: ServerHost, client: Implementation
) -> ServerConnection:
    access, seconds = opened.access, server.timeout_ms and server.timeout_ms / 1000
    return ServerConnection(
        partial(_open_connection, opened, server, host),
        host.group,
        implementation=client,
        era="legacy" if access.history.is_legacy(server) else None,
        limits=ClientLimits(call_seconds=seconds) if seconds else ClientLimits(),
        elicitations=Elicitations(
            server.name, host.group, access.open_seal, _request_handlers(access, server, host)
        ),
    )


def _unseen(server: ServerEntry, error_output: str) -> str:
    """What to do about a file that the server misses and that exists outside of its sandbox."""
    for argument in (server.command, *server.args):
        path = argument.rpartition("=")[2]
        if path.startswith("/") and path in error_output and os.path.exists(path):
            return f"; {path} exists: if its sandbox does not show it, name it in sandbox.readOnly"
    return ""


def _request_handlers(
    access: ServerAccess[Entry], server: Entry, host: ServerHost
) -> RequestHandlers:
    """Only a program in the sandbox gets the location of the workspace."""
    inside = host.sandbox if server.transport == "stdio" else None
    roots = [] if inside is None else [inside.workspace.as_uri()]
    make, sandbox = access.make_sample, host.sandbox
    if make is None or sandbox is None or not server.allows_sampling:
        return request_handlers(roots, None)
    return request_handlers(roots, make(sandbox.network_facts.extend))


def _refused_tools(
    history: ServerFacts[Entry], server: Entry, tool_list: ToolList
) -> dict[str, str | None]:
    return history.refused_tools(
        server,
        {tool.name: definition_text(tool) for tool in tool_list.tools},
        {tool.name: definition_hash(tool) for tool in tool_list.tools},
    )


async def _open_connection(
    opened: SessionServers[Entry], server: Entry, host: ServerHost
) -> OpenTransport:
    opened_transport, trace = await _open_transport(opened, server, host), opened.access.trace
    return (
        opened_transport
        if trace is None
        else replace(opened_transport, transport=TracedTransport(opened_transport.transport, trace))
    )


async def _open_transport(
    opened: SessionServers[Entry], server: Entry, host: ServerHost
) -> OpenTransport:
    server.check_inputs()
    if server.transport == "stdio":
        return await _start_program(server, server_key(server.name), host)

    def learn(secret: str) -> None:
        opened.access.scrub.learn({f"token of {server.name}": secret})

    auth = opened.access.authenticate(server, learn)
    return OpenTransport(
        transport=await opened.access.open_address(server.transport, server.url, auth)
    )


async def _start_program(server: ServerEntry, key: str, host: ServerHost) -> OpenTransport:
    if (sandbox := host.sandbox) is None:
        raise McpFailed("it would need a sandbox, and there is none: `mainspring doctor` says why")
    name = f"mcp{hashlib.sha256(key.encode()).hexdigest()[:9]}"  # short, as part of a socket's path
    program = ServerProgram(argv=(server.command, *server.args))
    if host.packages is not None:
        program = await host.packages.program(server.command, server.args)
    request = ExecRequest(
        key=new_id("mcp"),
        argv=program.argv,
        cwd=server.cwd,
        env={**program.env, **server.env},
        wall_seconds=_SERVER_SECONDS,
        max_bytes=64_000,
    )
    try:
        attached = await sandbox.attach(name, request, program.read_only, server.networking)
    except InvalidInput as error:
        raise McpFailed(str(error)) from error
    return OpenTransport(
        transport=ChannelTransport(LineChannel(attached)), error_output=attached.error_output
    )
