"""What a session may use of its vaults, with the secrets: for the worker that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from mainspring.service.vaults.credential_record import KIND
from mainspring.service.vaults.credentials import Credentials, UnsealedCredential
from mainspring.service.vaults.token_refresh import Refresher
from mainspring.service.vaults.vaults import MAX_CREDENTIALS

_REFRESH_MARGIN = timedelta(seconds=60)
"""Before a token expires it is exchanged already: it is still to be sent, and clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretVariable:
    """A secret that programs of the session know by a placeholder."""

    credential_id: str
    name: str
    value: str = field(repr=False)
    hosts: tuple[str, ...] | None
    """Where it may be sent: names, `*.` and a name, IPv4 addresses. `None`: wherever the session
    may send anything."""
    in_headers: bool
    in_body: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """A token that is sent to one MCP server."""

    credential_id: str
    mcp_server_url: str
    token: str = field(repr=False)
    expires_at: datetime | None = None

    def is_for(self, url: str) -> bool:
        return server_key(self.mcp_server_url) == server_key(url)


SessionCredential: TypeAlias = SecretVariable | BearerToken


class SessionCredentials:
    def __init__(
        self,
        records: Records,
        credentials: Credentials,
        refresher: Refresher | None,
        *,
        clock: Clock = clocks.now,
    ) -> None:
        self._records = records
        self._credentials = credentials
        self._refresher = refresher
        self._clock = clock

    async def usable(self, tenant: str, vault_ids: Sequence[str]) -> list[SessionCredential]:
        """Of the vaults as they are now; of two for the same server or of the same name, the one
        in the first vault. Ask again now and then: they are changed while a session runs.

        Raises: StoreCorrupt: they were sealed with another key.
        """
        found: dict[str, SessionCredential] = {}
        for vault_id in vault_ids:
            for opened in await self._unsealed(tenant, vault_id):
                key = credential_key(opened.vault_credential.auth)
                if key not in found:
                    found[key] = _session_credential(await self._refresh_if_expired(opened))
        return list(found.values())

    async def _unsealed(self, tenant: str, vault_id: str) -> list[UnsealedCredential]:
        listed = await self._records.list(
            RecordQuery(
                kind=KIND,
                tenant=tenant,
                parent=vault_id,
                is_archived=False,
                order="asc",
                limit=MAX_CREDENTIALS,
            )
        )
        opened: list[UnsealedCredential] = []
        for record in listed:
            try:
                opened.append(await self._credentials.unseal(tenant, vault_id, record.id))
            except (NotFound, InvalidInput):  # deleted or archived since it was listed
                continue
        return opened

    async def _refresh_if_expired(self, credential: UnsealedCredential) -> UnsealedCredential:
        """With a token that holds, if one can be had. One that cannot is sent all the same: what
        the server says to it is what people can act on."""
        auth = credential.vault_credential.auth
        if self._refresher is None or not isinstance(auth, McpOauth) or auth.refresh is None:
            return credential
        if auth.expires_at is None or auth.expires_at - _REFRESH_MARGIN > self._clock():
            return credential
        try:
            return (await self._refresher.refresh(credential)).unsealed_credential
        except (NotFound, InvalidInput):  # it has just gone
            return credential


def bearer_for(url: str, session_credential: Iterable[SessionCredential]) -> BearerToken | None:
    """The token for an MCP server; without one it is asked as anybody would."""
    return next(
        (item for item in session_credential if isinstance(item, BearerToken) and item.is_for(url)),
        None,
    )


def _session_credential(unsealed_credential: UnsealedCredential) -> SessionCredential:
    credential, auth = (
        unsealed_credential.vault_credential,
        unsealed_credential.vault_credential.auth,
    )
    if isinstance(auth, EnvironmentVariable):
        networking = auth.networking
        return SecretVariable(
            credential_id=credential.id,
            name=auth.secret_name,
            value=unsealed_credential.secrets.value,
            hosts=networking.allowed_hosts if isinstance(networking, LimitedHosts) else None,
            in_headers=auth.injection_location.header,
            in_body=auth.injection_location.body,
        )
    return BearerToken(
        credential_id=credential.id,
        mcp_server_url=auth.mcp_server_url,
        token=unsealed_credential.secrets.value,
        expires_at=auth.expires_at if isinstance(auth, McpOauth) else None,
    )
