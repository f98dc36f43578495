"""A stored OAuth grant authenticates requests to one MCP server: it is refreshed before it expires,
renewed when the server refuses it, and extended when the server requires more scopes."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from anyio import to_thread

from mainspring.capabilities.mcp.login.oauth import Browser, Challenge, OAuthClient, ServerTokens
from mainspring.capabilities.mcp.login.oauth_device import DeviceScreen, authorize_device
from mainspring.capabilities.mcp.protocol.client import ClientLimits, McpClient
from mainspring.capabilities.mcp.protocol.messages import Implementation
from mainspring.capabilities.mcp.protocol.transport import Transport
from mainspring.capabilities.mcp.transports.server_auth import Learn, Refusal
from mainspring.core.errors import McpFailed

_MAX_AUTHORIZATIONS = 3
"""The maximum number of consent requests to a person per connection."""
_PERSON_SECONDS = 600.0  # for a person to log in, with a second factor if need be


class GrantStore(Protocol):
    """Stores the grant for one server."""

    async def load(self) -> ServerTokens | None: ...

    async def save(self, grant: ServerTokens) -> None: ...

    async def replace(
        self, old: ServerTokens, renew: Callable[[ServerTokens], Awaitable[ServerTokens]]
    ) -> ServerTokens:
        """Renew a grant that has expired or was refused, unless another process has renewed it.
        Only one process renews at a time: a refresh token that is used twice is often revoked."""
        ...


@dataclass(slots=True, kw_only=True)
class OAuthGrant:
    """A `ServerAuth`. Without a `browser`, no person can be asked, and a server that needs consent
    fails."""

    client: OAuthClient
    store: GrantStore
    learn: Learn
    login_hint: str
    """How a person logs in."""
    browser: Browser | DeviceScreen | None = None
    other_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    _grant: ServerTokens | None = field(default=None, init=False)
    _authorizations: int = field(default=0, init=False)

    async def headers(self) -> Mapping[str, str]:
        if self._grant is None:
            self._use(await self.store.load())
        grant = self._grant
        if grant is not None and not grant.is_fresh(self.client.now()) and grant.refresh_token:
            self._use(await self.store.replace(grant, self.client.refresh))
        if self._grant is None:
            return self.other_headers
        return {**self.other_headers, "Authorization": f"Bearer {self._grant.access_token}"}

    async def renew(self, refusal: Refusal) -> bool:
        challenge, grant = Challenge.parse(refusal.challenge), self._grant
        if refusal.status == 403 and challenge.error != "insufficient_scope":
            return False
        if refusal.status == 401 and grant is not None and await self._has_refreshed(grant):
            return True
        if self.browser is None:
            raise McpFailed(self.login_hint, needs_auth=True)
        if self._authorizations >= _MAX_AUTHORIZATIONS:
            return False
        self._authorizations += 1
        if isinstance(self.browser, DeviceScreen):
            granted = await authorize_device(self.client, self.browser, challenge, grant)
        else:
            granted = await self.client.authorize(self.browser, challenge, grant)
        await self.store.save(granted)
        self._use(granted)
        return True

    async def _has_refreshed(self, grant: ServerTokens) -> bool:
        if not grant.refresh_token:
            return False
        try:
            renewed = await self.store.replace(grant, self.client.refresh)
        except McpFailed:
            return False
        self._use(renewed)
        return renewed.access_token != grant.access_token

    def _use(self, grant: ServerTokens | None) -> None:
        self._grant = grant
        if grant is not None:
            for secret in (grant.access_token, grant.refresh_token, grant.client_secret):
                if secret:
                    self.learn(secret)


class GrantSecrets(Protocol):
    """Stores secrets by name. Blocks."""

    def values(self) -> Mapping[str, str]: ...

    def put(self, name: str, value: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def lock(self, name: str) -> AbstractContextManager[None]:
        """A lock for one process at a time."""
        ...


@dataclass(frozen=True, slots=True)
class StoredGrants:
    """A `GrantStore` in a user's vault, with an entry for each server."""

    secrets: GrantSecrets
    url: str

    @property
    def _name(self) -> str:
        return f"MCP_{hashlib.sha256(self.url.encode()).hexdigest()[:32]}"

    async def load(self) -> ServerTokens | None:
        value = (await to_thread.run_sync(self.secrets.values)).get(self._name)
        return None if value is None else msgspec.json.decode(value, type=ServerTokens)

    async def save(self, grant: ServerTokens) -> None:
        value = msgspec.json.encode(grant).decode()
        await to_thread.run_sync(self.secrets.put, self._name, value)

    async def replace(
        self, old: ServerTokens, renew: Callable[[ServerTokens], Awaitable[ServerTokens]]
    ) -> ServerTokens:
        lock = self.secrets.lock(self._name)
        await to_thread.run_sync(lock.__enter__)
        try:
            current = await self.load()
            if current is None:
                raise McpFailed("you have logged out", needs_auth=True)
            if current.access_token != old.access_token:
                return current
            renewed = await renew(current)
            await self.save(renewed)
            return renewed
        finally:
            lock.__exit__(None, None, None)

    async def remove(self) -> bool:
        """Remove the grant; False: there was none."""
        if await self.load() is None:
            return False
        await to_thread.run_sync(self.secrets.remove, self._name)
        return True


async def log_in(transport: Transport) -> None:
    """Connect to a server, which triggers the consent of a person if it is needed.

    Raises: McpFailed.
    """
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
