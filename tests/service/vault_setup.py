"""All that has to do with vaults over one store, and credentials to put into them, for tests."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Literal

import msgspec
from tests.service.token_server import Provider

from mainspring.capabilities.network.outbound_http import OutboundHttpClient
from mainspring.capabilities.vault.aes_seal import AesSeal
from mainspring.log.records import Records
from mainspring.service.storage.repository import Notification
from mainspring.service.vaults.credential_auth import (
    NewAuth,
    NewEnvironmentVariable,
    NewMcpOauth,
    NewStaticBearer,
)
from mainspring.service.vaults.credentials import CreateCredential, Credentials
from mainspring.service.vaults.session_credentials import BearerToken, SessionCredentials
from mainspring.service.vaults.token_refresh import Refresher
from mainspring.service.vaults.vaults import CreateVault, Vaults

LOOPBACK = (ip_network("127.0.0.0/8"),)


NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


Method = Literal["none", "client_secret_basic", "client_secret_post"]


@dataclass
class Time:
    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Desk:
    """Everything about vaults, over one real store."""

    records: Records
    time: Time = field(default_factory=Time)
    notices: list[Notification] = field(default_factory=list[Notification])

    def __post_init__(self) -> None:
        self.http_client = OutboundHttpClient(allowed=LOOPBACK, seconds=5)
        self.vaults = Vaults(self.records, notify=self.notify, clock=self.time)
        self.credentials = Credentials(
            self.records, AesSeal(bytes(32)), self.vaults, notify=self.notify, clock=self.time
        )
        self.refresher = Refresher(
            self.credentials, self.http_client, notify=self.notify, clock=self.time
        )
        self.ready = SessionCredentials(
            self.records, self.credentials, self.refresher, clock=self.time
        )

    async def notify(self, notice: Notification) -> None:
        self.notices.append(notice)

    def failures(self) -> list[Notification]:
        return [n for n in self.notices if n.type == "vault_credential.refresh_failed"]

    async def vault(self, *auths: NewAuth) -> str:
        vault = await self.vaults.create("acme", CreateVault(display_name="Ada"))
        for auth in auths:
            await self.credentials.create("acme", vault.id, CreateCredential(auth=auth))
        return vault.id

    async def token(self, vault_id: str) -> BearerToken:
        [usable] = await self.ready.usable("acme", [vault_id])
        assert isinstance(usable, BearerToken)
        return usable


def oauth_of(oauth: Provider, method: Method = "none", **changes: object) -> NewAuth:
    secret = {} if method == "none" else {"client_secret": oauth.client_secret}
    wire = {
        "type": "mcp_oauth",
        "access_token": oauth.access_token,
        "mcp_server_url": f"{oauth.url}/mcp",
        "expires_at": NOW + timedelta(hours=1),
        "refresh": {
            "client_id": "client/1",
            "refresh_token": oauth.refresh_token,
            "token_endpoint": f"{oauth.url}/token",
            "token_endpoint_auth": {"type": method, **secret},
            "scope": "read write",
        },
        **changes,
    }
    return msgspec.convert(wire, NewMcpOauth)


def bearer(url: str, token: str) -> NewStaticBearer:
    return NewStaticBearer(mcp_server_url=url, token=token)


def variable(name: str, value: str, **wire: object) -> NewAuth:
    given = {"secret_name": name, "secret_value": value, "networking": {"type": "unrestricted"}}
    return msgspec.convert(
        {"type": "environment_variable", **given, **wire}, NewEnvironmentVariable
    )
