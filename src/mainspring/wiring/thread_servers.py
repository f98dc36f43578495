"""The MCP servers of a thread: those of its session, and those that only its subagent has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.config import Settings
from mainspring.core.lazy_module import LazyModule
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.mcp_server import McpServer, ServerParts
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import SessionPaths
from mainspring.runtime.session_context import Models, SetupRequest
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.runtime.settings.session_servers import subagent_servers
from mainspring.wiring.mcp_inputs import user_servers
from mainspring.wiring.mcp_packages import sandbox_packages
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.thread_workspace import SessionRuntime

if TYPE_CHECKING:
    from mainspring.capabilities.network.rules import Network
    from mainspring.wiring import mcp_servers, server_access
else:
    mcp_servers = LazyModule("mainspring.wiring.mcp_servers")
    server_access = LazyModule("mainspring.wiring.server_access")


@dataclass(frozen=True, slots=True)
class ThreadServers:
    settings: Settings
    networks: tuple[Network, ...]
    models: Models
    sandboxes: SandboxPool
    warn: Callable[[RunOptions, str], None]

    async def add_to(
        self,
        session: SessionRuntime,
        options: RunOptions,
        paths: SessionPaths,
        loaded: LoadedPolicy,
    ) -> SessionRuntime:
        """The session with the servers that it may use."""
        if options.is_served:
            return replace(session, servers=options.servers)
        folder, settings = paths.workspace, self.settings
        scopes = Scopes(folder=folder, home=Path(settings.home), managed=MANAGED)
        return replace(
            session,
            servers=await to_thread.run_sync(user_servers, settings, folder, loaded),
            subagent_servers=subagent_servers(scopes, settings.environment, loaded),
        )

    async def open(
        self,
        setup: SetupRequest,
        servers: tuple[McpServer, ...],
        sandbox: SandboxSession | None,
        stack: AsyncExitStack,
        subagents: Mapping[str, tuple[McpServer, ...]] | None = None,
    ) -> ServerParts:
        """What MCP servers contribute. Without a sandbox, their connections end with `stack`, and
        so do those that only a subagent has."""
        own = (subagents or {}).get(setup.subagent or "", ())
        parts, say = ServerParts(), partial(self.warn, setup.options)
        for wanted, cleanup in ((servers, sandbox and sandbox.cleanup), (own, None)):
            if wanted:
                pool = self.sandboxes
                packages = sandbox and sandbox_packages(self.settings, pool, sandbox, say)
                host = mcp_servers.ServerHost(pool.group, cleanup or stack, sandbox, packages)
                access = server_access.session_access(
                    setup, self.settings, self.networks, self.models
                )
                opened = await mcp_servers.open_servers(wanted, host, access)
                for problem in opened.problems:
                    self.warn(setup.options, problem)
                parts = parts.joined(opened.parts(setup, is_own=wanted is own))
        return parts
