"""A stored OAuth grant authenticates requests to one MCP server: it is refreshed in time, renewed
when the server refuses it, widened when the server asks for more scopes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mainspring.capabilities.mcp.oauth import Browser, Challenge, Grant, OAuthClient
from mainspring.capabilities.mcp.oauth_device import DeviceScreen, authorize_device
from mainspring.capabilities.mcp.server_auth import Learn, Refusal
from mainspring.core.errors import McpFailed

_MAX_AUTHORIZATIONS = 3
"""How often a person is asked for one connection, whatever the server says."""


class GrantStore(Protocol):
    """Where the grant for one server is kept."""

    async def load(self) -> Grant | None: ...

    async def save(self, grant: Grant) -> None: ...

    async def replace(self, seen: Grant, renew: Callable[[Grant], Awaitable[Grant]]) -> Grant:
        """Renew the grant, unless somebody has renewed the one that was seen: one at a time, over
        all processes. A refresh token that is used twice is often revoked."""
        ...


@dataclass(slots=True, kw_only=True)
class OAuthGrant:
    """A `ServerAuth`. Without a `browser` nobody can be asked, and a server that needs it is
    refused."""

    client: OAuthClient
    store: GrantStore
    learn: Learn
    login_hint: str
    """What a person has to do."""
    browser: Browser | DeviceScreen | None = None
    other_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    _grant: Grant | None = field(default=None, init=False)
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

    async def _has_refreshed(self, grant: Grant) -> bool:
        if not grant.refresh_token:
            return False
        try:
            renewed = await self.store.replace(grant, self.client.refresh)
        except McpFailed:
            return False
        self._use(renewed)
        return renewed.access_token != grant.access_token

    def _use(self, grant: Grant | None) -> None:
        self._grant = grant
        if grant is not None:
            for secret in (grant.access_token, grant.refresh_token, grant.client_secret):
                if secret:
                    self.learn(secret)
