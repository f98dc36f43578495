"""OAuth for tests: a person who agrees to everything, tokens in memory, and an authorization server
on loopback that can be told to misbehave.
"""

import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

import aiohttp
from tests.mcp.loopback_server import Answer, Asked, Fields, LoopbackServer

from mainspring.capabilities.mcp.login.oauth import Browser, ClientConfig, OAuthClient, ServerTokens
from mainspring.capabilities.mcp.login.oauth_device import DeviceScreen
from mainspring.capabilities.mcp.login.oauth_grants import OAuthGrant
from mainspring.core import clock
from mainspring.core.errors import McpFailed
from mainspring.core.ports import HttpReply


class Agreeing:
    """A `Browser` whose person agrees at once."""

    redirect_uri = "http://localhost:3000/callback"

    def __init__(self) -> None:
        self.opened: list[str] = []

    async def __call__(self, url: str) -> str:
        self.opened.append(url)
        async with aiohttp.ClientSession() as http, http.get(url, allow_redirects=False) as page:
            if "Location" not in page.headers:
                raise McpFailed(f"not authorized: HTTP {page.status}")
            return page.headers["Location"]


@dataclass
class MemoryGrants:
    """A `GrantStore`."""

    grant: ServerTokens | None = None

    async def load(self) -> ServerTokens | None:
        return self.grant

    async def save(self, grant: ServerTokens) -> None:
        self.grant = grant

    async def replace(
        self, old: ServerTokens, renew: Callable[[ServerTokens], Awaitable[ServerTokens]]
    ) -> ServerTokens:
        self.grant = await renew(old)
        return self.grant


async def fetch(url: str, headers: Mapping[str, str], body: bytes | None = None) -> HttpReply:
    async with (
        aiohttp.ClientSession() as http,
        http.request(
            "GET" if body is None else "POST",
            url,
            headers=headers,
            data=body,
            allow_redirects=False,
        ) as reply,
    ):
        return HttpReply(
            status=reply.status, content_type=reply.content_type, body=await reply.read()
        )


def agreeing_grant(
    url: str,
    *,
    config: ClientConfig | None = None,
    store: MemoryGrants | None = None,
    browser: Browser | DeviceScreen | None = None,
    learned: list[str] | None = None,
) -> OAuthGrant:
    return OAuthGrant(
        client=OAuthClient(
            url=url,
            fetch=fetch,
            config=config or ClientConfig(),
            random=lambda: secrets.token_urlsafe(48),
            now=lambda: clock.now().timestamp(),
        ),
        store=store or MemoryGrants(),
        learn=([] if learned is None else learned).append,
        login_hint="log in first",
        browser=browser or Agreeing(),
    )


@dataclass
class AuthorizingServer(LoopbackServer):
    """An MCP server that is its own authorization server."""

    metadata: Fields = field(default_factory=dict[str, object])
    """Over what it would publish."""
    resource: Fields = field(default_factory=dict[str, object])
    callback: Fields = field(default_factory=dict[str, object])
    """Over what it would send back with the browser; `None` leaves a field out."""
    token: Fields = field(default_factory=dict[str, object])
    forms: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """What the token endpoint was sent."""
    device: Fields = field(default_factory=dict[str, object])
    device_errors: list[str] = field(default_factory=list[str])
    """What is answered before a person has entered the code."""
    codes: dict[str, str] = field(default_factory=dict[str, str])
    """The challenge of each code that was not used yet."""

    def __post_init__(self) -> None:
        well_known = "/.well-known"
        self.routes |= {
            f"{well_known}/oauth-protected-resource/mcp": self._publish_resource,
            f"{well_known}/oauth-authorization-server": self._publish_metadata,
            "/register": lambda _: Answer(201, {"client_id": "registered"}),
            "/authorize": self._authorize,
            "/token": self._grant,
            "/device": self._give_device_code,
        }

    def _publish_resource(self, _: Asked) -> Answer:
        own = {"resource": self.mcp, "authorization_servers": [self.url]}
        return Answer(body={**own, **self.resource})

    def _publish_metadata(self, _: Asked) -> Answer:
        own = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "device_authorization_endpoint": f"{self.url}/device",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }
        return Answer(body={**own, **self.metadata})

    def _give_device_code(self, asked: Asked) -> Answer:
        self.forms.append(asked.form)
        code = {"device_code": "device-1", "user_code": "WDJB-MJHT", "interval": 0}
        return Answer(body={**code, "verification_uri": f"{self.url}/enter", **self.device})

    def _authorize(self, asked: Asked) -> Answer:
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked.query["code_challenge"]
        own = {"code": code, "state": asked.query["state"], "iss": self.url}
        back = {key: value for key, value in {**own, **self.callback}.items() if value is not None}
        location = f"{asked.query['redirect_uri']}?{urlencode(back)}"
        return Answer(302, headers={"Location": location})

    def _grant(self, asked: Asked) -> Answer:
        form = asked.form
        self.forms.append(form)
        if self.device_errors and "device_code" in form:
            return Answer(400, {"error": self.device_errors.pop(0)})
        if form["grant_type"] == "authorization_code":
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if self.codes.pop(form["code"], None) != challenge:
                return Answer(400, {"error": "invalid_grant"})
        number = len(self.forms)
        own: Fields = {
            "access_token": f"access-{number}-{secrets.token_hex(8)}",
            "refresh_token": f"refresh-{number}-{secrets.token_hex(8)}",
            "token_type": "Bearer",
            "expires_in": 3600,
        }
        body = {**own, **self.token}
        self.tokens = {body["access_token"]}
        return Answer(body=body)
