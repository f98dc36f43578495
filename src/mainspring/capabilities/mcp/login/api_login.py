"""OAuth logins to MCP servers through the API: a person opens a link. No state is stored in
between. `oauth` has the protocol; `oauth_grants` the login at the terminal."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from mainspring.capabilities.mcp.login.oauth import (
    Challenge,
    ClientConfig,
    FetchDocument,
    OAuthClient,
    PendingGrant,
    ServerTokens,
)
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, McpFailed


class LoginTarget(Protocol):
    """The server, and the client id; without one, a client is registered."""

    @property
    def mcp_server_url(self) -> str: ...
    @property
    def redirect_uri(self) -> str: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def scopes(self) -> tuple[str, ...]: ...


class ApiLogin:
    """A `LoginClient`."""

    def __init__(self, fetch: FetchDocument) -> None:
        self._fetch = fetch

    async def begin(self, request: LoginTarget, make_state: Callable[[bytes], str]) -> str:
        try:
            page, _ = await self._client(request).begin(
                Challenge(),
                request.redirect_uri,
                lambda pending: make_state(msgspec.json.encode(pending)),
            )
        except McpFailed as error:
            raise InvalidInput(f"{request.mcp_server_url}: {error}") from error
        return page

    async def finish(
        self, request: LoginTarget, pending: bytes, back: str, state: str
    ) -> ServerTokens:
        grant = msgspec.json.decode(pending, type=PendingGrant)
        try:
            return await self._client(request).finish(grant, back, state)
        except McpFailed as error:
            raise InvalidInput(str(error)) from error

    def _client(self, request: LoginTarget) -> OAuthClient:
        return OAuthClient(
            url=request.mcp_server_url,
            fetch=self._fetch,
            config=ClientConfig(client_id=request.client_id, scopes=request.scopes),
            random=partial(secrets.token_urlsafe, 48),
            now=lambda: clock.now().timestamp(),
        )
