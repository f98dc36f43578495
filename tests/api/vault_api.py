"""The routes of vaults, and credentials to put into them, for tests."""

from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import cast

from anthropic.types.beta.vaults import (
    BetaManagedAgentsEnvironmentVariableCreateParams,
    BetaManagedAgentsMCPOAuthCreateParams,
)
from anthropic.types.beta.vaults.credential_create_params import Auth

from mainspring.capabilities.network.outbound_http import OutboundHttpClient
from mainspring.capabilities.vault.aes_seal import AesSeal
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.api.routes.define.vaults import CredentialRoutes, VaultRoutes
from mainspring.log.records import Records
from mainspring.service.storage.repository import Notification
from mainspring.service.vaults.credential_validation import CredentialValidator, McpInitializeProbe
from mainspring.service.vaults.credentials import Credentials
from mainspring.service.vaults.token_refresh import Refresher
from mainspring.service.vaults.vaults import Vaults

LATER = datetime(2100, 1, 1, tzinfo=UTC)


NOTICES: list[Notification] = []


async def notify(notice: Notification) -> None:
    NOTICES.append(notice)


def routes(records: Records) -> Sequence[Route]:
    http_client = OutboundHttpClient(allowed=(ip_network("127.0.0.0/8"),), seconds=5)
    vaults = Vaults(records, notify=notify)
    credentials = Credentials(records, AesSeal(bytes(32)), vaults, notify=notify)
    refresher = Refresher(credentials, http_client, notify=notify)
    validator = CredentialValidator(
        credentials, probe=McpInitializeProbe(http_client), refresher=refresher
    )
    return (*routes_of(VaultRoutes(vaults)), *routes_of(CredentialRoutes(credentials, validator)))


def static(url: str = "https://mcp.example.com/mcp", token: str = "a-bearer-token") -> Auth:
    return {"type": "static_bearer", "mcp_server_url": url, "token": token}


def variable(name: str = "API_KEY", value: str = "a-secret-value", **more: object) -> Auth:
    wire = {
        "type": "environment_variable",
        "secret_name": name,
        "secret_value": value,
        "networking": {"type": "unrestricted"},
        **more,
    }
    return cast("BetaManagedAgentsEnvironmentVariableCreateParams", wire)


def oauth_auth(
    url: str = "https://auth.example.com",
    *,
    access: str = "an-access-token",
    refresh: str = "a-refresh-token",
    client_secret: str = "a-client-secret",
    **more: object,
) -> Auth:
    client_auth = {"type": "client_secret_post", "client_secret": client_secret}
    wire = {
        "type": "mcp_oauth",
        "mcp_server_url": f"{url}/mcp",
        "access_token": access,
        "expires_at": LATER.isoformat(),
        "refresh": {
            "client_id": "client",
            "refresh_token": refresh,
            "token_endpoint": f"{url}/token",
            "token_endpoint_auth": client_auth,
            "scope": "read",
        },
        **more,
    }
    return cast("BetaManagedAgentsMCPOAuthCreateParams", wire)
