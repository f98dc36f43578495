"""The MCP servers of a folder, without a session: what `mainspring mcp` lists and talks to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.mcp.traced_transport import Trace
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import Settings
from mainspring.core.ids import new_id
from mainspring.runtime.agent_folder.mcp_file import read_mcp
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.session.session_paths import (
    add_protected_paths,
    hide_denied_paths,
    with_plugin_folders,
)
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.runtime.settings.session_servers import read_plugins
from mainspring.wiring import mcp_auth
from mainspring.wiring.mcp_inputs import user_servers, with_inputs
from mainspring.wiring.mcp_packages import sandbox_packages
from mainspring.wiring.mcp_servers import ServerHost, SessionServers, open_servers
from mainspring.wiring.sandbox_environment import read_environment, session_paths
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.server_access import ServerAccess
from mainspring.wiring.settings_files import load_policy


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
        used = {item.name for item in self.usable}
        for other in self.every:
            if other.name in used and other.content == server.content:
                return f"it is the same server as {other.name}"
        if server.plugin is not None:
            return "its plugin is not trusted, or disabled"
        is_own = server.scope == "project"
        return "this folder is not trusted" if is_own and not self.is_trusted else "disabled"


def read_project_servers(settings: Settings) -> ProjectServers:
    """Raises: InvalidInput: the settings cannot be read."""
    folder, home = Path(settings.folder).resolve(), Path(settings.home)
    scopes = Scopes(folder=folder, home=home, managed=MANAGED)
    loaded = load_policy(folder, home=home)
    environment = with_inputs(settings, folder)
    return ProjectServers(
        every=read_mcp(scopes, environment, plugins=read_plugins(scopes).servers).servers,
        usable=user_servers(settings, folder, loaded),
        is_trusted=loaded.is_trusted,
        loaded=loaded,
    )


@asynccontextmanager
async def connect_servers(
    settings: Settings,
    project: ProjectServers,
    names: Collection[str] | None = None,
    trace: Trace | None = None,
) -> AsyncGenerator[SessionServers, None]:
    """Connect to the servers as a session would, without one. `names`: only these.
    `trace` shows every message.

    Raises: InvalidInput, SandboxFailed.
    """
    key = new_id("mcp")
    loaded = project.loaded
    wanted = tuple(item for item in project.usable if names is None or item.name in names)
    paths = with_plugin_folders(session_paths(settings, Path(settings.folder), key), wanted)
    paths = add_protected_paths(
        await to_thread.run_sync(hide_denied_paths, paths, loaded.policy), loaded.policy
    )
    environment = read_environment(loaded.sandbox, loaded.preferences.sandbox_env)
    async with SandboxPool(settings) as pool:
        sandbox = await pool.open_session(key, paths, environment)
        packages = sandbox_packages(settings, pool, sandbox)
        host = ServerHost(sandbox.group, sandbox.cleanup, sandbox, packages)
        access = ServerAccess(
            scrub=Scrubber({}),
            home=Path(settings.home),
            authenticate=partial(mcp_auth.server_auth, settings),
            trace=trace,
        )
        yield await open_servers(wanted, host, access)
