"""`mainspring mcp serve`: agents of this machine, or functions of a file, as an MCP server."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import anyio
import typer
from anyio import to_thread

from mainspring.capabilities.mcp.server.connection import McpConnection
from mainspring.capabilities.mcp.server.dispatcher import McpDispatcher
from mainspring.capabilities.mcp.server.features import Features
from mainspring.capabilities.mcp.server.stdio import serve_lines
from mainspring.config import Settings
from mainspring.core.errors import Forbidden, InvalidInput
from mainspring.edges.api.app import AccessControl
from mainspring.edges.api.connections import bind_sockets
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.mcp_servers.mcp import app
from mainspring.edges.cli.render.printing import Screen
from mainspring.edges.cli.run.run_arguments import parse_limit
from mainspring.edges.cli.run.session_runner import SessionRunner, open_session_runner
from mainspring.edges.mcp.agent_features import INSTRUCTIONS, AgentFeatures
from mainspring.edges.mcp.function_features import FunctionFeatures, load_functions
from mainspring.edges.mcp.http_endpoint import HostRules
from mainspring.edges.mcp.http_server import mcp_http_server, mcp_routes, new_server
from mainspring.edges.mcp.local_agents import LocalAgents
from mainspring.edges.mcp.standard_streams import standard_streams
from mainspring.log.records import Records
from mainspring.runtime.memory.memory_mode import MemoryMode
from mainspring.runtime.run_options import RunOptions
from mainspring.service.access.api_keys import ensure_first_key
from mainspring.service.access.principal import CLI_PRINCIPAL, Principal
from mainspring.service.authorization.authentication import Authenticator
from mainspring.wiring.memory import served_memory
from mainspring.wiring.stores import open_store

__all__ = ["app", "serve"]

_TENANT = "default"
"""The tenant whose keys may use the agents of this machine."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeArguments:
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            metavar="DIR",
            help="An agent's folder. Can be repeated. [default: this folder]",
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="NAME", help="The model to use instead of the agents' own."
        ),
    ] = None
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", metavar="DIR", help="The folder that the agents work in."),
    ] = None
    max_turns: Annotated[
        int | None,
        typer.Option("--max-turns", min=1, metavar="N", help="The most turns of each session."),
    ] = None
    max_cost: Annotated[
        Decimal | None,
        typer.Option(
            "--max-cost", parser=parse_limit, metavar="USD", help="The cost limit of each session."
        ),
    ] = None
    allow_answers: Annotated[
        bool,
        typer.Option(
            "--allow-answers",
            help="Let the client itself answer approvals, not only its user.",
        ),
    ] = False

    def options(self, agent: str | None) -> RunOptions:
        return RunOptions(
            agent=None if agent is None else Path(agent),
            model=self.model,
            workspace=None if self.workspace is None else Path(self.workspace),
            max_turns=self.max_turns,
            max_cost_usd=self.max_cost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpArguments:
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="[HOST:]PORT",
            help="Serve over HTTP at this address, at the path /mcp. [default: stdio]",
        ),
    ] = None
    no_auth: Annotated[
        bool,
        typer.Option(
            "--no-auth", help="Require no API key. Only for functions, and only on this machine."
        ),
    ] = False
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin",
            metavar="URL",
            help="An origin of web pages that may use the server, in addition to this machine.",
        ),
    ] = None

    def address(self) -> tuple[str, int]:
        host, _, port = (self.http or "").rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            raise InvalidInput(f"--http {self.http}: give it as 8800 or 127.0.0.1:8800")
        return host.strip("[]") or "127.0.0.1", int(port)


