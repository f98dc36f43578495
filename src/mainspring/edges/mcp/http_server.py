"""A separate server for `/mcp`: with API keys, or open to all users of this machine."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from mainspring import __version__
from mainspring.capabilities.mcp.messages import Implementation
from mainspring.capabilities.mcp.server.dispatcher import McpServer
from mainspring.capabilities.mcp.server.features import Features
from mainspring.capabilities.mcp.server.request_state import StateSigner
from mainspring.core import clock
from mainspring.edges.api.app import AccessControl, Api, http_server
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.mcp.http_endpoint import HostRules, HttpTimes, McpEndpoint
from mainspring.edges.mcp.routes import McpRoutes
from mainspring.service.access.principal import Principal
from mainspring.service.authorization.authentication import (
    ANONYMOUS,
    AuthenticationResult,
    DecodedPart,
    RequestCredentials,
)
from mainspring.service.authorization.key_scope import RoutePolicy


def new_server(name: str, *, instructions: str | None = None) -> McpServer:
    """The request states that it signs are valid until the process ends."""
    signer = StateSigner(secrets.token_bytes(32), seconds_now=lambda: clock.now().timestamp())
    info = Implementation(name=name, version=__version__)
    return McpServer(info, signer=signer, instructions=instructions)


def mcp_routes(
    server: McpServer,
    features_for: Callable[[Principal], Features],
    host_rules: HostRules,
    times: HttpTimes | None = None,
) -> tuple[Route, ...]:
    endpoint = McpEndpoint(
        server,
        new_session_id=lambda: secrets.token_urlsafe(32),
        monotonic=time.monotonic,
        host_rules=host_rules,
        times=times,
    )
    return routes_of(McpRoutes(endpoint, features_for))


@dataclass(frozen=True, slots=True)
class OpenAccess:
    """An `AccessControl` that requires no key."""

    async def admit(
        self, credentials: RequestCredentials, route: RoutePolicy
    ) -> AuthenticationResult:
        return AuthenticationResult(who=ANONYMOUS)

    async def check_named(
        self,
        principal: Principal,
        path: Mapping[str, str],
        query: DecodedPart,
        body: DecodedPart,
        /,
    ) -> None: ...


@asynccontextmanager
async def mcp_http_server(
    routes: Sequence[Route],
    listeners: Sequence[socket.socket] = (),
    *,
    access_control: AccessControl | None = None,
) -> AsyncGenerator[str, None]:
    """Serve until the block ends; yields the URL. Without `access_control`, no key is needed: then
    listen on this machine only."""
    if access_control is None:
        routes = [replace(item, is_open=True) for item in routes]
    api = Api(routes, access_control=access_control or OpenAccess())
    async with http_server(api.application(), listeners) as url:
        yield f"{url}/mcp"
