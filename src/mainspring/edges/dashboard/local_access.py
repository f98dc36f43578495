"""Access to the dashboard of one person's machine: a one-time token, then a cookie. Requests must
come to a loopback name, so that no web page can reach it under another one.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from aiohttp import web

from mainspring.core.errors import Forbidden, Unauthenticated
from mainspring.edges.api.route import ApiCall, Empty, Route, route
from mainspring.edges.dashboard.sign_in import (
    Me,
    SignedOut,
    check_csrf,
    cookie_of,
    me_view,
    set_cookie,
)
from mainspring.service.access.browser_sessions import csrf_token
from mainspring.service.access.principal import CLI_PRINCIPAL, Principal
from mainspring.service.authorization.authentication import (
    ANONYMOUS,
    AuthenticationResult,
    DecodedPart,
    RequestCredentials,
    presented_secret,
)
from mainspring.service.views.local_records import LOCAL_TENANT

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_SIGN_IN = "/v1/mainspring/sign_in"


@dataclass(slots=True)
class LocalAccess:
    """The access control, and the routes that sign in."""

    user: str
    version: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """Valid once."""
    _cookies: set[str] = field(default_factory=set[str], init=False)
    _is_used: bool = field(default=False, init=False)

    @property
    def principal(self) -> Principal:
        return Principal(tenant=LOCAL_TENANT, key_id=CLI_PRINCIPAL, role="operator", name=self.user)

    async def admit(self, credentials: RequestCredentials, route: Route) -> AuthenticationResult:
        headers = credentials.headers
        self._check_host(headers)
        if route.is_open:
            return AuthenticationResult(who=ANONYMOUS)
        if route.path == _SIGN_IN:
            self._check_token(headers)
        else:
            cookie = cookie_of(headers)
            if cookie is None or not self._is_known(cookie):
                raise Unauthenticated("open the address that `mainspring ui` prints")
            check_csrf(route, headers, cookie)
        self.principal.require(route.role)
        return AuthenticationResult(who=self.principal)

    async def check_named(
        self,
        principal: Principal,
        path: Mapping[str, str],
        query: DecodedPart,
        body: DecodedPart,
        /,
    ) -> None:
        """Everything here belongs to one person."""

    def _check_host(self, headers: Mapping[str, str]) -> None:
        for name in ("host", "origin"):
            value = headers.get(name)
            if value is None:
                continue
            parts = urlsplit(value if "//" in value else f"//{value}")
            if parts.hostname not in _LOOPBACK or parts.port != self.port:
                raise Forbidden(f"{name} {value[:100]!r}: this server is only for this machine")

    def _check_token(self, headers: Mapping[str, str]) -> None:
        secret, _ = presented_secret(headers)
        if self._is_used or not hmac.compare_digest(secret.encode(), self.token.encode()):
            raise Unauthenticated("this address was used before; run `mainspring ui` again")
        self._is_used = True

    def _is_known(self, cookie: str) -> bool:
        given = cookie.encode()
        return any(hmac.compare_digest(given, known.encode()) for known in self._cookies)

    @route("GET /v1/mainspring/me", "Get who you are, and what you may do")
    async def me(self, call: ApiCall[Empty, Empty]) -> Me:
        return me_view(call, self.version, is_local=True)

    @route("POST /v1/mainspring/sign_in", "Exchange the token for a cookie", role="viewer")
    async def sign_in(self, call: ApiCall[Empty, Empty]) -> web.Response:
        cookie = secrets.token_urlsafe(32)
        self._cookies.add(cookie)
        response = web.json_response({"csrf_token": csrf_token(cookie)})
        set_cookie(call.request, response, cookie)
        return response

    @route("POST /v1/mainspring/sign_out", "End the sign-in", role="viewer")
    async def sign_out(self, call: ApiCall[Empty, Empty]) -> SignedOut:
        self._cookies.discard(cookie_of(call.request.headers) or "")
        return SignedOut()
