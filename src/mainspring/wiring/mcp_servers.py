"""The MCP servers of a session: started in sandboxes of their own or reached over HTTP, and what
their tools become.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from mainspring import __version__
from mainspring.capabilities.mcp import resource_tool, server_skills
from mainspring.capabilities.mcp.channel import ChannelTransport
from mainspring.capabilities.mcp.client import ClientLimits, ToolList
from mainspring.capabilities.mcp.elicitation import Elicitations
from mainspring.capabilities.mcp.foreign_text import clean_line
from mainspring.capabilities.mcp.messages import Implementation
from mainspring.capabilities.mcp.package_cache import PackageCache, ServerProgram
from mainspring.capabilities.mcp.references import message_context
from mainspring.capabilities.mcp.server_connection import OpenTransport, ServerConnection
from mainspring.capabilities.mcp.server_requests import RequestHandlers, request_handlers
from mainspring.capabilities.mcp.server_skills import ServerSkills
from mainspring.capabilities.mcp.stdio import LineChannel
from mainspring.capabilities.mcp.tools import (
    covers_tool,
    definition_hash,
    definition_text,
    server_key,
    server_tools,
    tool_prefix,
)
from mainspring.capabilities.mcp.traced_transport import TracedTransport
from mainspring.capabilities.mcp.transport import MAX_MESSAGE_BYTES
from mainspring.capabilities.mcp.url_transport import open_url
from mainspring.capabilities.network.outbound_http import guarded_connector
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.capabilities.sandbox.attached_program import attach_program
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.capabilities.vault.assignments import looks_secret
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, McpFailed
from mainspring.core.events import ErrorDetail, RetryStatus, SessionFailed
from mainspring.core.ids import new_id
from mainspring.core.ports import ExecRequest
from mainspring.core.tool import Tool
from mainspring.harness.context.frontmatter import read_frontmatter
from mainspring.runtime.definition_files.settings_file import is_secret_name
from mainspring.runtime.mcp_server import McpServer, ServerParts, mcp_tool_rules, select_mcp_tools
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.settings.tool_pins import (
    check_pins,
    danger_in,
    remember_legacy,
)
from mainspring.wiring.builtin_tools import ALL_TOOLS
from mainspring.wiring.server_access import ServerAccess

CLIENT = Implementation(name="mainspring", version=__version__)
_SERVER_SECONDS = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ServerHost:
    """What the connections of a session run in, and end with."""

    group: TaskGroup
    cleanup: AsyncExitStack
    sandbox: SandboxSession | None
    packages: PackageCache | None = None


@dataclass(slots=True, kw_only=True, weakref_slot=True, eq=False)
class SessionServers:
    """The connections of one session."""

    servers: tuple[McpServer, ...]
    access: ServerAccess
    connections: dict[str, ServerConnection] = field(default_factory=dict[str, ServerConnection])
    """By the name of the server in the names of its tools."""
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    skills: dict[str, ServerSkills] = field(default_factory=dict[str, ServerSkills])
    """As they were first listed: the model's prompt stays the same."""
    problems: list[str] = field(default_factory=list[str])
    """What does not work, for people."""
    is_open: bool = True
    is_reported: bool = False

    async def aclose(self) -> None:
        self.is_open = False
        async with anyio.create_task_group() as group:
            for connection in self.connections.values():
                group.start_soon(connection.aclose)

    def requests_of(self, server: McpServer, host: ServerHost) -> RequestHandlers:
        """Only a program in the sandbox hears where the workspace is."""
        inside = host.sandbox if server.transport == "stdio" else None
        roots = [] if inside is None else [inside.workspace.as_uri()]
        make, sandbox = self.access.make_sample, host.sandbox
        if make is None or sandbox is None or not server.allows_sampling:
            return request_handlers(roots, None)
        return request_handlers(roots, make(sandbox.network_facts.extend))

    def selected(self, names: Sequence[str]) -> dict[str, Tool]:
        """The tools that an agent may use."""
        own = {resource_tool.NAME: resource_tool.resource_tool(self.connections)}
        is_all = ALL_TOOLS in names
        has_skills = is_all or server_skills.NAME in names
        skills = server_skills.skill_tools(self.skills if has_skills else {}, read_frontmatter)
        return (
            {name: tool for name, tool in own.items() if name in names}
            | {**skills}
            | {
                name: tool
                for name, tool in sorted(self.tools.items())
                if is_all or any(covers_tool(listed, name) for listed in names)
            }
        )

    def parts(self, setup: SetupRequest, *, is_own: bool = False) -> ServerParts:
        """What a thread gets of them. The service reports failures in the log, once. `is_own`:
        only this thread has them, and all their tools."""
        if is_own:
            setup = replace(setup, agent=replace(setup.agent, built_ins=(ALL_TOOLS,)))
        else:
            _BY_SESSION[setup.writer.session_id] = self
        notes = tuple(
            f"The MCP server {name} is not available: {clean_line(connection.error, 200)}."
            for name, connection in sorted(self.connections.items())
            if connection.error is not None
        )
        toolsets, found = setup.agent.mcp_toolsets, self._tools_of(setup)
        is_served = setup.options.is_served
        failures = () if self.is_reported or not is_served else tuple(self._failures())
        self.is_reported = self.is_reported or is_served

        async def changed_tools() -> dict[str, Tool] | None:
            known = len(self.problems)
            if not await self._reload():
                return None
            for problem in self.problems[known:]:
                setup.options.warn(problem)
            return self._tools_of(setup)

        return ServerParts(
            tools=found,
            rules=mcp_tool_rules(toolsets, found.values()) if is_served else (),
            notes=notes,
            facts=failures,
            changed_tools=changed_tools,
            message_context=message_context(
                self.connections, setup.agent.resources if setup.thread.messages == 0 else ()
            ),
        )

    def _tools_of(self, setup: SetupRequest) -> dict[str, Tool]:
        if not setup.options.is_served:
            return self.selected(setup.agent.built_ins)
        toolsets = setup.agent.mcp_toolsets
        tools = [tool for _, tool in sorted(self.tools.items())]
        whole = {server_key(item.server) for item in toolsets if item.default.is_enabled}
        skills = {key: skills for key, skills in self.skills.items() if key in whole}
        return {
            **select_mcp_tools(toolsets, tools),
            **server_skills.skill_tools(skills, read_frontmatter),
        }

    async def _reload(self) -> bool:
        """The tools of servers that say that theirs are others by now."""
        changed = [
            server
            for server in self.servers
            if self.connections[server_key(server.name)].has_changed_tools
        ]
        for server in changed:
            await _load_tools(self, server_key(server.name), server)
        return bool(changed)

    def _failures(self) -> Iterator[SessionFailed]:
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


