"""OAuth of this user's MCP servers: grants in the vault, guarded requests, logging in and out."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from anyio import to_thread

from mainspring.capabilities.mcp.client import ClientLimits, McpClient
from mainspring.capabilities.mcp.messages import Implementation
from mainspring.capabilities.mcp.oauth import Browser, ClientConfig, Fetch, Grant, OAuthClient
from mainspring.capabilities.mcp.oauth_device import DeviceScreen
from mainspring.capabilities.mcp.oauth_grants import OAuthGrant
from mainspring.capabilities.mcp.server_auth import (
    HelperHeaders,
    Learn,
    ServerAuth,
    StaticHeaders,
)
from mainspring.capabilities.mcp.transport import MAX_MESSAGE_BYTES
from mainspring.capabilities.mcp.url_transport import open_url
from mainspring.capabilities.network.addresses import resolve_allowed, system_resolver
from mainspring.capabilities.network.outbound_http import OutboundHttpClient
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, McpFailed, NetworkRefused
from mainspring.core.lazy_module import LazyModule
from mainspring.core.ports import HttpReply
from mainspring.runtime.mcp_server import McpServer
from mainspring.wiring.settings_files import read_settings_commands
from mainspring.wiring.user_vault import has_vault, open_vault

if TYPE_CHECKING:
    from mainspring.capabilities.vault import vault_file
else:
    vault_file = LazyModule("mainspring.capabilities.vault.vault_file")  # slow to import

_EVERYWHERE: tuple[Network, ...] = (ip_network("0.0.0.0/0"), ip_network("::/0"))
_PERSON_SECONDS = 600.0


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None
    auth_server_metadata_url: str | None = None
    scopes: tuple[str, ...] | str = ()


def server_auth(
    settings: Settings,
    server: McpServer,
    learn: Learn,
    browser: Browser | DeviceScreen | None = None,
) -> ServerAuth:
    """By what its helper prints, or by its headers, if they have an `Authorization`; else by OAuth.

    Raises: McpFailed: its `oauth` is not what it should be.
    """
    if server.headers_helper is not None:

        async def run() -> str:
            commands = await read_settings_commands(settings, Path(settings.folder))
            return await commands.server_headers(server)

        return HelperHeaders(run, server.headers, learn)
    if any(name.lower() == "authorization" for name in server.headers):
        return StaticHeaders(server.headers)
    return OAuthGrant(
        client=OAuthClient(
            url=server.url,
            fetch=guarded_fetch(server.url),
            config=_client_config(server),
            random=partial(secrets.token_urlsafe, 48),
            now=lambda: clock.now().timestamp(),
        ),
        store=VaultGrants(settings, server),
        learn=learn,
        login_hint=f"you have to log in: run `mainspring mcp auth {server.name}`",
        browser=browser,
        other_headers=server.headers,
    )


async def log_in(settings: Settings, server: McpServer, browser: Browser | DeviceScreen) -> bool:
    """Connect to a server, and have a person agree if it asks for that; False if it does not.

    Raises: McpFailed, InvalidInput.
    """
    await to_thread.run_sync(open_vault, settings)  # makes the key, before anybody is asked
    auth = server_auth(settings, server, lambda _: None, browser)
    kind = server.transport
    if kind == "stdio" or not isinstance(auth, OAuthGrant):
        raise InvalidInput(
            f"{server.name} is not a server that one logs in to: it has its own headers or command"
        )
    new_decoder = partial(SseDecoder, max_event_bytes=MAX_MESSAGE_BYTES)
    transport = await open_url(kind, server.url, new_decoder, auth)
    client = McpClient(
        transport,
        implementation=Implementation(name="mainspring", version="1"),
        limits=ClientLimits(
            connect_seconds=_PERSON_SECONDS,
            probe_seconds=_PERSON_SECONDS,
            request_seconds=_PERSON_SECONDS,
        ),
    )
    try:
        await client.connect()
        await client.list_tools()
    finally:
        await client.aclose()
    return await VaultGrants(settings, server).load() is not None


@dataclass(frozen=True, slots=True)
class VaultGrants:
    """A `GrantStore` in the user's vault, an entry for each server."""

    settings: Settings
    server: McpServer

    @property
    def _name(self) -> str:
        return f"MCP_{hashlib.sha256(self.server.url.encode()).hexdigest()[:32]}"

    async def load(self) -> Grant | None:
        return await to_thread.run_sync(self._load)

    async def save(self, grant: Grant) -> None:
        value = msgspec.json.encode(grant).decode()
        await to_thread.run_sync(lambda: open_vault(self.settings).put(self._name, value, ()))

    async def replace(self, seen: Grant, renew: Callable[[Grant], Awaitable[Grant]]) -> Grant:
        lock = vault_file.locked(Path(self.settings.vault).with_name(f"{self._name}.lock"))
        await to_thread.run_sync(lock.__enter__)
        try:
            current = await self.load()
            if current is None:
                raise McpFailed("you have logged out", needs_auth=True)
            if current.access_token != seen.access_token:
                return current
            renewed = await renew(current)
            await self.save(renewed)
            return renewed
        finally:
            lock.__exit__(None, None, None)

    async def remove(self) -> bool:
        """False: there was none."""
        if await self.load() is None:
            return False
        await to_thread.run_sync(lambda: open_vault(self.settings).remove(self._name))
        return True

    def _load(self) -> Grant | None:
        if not has_vault(self.settings):
            return None
        for secret in open_vault(self.settings).secrets():
            if secret.name == self._name:
                return msgspec.json.decode(secret.value, type=Grant)
        return None


def guarded_fetch(server: str) -> Fetch:
    """A server that everybody can reach does not lead us to addresses that nobody else can."""

    async def fetch(url: str, headers: Mapping[str, str], body: bytes | None = None) -> HttpReply:
        try:
            await resolve_allowed(urlsplit(server).hostname or "", system_resolver)
            allowed: tuple[Network, ...] = ()
        except NetworkRefused:
            allowed = _EVERYWHERE
        return await OutboundHttpClient(allowed=allowed).fetch(url, headers, body)

    return fetch


def _client_config(server: McpServer) -> ClientConfig:
    try:
        entry = msgspec.convert(server.oauth, _Entry)
    except msgspec.ValidationError as error:
        raise McpFailed(f"its oauth settings: {error}") from error
    scopes = entry.scopes.split() if isinstance(entry.scopes, str) else entry.scopes
    return ClientConfig(
        client_id=entry.client_id,
        client_secret=entry.client_secret,
        client_metadata_url=entry.client_metadata_url,
        auth_server_metadata_url=entry.auth_server_metadata_url,
        scopes=tuple(scopes),
    )