@command(app, "serve")
async def serve(
    settings: Settings,
    *,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]", help="Serve the functions of this Python file instead of agents."
        ),
    ] = None,
    arguments: ServeArguments,
    http_arguments: HttpArguments,
) -> int:
    """Serve agents to MCP clients, each as a tool. With FILE, serve its functions with @tool,
    @resource or @prompt instead.

    By default over standard input and output, for `mainspring mcp add NAME -- mainspring mcp
    serve`; with --http over HTTP, with the API keys of this store.
    """
    if http_arguments.no_auth and (file is None or http_arguments.http is None):
        raise typer.BadParameter("for functions over HTTP only", param_hint="--no-auth")
    if file is not None and arguments.agent:
        raise typer.BadParameter("a file is served without agents", param_hint="--agent")
    if file is not None:
        return await _serve_file(settings, Path(settings.folder, file), http_arguments)
    async with _open_agents(settings, arguments) as runners:
        log = next(iter(runners.values())).runtime.log
        modes: list[MemoryMode] = [runner.agent.memory for runner in runners.values()]
        options = arguments.options(None)

        def features_for(principal: Principal) -> Features:
            if principal.tenant != _TENANT or principal.agent_id is not None:
                raise Forbidden("this key is not for the agents of this machine")
            return AgentFeatures(
                LocalAgents(
                    runners=runners,
                    log=log,
                    principal=principal,
                    answers_by_call=arguments.allow_answers,
                    memory=served_memory(settings, options, modes, principal.key_id),
                )
            )

        server = new_server("mainspring", instructions=INSTRUCTIONS)
        if http_arguments.http is None:
            person = Principal(
                tenant=_TENANT, key_id=CLI_PRINCIPAL, role="admin", name=settings.user or "user"
            )
            return await _serve_stdio(server, features_for(person))
        records = log.store.records
        return await _serve_http(settings, server, features_for, http_arguments, records)


async def _serve_file(settings: Settings, file: Path, arguments: HttpArguments) -> int:
    functions = await to_thread.run_sync(load_functions, file)
    features, server = FunctionFeatures(functions), new_server(file.stem)
    if arguments.http is None:
        return await _serve_stdio(server, features)
    if arguments.no_auth:
        return await _serve_http(settings, server, lambda _: features, arguments, None)
    async with open_store(settings) as store:
        return await _serve_http(settings, server, lambda _: features, arguments, store.records)


async def _serve_stdio(server: McpDispatcher, features: Features) -> int:
    if sys.stdin.isatty():
        sys.stderr.write("an MCP client starts this program and talks to it; Ctrl-C ends it\n")
    with standard_streams() as streams:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_on_signal, group.cancel_scope)
            await serve_lines(server, McpConnection(caller="local", features=features), streams)
            group.cancel_scope.cancel()
    return 0


async def _serve_http(
    settings: Settings,
    server: McpDispatcher,
    features_for: Callable[[Principal], Features],
    arguments: HttpArguments,
    records: Records | None,
) -> int:
    host, port = arguments.address()
    is_local = host in _LOOPBACK
    if records is None and not is_local:
        raise InvalidInput(f"--no-auth: {host} can be reached from other machines")
    rules = replace(HostRules(), origins=frozenset(arguments.allow_origin or ()))
    if not is_local:
        rules = replace(rules, hosts=None)
    routes = mcp_routes(server, features_for, rules)
    access: AccessControl | None = None if records is None else Authenticator(records)
    async with (
        AsyncExitStack() as stack,
        anyio.create_task_group() as group,
    ):
        sockets = [stack.enter_context(item) for item in await bind_sockets(host, port)]
        async with mcp_http_server(routes, sockets, access_control=access) as url:
            screen = Screen(settings)
            screen.line((f"serving MCP at {url}", "bold"))
            if records is not None:
                first = await ensure_first_key(records, adopted=settings.admin_key)
                if first is not None:
                    screen.paragraph((f"admin key, shown this once: {first}", ""))
            if not is_local:
                note = "it is not encrypted: put it behind a proxy that speaks TLS"
                screen.paragraph((note, "yellow"))
            await _cancel_on_signal(group.cancel_scope)
    return 0


@asynccontextmanager
async def _open_agents(
    settings: Settings, arguments: ServeArguments
) -> AsyncGenerator[Mapping[str, SessionRunner], None]:
    async with AsyncExitStack() as stack:
        runners: dict[str, SessionRunner] = {}
        for agent in arguments.agent or [None]:
            runner = await stack.enter_async_context(
                open_session_runner(settings, arguments.options(agent), None, answered_later=True)
            )
            if runner.agent.name in runners:
                raise InvalidInput(f"two agents are called {runner.agent.name!r}")
            runners[runner.agent.name] = runner
        yield runners


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    """Cancel on SIGTERM or SIGINT. Running sessions are interrupted and can be continued."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
