"""The MCP servers of a session, or of a command without a session: their credentials and where
their programs run."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from anyio import to_thread

from mainspring import __version__
from mainspring.capabilities.mcp.login import oauth_grants
from mainspring.capabilities.mcp.login.oauth import Browser, OAuthClient
from mainspring.capabilities.mcp.login.oauth_device import DeviceScreen
from mainspring.capabilities.mcp.login.oauth_documents import parse_client_config
from mainspring.capabilities.mcp.login.oauth_grants import OAuthGrant, StoredGrants
from mainspring.capabilities.mcp.protocol.transport import MAX_MESSAGE_BYTES, Transport
from mainspring.capabilities.mcp.server_requests import make_sample
from mainspring.capabilities.mcp.session_servers import (
    ServerAccess,
    ServerHost,
    ServerPool,
    SessionServers,
)
from mainspring.capabilities.mcp.transports.server_auth import (
    BearerAuthentication,
    HelperHeaders,
    Learn,
    ServerAuth,
    StaticHeaders,
)
from mainspring.capabilities.mcp.transports.traced_transport import Trace
from mainspring.capabilities.mcp.transports.url_transport import open_url
from mainspring.capabilities.network.outbound_http import GuardedFetch, guarded_connector
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.capabilities.vault.assignments import looks_secret
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.core.ids import new_id
from mainspring.runtime.agent_folder.mcp_file import defined_servers
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.definition_files.settings_file import is_secret_name
from mainspring.runtime.mcp_server import McpServer, ServerParts
from mainspring.runtime.model_question import read_text
from mainspring.runtime.session.session_paths import (
    add_protected_paths,
    hide_denied_paths,
    with_plugin_folders,
)
from mainspring.runtime.session_context import Models, SetupRequest
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.runtime.settings.session_servers import ProjectServers, read_plugins, server_parts
from mainspring.runtime.settings.tool_pins import ServerHistory
from mainspring.wiring.mcp_packages import sandbox_packages
from mainspring.wiring.sandbox_settings import read_environment, session_paths
from mainspring.wiring.sandboxes import SandboxPool, sandbox_pool
from mainspring.wiring.settings_files import (
    load_policy,
    read_folder_policy,
    settings_commands,
    user_servers,
)
from mainspring.wiring.user_vault import user_vault

SERVERS: ServerPool[McpServer] = ServerPool(__version__)
"""The connections of this process."""


def server_auth(
    settings: Settings,
    server: McpServer,
    learn: Learn,
    browser: Browser | DeviceScreen | None = None,
) -> ServerAuth:
    """The headers that its helper prints, or its own headers if they contain `Authorization`;
    otherwise OAuth.

    Raises: McpFailed: its `oauth` is not valid.
    """
    if server.headers_helper is not None:

        async def run() -> str:
            loaded = await read_folder_policy(settings, Path(settings.folder))
            return await settings_commands(settings, loaded).server_headers(server)

        return HelperHeaders(run, server.headers, learn)
    if any(name.lower() == "authorization" for name in server.headers):
        return StaticHeaders(server.headers)
    return OAuthGrant(
        client=OAuthClient(
            url=server.url,
            fetch=GuardedFetch(server.url),
            config=parse_client_config(server.oauth),
            random=partial(secrets.token_urlsafe, 48),
            now=lambda: clock.now().timestamp(),
        ),
        store=stored_grants(settings, server),
        learn=learn,
        login_hint=f"you have to log in: run `mainspring mcp auth {server.name}`",
        browser=browser,
        other_headers=server.headers,
    )


def stored_grants(settings: Settings, server: McpServer) -> StoredGrants:
    return StoredGrants(user_vault(settings), server.url)


async def log_in(settings: Settings, server: McpServer, browser: Browser | DeviceScreen) -> bool:
    """Connect to a server and let a person log in; False if it needs no login.

    Raises: McpFailed, InvalidInput.
    """
    await to_thread.run_sync(
        user_vault(settings).open
    )  # creates the key before the person is asked
    auth = server_auth(settings, server, lambda _: None, browser)
    if server.transport == "stdio" or not isinstance(auth, OAuthGrant):
        raise InvalidInput(
            f"{server.name} does not need a login: it has its own headers or command"
        )
    await oauth_grants.log_in(await _open_address(server.transport, server.url, auth))
    return await stored_grants(settings, server).load() is not None


async def _open_address(
    kind: Literal["http", "sse", "ws"],
    url: str,
    auth: ServerAuth,
    *,
    networks: tuple[Network, ...] | None = None,
) -> Transport:
    """`networks`: private addresses that may be reached; `None`: all."""
    connector = None if networks is None else await guarded_connector(url, networks)
    new_decoder = partial(SseDecoder, max_event_bytes=MAX_MESSAGE_BYTES)
    return await open_url(kind, url, new_decoder, auth, connector)


def _user_access(settings: Settings, scrub: Scrubber) -> ServerAccess[McpServer]:
    return ServerAccess(
        scrub=scrub,
        is_secret=_is_secret,
        history=ServerHistory(Path(settings.home), clock.now),
        authenticate=partial(server_auth, settings),
        open_address=_open_address,
    )


def _is_secret(name: str, value: str) -> bool:
    return is_secret_name(name) or looks_secret(value.encode())


def _session_access(
    setup: SetupRequest, settings: Settings, networks: tuple[Network, ...], models: Models
) -> ServerAccess[McpServer]:
    scrub, options = setup.log.scrub, setup.options
    scrub = scrub if isinstance(scrub, Scrubber) else Scrubber({})
    access = replace(_user_access(settings, scrub), open_seal=user_vault(settings).open_seal)
    if not options.is_served:
        read_reply = partial(read_text, models, setup.agent.model)
        return replace(access, make_sample=partial(make_sample, read_reply))

    def authenticate(server: McpServer, learn: Learn) -> ServerAuth:
        get = options.server_token
        return BearerAuthentication(partial(get, server.url), learn) if get else StaticHeaders({})

    return replace(
        access,
        history=ServerHistory(None, clock.now),
        authenticate=authenticate,
        open_address=partial(_open_address, networks=networks),
    )


@dataclass(frozen=True, slots=True)
class ThreadServers:
    """Opens the servers of threads."""

    settings: Settings
    networks: tuple[Network, ...]
    models: Models
    sandboxes: SandboxPool

    async def open(
        self,
        setup: SetupRequest,
        servers: tuple[McpServer, ...],
        own: tuple[McpServer, ...],
        sandbox: SandboxSession | None,
        stack: AsyncExitStack,
        warn: Callable[[str], None],
    ) -> ServerParts:
        """The tools of MCP servers: those of the session, and those that only the thread's subagent
        has. Without a sandbox, the connections end with `stack`; those of the thread always do."""
        parts, pool = ServerParts(), self.sandboxes
        access = _session_access(setup, self.settings, self.networks, self.models)
        packages = sandbox and sandbox_packages(self.settings, pool, sandbox, warn)
        for entries, cleanup in ((servers, sandbox and sandbox.cleanup), (own, None)):
            if entries:
                host = ServerHost(pool.group, cleanup or stack, sandbox, packages)
                connected = await SERVERS.open(entries, host, access)
                for problem in connected.problems:
                    warn(problem)
                if entries is not own:
                    SERVERS.assign(setup.writer.session_id, connected)
                parts = parts.joined(server_parts(connected, setup, is_own=entries is own))
        return parts


def read_project_servers(settings: Settings, loaded: LoadedPolicy | None = None) -> ProjectServers:
    """`loaded`: what was read of the folder. Raises: InvalidInput: the settings cannot be read."""
    folder, home = Path(settings.folder).resolve(), Path(settings.home)
    scopes = Scopes(folder=folder, home=home, managed=MANAGED)
    loaded = loaded or load_policy(folder, home=home)
    return ProjectServers(
        every=defined_servers(scopes, plugins=read_plugins(scopes).servers).servers,
        usable=user_servers(settings, folder, loaded)[0],
        loaded=loaded,
    )


@asynccontextmanager
async def connect_servers(
    settings: Settings,
    project: ProjectServers,
    names: Collection[str] | None = None,
    trace: Trace | None = None,
) -> AsyncGenerator[SessionServers[McpServer], None]:
    """Connect to the servers as a session would. `names`: only these servers. `trace` receives
    every message.

    Raises: InvalidInput, SandboxFailed.
    """
    key = new_id("mcp")
    loaded = project.loaded
    servers = tuple(item for item in project.usable if names is None or item.name in names)
    paths = with_plugin_folders(session_paths(settings, Path(settings.folder), key), servers)
    paths = add_protected_paths(
        await to_thread.run_sync(hide_denied_paths, paths, loaded.policy), loaded.policy
    )
    environment = read_environment(loaded.sandbox, loaded.preferences.sandbox_env)
    async with sandbox_pool(settings) as pool:
        sandbox = await pool.open_session(key, paths, environment)
        packages = sandbox_packages(settings, pool, sandbox)
        host = ServerHost(sandbox.group, sandbox.cleanup, sandbox, packages)
        access = replace(_user_access(settings, Scrubber({})), trace=trace)
        yield await SERVERS.open(servers, host, access)
