"""The credentials that a session may use, with their secrets: for the worker that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.log.records import RecordQuery, Records
from mainspring.service.vaults.credential_auth import (
    EnvironmentVariable,
    LimitedHosts,
    McpOauth,
    credential_key,
    server_key,
)
from mainspring.service.vaults.credentials import Credentials, UnsealedCredential
from mainspring.service.vaults.token_refresh import Refresher
from mainspring.service.vaults.vaults import CREDENTIAL_KIND, MAX_CREDENTIALS

_REFRESH_MARGIN = timedelta(seconds=60)
"""How long before it expires a token is refreshed: it still has to be sent, and clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretVariable:
    """A secret that the session's programs see as a placeholder."""

    credential_id: str
    name: str
    value: str = field(repr=False)
    hosts: tuple[str, ...] | None
    """Where it may be sent: names, `*.` and a name, IPv4 addresses. `None`: every host that the
    session may reach."""
    in_headers: bool
    in_body: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """A token that is sent to one MCP server."""

    credential_id: str
    mcp_server_url: str
    token: str = field(repr=False)
    expires_at: datetime | None = None


SessionCredential: TypeAlias = SecretVariable | BearerToken


@dataclass(frozen=True, slots=True)
class SessionCredentials:
    records: Records
    credentials: Credentials
    refresher: Refresher | None
    clock: Clock = clocks.now

    async def usable(self, tenant: str, vault_ids: Sequence[str]) -> list[SessionCredential]:
        """The current credentials of the vaults; of two with the same key, the one in the first
        vault. Call it periodically: they may change while a session runs.

        Raises: StoreCorrupt: they were sealed with another key.
        """
        credentials: dict[str, SessionCredential] = {}
        for vault_id in vault_ids:
            for unsealed in await self._unsealed(tenant, vault_id):
                key = credential_key(unsealed.credential.auth)
                if key not in credentials:
                    current = await self._refresh_if_expired(unsealed)
                    credentials[key] = _session_credential(current)
        return list(credentials.values())

    async def token(
        self, tenant: str, vault_ids: Sequence[str], url: str, refused: str | None
    ) -> str | None:
        """The token for an MCP server; if the server refused one, another if possible.

        Raises: StoreCorrupt: they were sealed with another key.
        """
        for vault_id in vault_ids:
            for unsealed in await self._unsealed(tenant, vault_id):
                auth = unsealed.credential.auth
                if isinstance(auth, EnvironmentVariable) or server_key(
                    auth.mcp_server_url
                ) != server_key(url):
                    continue
                unsealed = await self._refresh_if_expired(unsealed)
                if unsealed.secrets.value == refused:
                    unsealed = await self._refresh(unsealed)
                return unsealed.secrets.value
        return None

    async def _unsealed(self, tenant: str, vault_id: str) -> list[UnsealedCredential]:
        rows = await self.records.list(
            RecordQuery(
                kind=CREDENTIAL_KIND,
                tenant=tenant,
                parent=vault_id,
                is_archived=False,
                order="asc",
                limit=MAX_CREDENTIALS,
            )
        )
        unsealed: list[UnsealedCredential] = []
        for row in rows:
            with suppress(NotFound, InvalidInput):  # deleted or archived since it was listed
                unsealed.append(await self.credentials.unseal(tenant, vault_id, row.id))
        return unsealed

    async def _refresh_if_expired(self, credential: UnsealedCredential) -> UnsealedCredential:
        """The credential with a valid token, if possible. An expired token is sent anyway, since
        people can act on the server's answer."""
        auth = credential.credential.auth
        if not isinstance(auth, McpOauth) or auth.expires_at is None:
            return credential
        if auth.expires_at - _REFRESH_MARGIN > self.clock():
            return credential
        return await self._refresh(credential)

    async def _refresh(self, credential: UnsealedCredential) -> UnsealedCredential:
        auth = credential.credential.auth
        if self.refresher is None or not isinstance(auth, McpOauth) or auth.refresh is None:
            return credential
        try:
            return (await self.refresher.refresh(credential)).unsealed
        except (NotFound, InvalidInput):  # deleted or archived just now
            return credential


def _session_credential(unsealed: UnsealedCredential) -> SessionCredential:
    id_, auth, value = unsealed.credential.id, unsealed.credential.auth, unsealed.secrets.value
    if isinstance(auth, EnvironmentVariable):
        networking = auth.networking
        return SecretVariable(
            credential_id=id_,
            name=auth.secret_name,
            value=value,
            hosts=networking.allowed_hosts if isinstance(networking, LimitedHosts) else None,
            in_headers=auth.injection_location.header,
            in_body=auth.injection_location.body,
        )
    return BearerToken(
        credential_id=id_,
        mcp_server_url=auth.mcp_server_url,
        token=value,
        expires_at=auth.expires_at if isinstance(auth, McpOauth) else None,
    )
