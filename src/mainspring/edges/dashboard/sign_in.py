"""Signing in with a browser: `/v1/mainspring/sign_in`, `/sign_out` and `/me`, and the access
control that reads the cookie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from http.cookies import CookieError, SimpleCookie

from aiohttp import web
from msgspec import Struct

from mainspring.core.errors import Forbidden
from mainspring.edges.api.app import AccessControl
from mainspring.edges.api.route import ApiCall, Empty, Route, route
from mainspring.service.access.browser_sessions import (
    LIFETIME,
    BrowserSessions,
    csrf_token,
    is_csrf_token,
)
from mainspring.service.access.principal import Principal, Role
from mainspring.service.authorization.authentication import (
    AuthenticationResult,
    DecodedPart,
    RequestCredentials,
    presented_secret,
)

COOKIE = "mainspring_session"
CSRF_HEADER = "x-csrf-token"
_READS = ("GET", "HEAD")
_OWN_SITES = ("same-origin", "none")
"""Values of `sec-fetch-site` of requests that pages of other origins cannot make."""


class Me(Struct, frozen=True, kw_only=True):
    """Who makes a request."""

    tenant_id: str
    key_id: str
    name: str
    role: Role
    agent_id: str | None
    """The only agent that the key may use."""
    version: str
    """The version of the server."""
    is_local: bool
    """Whether it shows the sessions of one person's machine."""
    csrf_token: str | None
    """What requests other than GET send as `x-csrf-token`, if a cookie authenticates them."""


class SignedIn(Struct, frozen=True, kw_only=True):
    csrf_token: str


class SignedOut(Struct, frozen=True, kw_only=True):
    type: str = "signed_out"


def cookie_of(headers: Mapping[str, str], name: str = COOKIE) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return None if found is None else found.value


def check_csrf(route: Route, headers: Mapping[str, str], cookie: str) -> None:
    """Check that a request with a cookie was made by our own page.

    Raises: Forbidden.
    """
    if headers.get("sec-fetch-site", "none") not in _OWN_SITES:
        raise Forbidden("a cookie authenticates only requests of the dashboard itself")
    if route.method not in _READS and not is_csrf_token(cookie, headers.get(CSRF_HEADER, "")):
        raise Forbidden(f"the header {CSRF_HEADER} must have the token from /v1/mainspring/me")


@dataclass(frozen=True, slots=True)
class CookieAccess:
    """Replaces a cookie by the key that it stands for."""

    access_control: AccessControl
    browser_sessions: BrowserSessions

    async def admit(self, credentials: RequestCredentials, route: Route) -> AuthenticationResult:
        headers = credentials.headers
        cookie = cookie_of(headers)
        if cookie is None or route.is_open or "x-api-key" in headers or "authorization" in headers:
            return await self.access_control.admit(credentials, route)
        name, value = await self.browser_sessions.credential(cookie)
        check_csrf(route, headers, cookie)
        with_key = {**headers, name: value}
        return await self.access_control.admit(replace(credentials, headers=with_key), route)

    async def check_named(
        self,
        principal: Principal,
        path: Mapping[str, str],
        query: DecodedPart,
        body: DecodedPart,
        /,
    ) -> None:
        await self.access_control.check_named(principal, path, query, body)


def me_view(call: ApiCall[Empty, Empty], version: str, *, is_local: bool) -> Me:
    who, headers = call.who, call.request.headers
    has_key = "x-api-key" in headers or "authorization" in headers
    cookie = None if has_key else call.request.cookies.get(COOKIE)
    return Me(
        tenant_id=who.tenant,
        key_id=who.key_id,
        name=who.name,
        role=who.role,
        agent_id=who.agent_id,
        version=version,
        is_local=is_local,
        csrf_token=None if cookie is None else csrf_token(cookie),
    )


@dataclass(frozen=True, slots=True)
class SignInRoutes:
    browser_sessions: BrowserSessions
    version: str

    @route(
        "GET /v1/mainspring/me",
        "Get who you are, and what you may do",
        for_agent_keys=True,
        for_worker_keys=True,
    )
    async def me(self, call: ApiCall[Empty, Empty]) -> Me:
        return me_view(call, self.version, is_local=False)

    @route(
        "POST /v1/mainspring/sign_in",
        "Exchange the key or token of this request for a cookie",
        role="viewer",
        for_agent_keys=True,
        handles_idempotency_key=True,
        response_type=SignedIn,
    )
    async def sign_in(self, call: ApiCall[Empty, Empty]) -> web.Response:
        credential, is_bearer = presented_secret(call.request.headers)
        header = "authorization" if is_bearer else "x-api-key"
        value = f"Bearer {credential}" if is_bearer else credential
        started = await self.browser_sessions.sign_in(call.tenant, header, value)
        response = web.json_response({"csrf_token": started.csrf_token})
        set_cookie(call.request, response, started.cookie)
        return response

    @route(
        "POST /v1/mainspring/sign_out",
        "End the sign-in of a browser",
        role="viewer",
        for_agent_keys=True,
        handles_idempotency_key=True,
        response_type=SignedOut,
    )
    async def sign_out(self, call: ApiCall[Empty, Empty]) -> web.Response:
        if (cookie := call.request.cookies.get(COOKIE)) is not None:
            await self.browser_sessions.sign_out(call.tenant, cookie)
        response = web.json_response({"type": "signed_out"})
        response.del_cookie(COOKIE, path="/")
        return response


def set_cookie(request: web.Request, response: web.Response, cookie: str) -> None:
    # a forged header can only make it stricter
    is_secure = request.secure or request.headers.get("x-forwarded-proto", "") == "https"
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=int(LIFETIME.total_seconds()),
        path="/",
        httponly=True,
        secure=is_secure,
        samesite="Strict",
    )
