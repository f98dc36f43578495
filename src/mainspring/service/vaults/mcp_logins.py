"""Login to an MCP server by a link: a person agrees in a browser, and the tokens become a
credential of a vault. Nothing is stored in between: the link carries everything, sealed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta, Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, StoreCorrupt
from mainspring.core.ids import ExternalId, VaultId
from mainspring.core.ports import Seal
from mainspring.service.storage.repository import ListQuery, all_pages
from mainspring.service.vaults.credential_auth import (
    NewBasicAuth,
    NewMcpOauth,
    NewPostAuth,
    NewRefresh,
    NoClientAuth,
    Url,
    credential_key,
    server_key,
)
from mainspring.service.vaults.credentials import CreateCredential, Credentials, DisplayName
from mainspring.service.vaults.vaults import VaultCredential, Vaults

_LIFETIME = timedelta(minutes=15)  # for a person to follow the link and log in
_CONTEXT = "mcp login"
_MAX_STATE_CHARS = 8_000  # of OAuth's state, which carries ours sealed


class LoginRequest(Struct, frozen=True, kw_only=True):
    """The server, and the client id; without one, a client is registered."""

    mcp_server_url: Url
    redirect_uri: str
    client_id: str | None = None
    scopes: tuple[str, ...] = ()


class LoginGrant(Protocol):
    """The tokens that an authorization server granted."""

    @property
    def access_token(self) -> str: ...
    @property
    def refresh_token(self) -> str | None: ...
    @property
    def expires_at(self) -> float | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_secret(self) -> str | None: ...
    @property
    def auth_method(self) -> str: ...
    @property
    def token_endpoint(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def scope(self) -> str: ...


class LoginClient(Protocol):
    async def begin(self, request: LoginRequest, make_state: Callable[[bytes], str]) -> str:
        """The page where a person agrees. `make_state` gets the state that `finish` needs.

        Raises: InvalidInput: the server or its authorization server do not allow it.
        """
        ...

    async def finish(
        self, request: LoginRequest, pending: bytes, back: str, state: str
    ) -> LoginGrant:
        """The tokens. `back`: the URL that the page redirected to.

        Raises: InvalidInput: the person did not agree, or the answer belongs to another login.
        """
        ...


class CreateMcpLogin(Struct, frozen=True, kw_only=True):
    vault_id: VaultId
    mcp_server_url: Url
    public_url: (
        Annotated[
            Url,
            Meta(description="The URL at which browsers reach this service, if it is another one."),
        ]
        | None
    ) = None
    client_id: Annotated[ExternalId, Meta(min_length=1, max_length=1024)] | None = None
    scopes: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    display_name: DisplayName | None = None


class McpLogin(Struct, frozen=True, kw_only=True):
    authorization_url: str
    """Send it to the person who owns the account. The vault stores the tokens."""
    expires_at: datetime
    type: Literal["mcp_login"] = "mcp_login"


class _PendingLogin(Struct, frozen=True, kw_only=True):
    tenant: str
    vault_id: str
    request: LoginRequest
    until: datetime
    pending: bytes
    display_name: str | None = None


_PENDING = msgspec.json.Decoder(_PendingLogin)


@dataclass(frozen=True, slots=True)
class McpLogins:
    vaults: Vaults
    credentials: Credentials
    seal: Seal
    client: LoginClient
    clock: Clock = clocks.now

    async def begin(self, tenant: str, params: CreateMcpLogin, redirect_uri: str) -> McpLogin:
        """Raises: NotFound: the vault; InvalidInput."""
        await self.vaults.active(tenant, params.vault_id)
        until = self.clock() + _LIFETIME
        request = LoginRequest(
            mcp_server_url=params.mcp_server_url,
            redirect_uri=redirect_uri,
            client_id=params.client_id,
            scopes=params.scopes,
        )

        def make_state(pending: bytes) -> str:
            login = _PendingLogin(
                tenant=tenant,
                vault_id=params.vault_id,
                request=request,
                until=until,
                pending=pending,
                display_name=params.display_name,
            )
            sealed = self.seal.seal(msgspec.json.encode(login), _CONTEXT)
            return base64.urlsafe_b64encode(sealed).decode()

        url = await self.client.begin(request, make_state)
        return McpLogin(authorization_url=url, expires_at=until)

    async def finish(self, state: str, back: str) -> VaultCredential:
        """The new credential; it replaces one for the same server.

        Raises: InvalidInput, NotFound.
        """
        login = self._opened(state)
        await self.vaults.active(login.tenant, login.vault_id)
        grant = await self.client.finish(login.request, login.pending, back, state)
        await self._archive_earlier(login)
        request = CreateCredential(
            auth=_new_auth(login.request.mcp_server_url, grant), display_name=login.display_name
        )
        return await self.credentials.create(login.tenant, login.vault_id, request)

    def _opened(self, state: str) -> _PendingLogin:
        try:
            sealed = base64.urlsafe_b64decode(state[:_MAX_STATE_CHARS].encode())
            login = _PENDING.decode(self.seal.unseal(sealed, _CONTEXT))
        except (
            binascii.Error,
            ValueError,
            StoreCorrupt,
            msgspec.MsgspecError,
            RecursionError,
        ) as error:
            raise InvalidInput("this link was not created here") from error
        if self.clock() > login.until:
            raise InvalidInput("the link has expired; request another one")
        return login

    async def _archive_earlier(self, login: _PendingLogin) -> None:
        key = f"server {server_key(login.request.mcp_server_url)}"
        credentials = partial(self.credentials.page, login.tenant, login.vault_id)
        for item in await all_pages(credentials, ListQuery(limit=100)):
            if item.archived_at is None and credential_key(item.auth) == key:
                await self.credentials.archive(login.tenant, login.vault_id, item.id)
                return


def _new_auth(mcp_server_url: str, grant: LoginGrant) -> NewMcpOauth:
    expires = grant.expires_at
    return NewMcpOauth(
        access_token=grant.access_token,
        mcp_server_url=mcp_server_url,
        expires_at=None if expires is None else datetime.fromtimestamp(expires, UTC),
        refresh=_refresh(grant),
    )


def _refresh(grant: LoginGrant) -> NewRefresh | None:
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