_OPENED: WeakKeyDictionary[AsyncExitStack, SessionServers] = WeakKeyDictionary()
"""By the clean-up that they end with."""
_BY_SESSION: WeakValueDictionary[str, SessionServers] = WeakValueDictionary()


def servers_of(session_id: str) -> SessionServers | None:
    """The connections that a session has in this process."""
    opened = _BY_SESSION.get(session_id)
    return opened if opened is not None and opened.is_open else None


async def open_servers(
    servers: tuple[McpServer, ...], host: ServerHost, access: ServerAccess
) -> SessionServers:
    """Those of an earlier run, if they are the same; else connect to all at once. What does not
    work is a problem, and never an error."""
    opened = _OPENED.get(host.cleanup)
    if opened is not None and opened.is_open:
        if opened.servers == servers:
            opened.access = access  # each run has a log of its own
            for server in servers:
                access.scrub.learn(_secrets(server))
            return opened
        await opened.aclose()
    opened = SessionServers(servers=servers, access=access)
    by_key: dict[str, McpServer] = {}
    for server in servers:
        access.scrub.learn(_secrets(server))
        key = server_key(server.name)
        if by_key.setdefault(key, server) is server:
            opened.connections[key] = ServerConnection(
                partial(_open_connection, opened, server, host),
                host.group,
                implementation=CLIENT,
                era="legacy" if access.is_legacy(server) else None,
                limits=_limits(server),
                elicitations=Elicitations(
                    server.name, host.group, access.open_seal, opened.requests_of(server, host)
                ),
            )
    _OPENED[host.cleanup] = opened
    host.cleanup.push_async_callback(opened.aclose)
    async with anyio.create_task_group() as group:
        for key, server in by_key.items():
            group.start_soon(_load_tools, opened, key, server)
    return opened


def _limits(server: McpServer) -> ClientLimits:
    seconds = server.timeout_ms and server.timeout_ms / 1000
    return ClientLimits(call_seconds=seconds) if seconds else ClientLimits()


