"""Login on a machine without a browser: a person enters a code on a page on another device (RFC
8628)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

import anyio
from msgspec import Struct

from mainspring.capabilities.mcp.login.oauth import (
    Challenge,
    OAuthClient,
    ServerTokens,
    TokenRefused,
)
from mainspring.capabilities.mcp.login.oauth_documents import (
    DEVICE_GRANT,
    check_url,
    decode_document,
    error_of,
)
from mainspring.capabilities.mcp.protocol.foreign_text import clean_line
from mainspring.core.errors import McpFailed

_MAX_SECONDS = 900.0  # to enter the code: the default, and the most that we wait
_SLOW_DOWN_SECONDS = 5.0  # RFC 8628, 3.5: `slow_down` adds 5 s to the interval
_PENDING = "authorization_pending"
_SLOW_DOWN = "slow_down"


class _DeviceCode(Struct, frozen=True):
    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float = _MAX_SECONDS
    interval: float = 5.0


@dataclass(frozen=True, slots=True)
class DeviceScreen:
    """Shows instructions to a person. `min_seconds`: the shortest pause between two polls."""

    say: Callable[[str], None]
    min_seconds: float = 1.0


async def authorize_device(
    client: OAuthClient,
    screen: DeviceScreen,
    challenge: Challenge,
    earlier: ServerTokens | None = None,
) -> ServerTokens:
    """Raises: McpFailed: the person did not agree, or not in time."""
    server, grant = await client.prepare(challenge, None, earlier)
    if (endpoint := server.device_authorization_endpoint) is None:
        raise McpFailed("its authorization server does not support device codes: use --paste")
    form = {"client_id": grant.client_id, "resource": grant.resource}
    if grant.scope:
        form["scope"] = grant.scope
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    reply = await client.send(endpoint, headers, urlencode(form).encode())
    if reply.status != 200:
        raise McpFailed(f"its authorization server issued no device code ({error_of(reply)})")
    code = decode_document(reply.body, _DeviceCode, "device code")
    check_url(code.verification_uri)
    page = clean_line(code.verification_uri, 2_000)
    screen.say(f"Open {page} in any browser and enter the code {clean_line(code.user_code, 40)}")
    limit = min(max(code.expires_in, 0.0), _MAX_SECONDS)
    try:
        with anyio.fail_after(limit):
            return await _poll(client, grant, code, screen.min_seconds)
    except TimeoutError as error:
        raise McpFailed(f"nobody approved the login within {limit:g} s") from error


async def _poll(
    client: OAuthClient, grant: ServerTokens, code: _DeviceCode, min_seconds: float
) -> ServerTokens:
    form = {"grant_type": DEVICE_GRANT, "device_code": code.device_code}
    pause = max(code.interval, min_seconds)
    while True:
        await anyio.sleep(pause)
        try:
            return await client.exchange(grant, form)
        except TokenRefused as error:
            if error.error == _SLOW_DOWN:
                pause += _SLOW_DOWN_SECONDS
            elif error.error != _PENDING:
                raise
