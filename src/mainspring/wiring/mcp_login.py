"""OAuth for the links by which people log in to MCP servers."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import msgspec

from mainspring.capabilities.mcp.oauth import (
    Challenge,
    ClientConfig,
    Fetch,
    Grant,
    OAuthClient,
    PendingGrant,
)
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, McpFailed
from mainspring.service.vaults.credential_auth import (
    NewBasicAuth,
    NewMcpOauth,
    NewPostAuth,
    NewRefresh,
    NoClientAuth,
)
from mainspring.service.vaults.mcp_logins import LoginRequest


class OAuthLogin:
    """A `LoginClient`."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def begin(self, request: LoginRequest, make_state: Callable[[bytes], str]) -> str:
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
        self, request: LoginRequest, pending: bytes, back: str, state: str
    ) -> NewMcpOauth:
        known = msgspec.json.decode(pending, type=PendingGrant)
        try:
            grant = await self._client(request).finish(known, back, state)
        except McpFailed as error:
            raise InvalidInput(str(error)) from error
        expires = grant.expires_at
        return NewMcpOauth(
            access_token=grant.access_token,
            mcp_server_url=request.mcp_server_url,
            expires_at=None if expires is None else datetime.fromtimestamp(expires, UTC),
            refresh=_refresh(grant),
        )

    def _client(self, request: LoginRequest) -> OAuthClient:
        return OAuthClient(
            url=request.mcp_server_url,
            fetch=self._fetch,
            config=ClientConfig(client_id=request.client_id, scopes=request.scopes),
            random=partial(secrets.token_urlsafe, 48),
            now=lambda: clock.now().timestamp(),
        )


def _refresh(grant: Grant) -> NewRefresh | None:
    if grant.refresh_token is None:
        return None
    auth = NoClientAuth()
    if grant.client_secret is not None and grant.auth_method == "client_secret_basic":
        auth = NewBasicAuth(client_secret=grant.client_secret)
    elif grant.client_secret is not None and grant.auth_method == "client_secret_post":
        auth = NewPostAuth(client_secret=grant.client_secret)
    return NewRefresh(
        client_id=grant.client_id,
        refresh_token=grant.refresh_token,
        token_endpoint=grant.token_endpoint,
        token_endpoint_auth=auth,
        resource=grant.resource,
        scope=grant.scope or None,
    )