async def _load_tools(opened: SessionServers, key: str, server: McpServer) -> None:
    connection, redact = opened.connections[key], opened.access.scrub.redacted
    try:
        tool_list = await connection.list_tools()
    except McpFailed as error:
        last = clean_line(connection.error_output.rpartition("\n")[2], 200)
        wrote = f" (it wrote: {last})" if last else ""
        opened.problems.append(redact(f"MCP server {server.name}: {error}{wrote}"))
        connection.error = connection.error or str(error)
        return
    home = opened.access.home
    if home is not None and connection.info is not None and connection.info.era == "legacy":
        await to_thread.run_sync(remember_legacy, home, server, clock.now())
    refused = await to_thread.run_sync(_refused_tools, home, server, tool_list)
    found = server_tools(server.name, tool_list, connection.call, refused=refused)
    prefix = tool_prefix(server.name)
    others = {name: tool for name, tool in opened.tools.items() if not name.startswith(prefix)}
    opened.tools = {**others, **{tool.spec.name: tool for tool in found.tools}}
    opened.problems += [
        redact(f"MCP server {server.name}, a tool left out: {why}") for why in found.rejected
    ]
    if key not in opened.skills and server_skills.publishes_skills(connection):
        await _load_skills(opened, key, server)


async def _load_skills(opened: SessionServers, key: str, server: McpServer) -> None:
    connection, redact = opened.connections[key], opened.access.scrub.redacted
    try:
        skills, rejected = await server_skills.read_skill_list(server.name, connection, danger_in)
    except McpFailed as error:
        opened.problems.append(redact(f"MCP server {server.name}, its skills: {error}"))
        return
    opened.skills[key] = skills
    opened.problems += [
        redact(f"MCP server {server.name}, a skill left out: {why}") for why in rejected
    ]


def _secrets(server: McpServer) -> dict[str, str]:
    """A server may repeat what it was given: neither the model nor the log is to have it."""
    secrets = {
        name: value
        for name, value in server.env.items()
        if is_secret_name(name) or looks_secret(value.encode())
    }
    for name, value in server.headers.items():
        secrets |= {name: value, f"{name} value": value.rpartition(" ")[2]}
    return secrets


def _refused_tools(
    home: Path | None, server: McpServer, tool_list: ToolList
) -> dict[str, str | None]:
    """Disabled ones, those that try to steer the model, and those that have changed."""
    refused: dict[str, str | None] = dict.fromkeys(server.disabled_tools)
    for tool in tool_list.tools:
        if tool.name not in refused and (why := danger_in(definition_text(tool))) is not None:
            refused[tool.name] = why
    hashes = {tool.name: definition_hash(tool) for tool in tool_list.tools}
    try:
        changed = {} if home is None else check_pins(home, server, hashes)
    except InvalidInput as error:  # nobody can tell what they were
        changed = dict.fromkeys(hashes, str(error))
    return {**changed, **refused}


async def _open_connection(
    opened: SessionServers, server: McpServer, host: ServerHost
) -> OpenTransport:
    made, trace = await _open_transport(opened, server, host), opened.access.trace
    return (
        made if trace is None else replace(made, transport=TracedTransport(made.transport, trace))
    )


async def _open_transport(
    opened: SessionServers, server: McpServer, host: ServerHost
) -> OpenTransport:
    if missing := server.missing_inputs:
        raise McpFailed(
            f"it needs the input {missing[0].id}: run `mainspring mcp auth {server.name}`",
            needs_auth=True,
        )
    if server.transport == "stdio":
        return await _start_program(server, server_key(server.name), host)
    networks, connector = opened.access.networks, None
    if networks is not None:
        connector = await guarded_connector(server.url, networks)

    def learn(secret: str) -> None:
        opened.access.scrub.learn({f"token of {server.name}": secret})

    auth = opened.access.authenticate(server, learn)
    new_decoder = partial(SseDecoder, max_event_bytes=MAX_MESSAGE_BYTES)
    return OpenTransport(
        transport=await open_url(server.transport, server.url, new_decoder, auth, connector)
    )


async def _start_program(server: McpServer, key: str, host: ServerHost) -> OpenTransport:
    if (sandbox := host.sandbox) is None:
        raise McpFailed("it would need a sandbox, and there is none")
    name = f"mcp{hashlib.sha256(key.encode()).hexdigest()[:9]}"  # becomes part of a socket's path
    program = ServerProgram(argv=(server.command, *server.args))
    if host.packages is not None:
        program = await host.packages.program(server.command, server.args)
    wanted = ExecRequest(
        key=new_id("mcp"),
        argv=program.argv,
        cwd=server.cwd,
        env={**sandbox.variables, **program.env, **server.env},
        wall_seconds=_SERVER_SECONDS,
        max_bytes=64_000,
    )
    try:
        own = sandbox.open_another(name, program.read_only, server.networking)
    except InvalidInput as error:
        raise McpFailed(str(error)) from error
    attached = await attach_program(own, wanted)
    return OpenTransport(
        transport=ChannelTransport(LineChannel(attached)), error_output=attached.error_output
    )
