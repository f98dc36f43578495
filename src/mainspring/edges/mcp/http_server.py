"""`/mcp` over HTTP: routes beside the API with the same keys, or a separate server, also without
keys for the users of this machine."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

from aiohttp import web

from mainspring import __version__
from mainspring.capabilities.mcp.protocol.messages import Implementation
from mainspring.capabilities.mcp.server.dispatcher import McpDispatcher
from mainspring.capabilities.mcp.server.features import Features
from mainspring.capabilities.mcp.server.request_state import StateSigner
from mainspring.core import clock
from mainspring.edges.api.app import AccessControl, Api, http_server
from mainspring.edges.api.route import ApiCall, Empty, Route, RouteOptions, route, routes_of
from mainspring.edges.mcp.http_endpoint import HostRules, HttpCaller, HttpTimes, McpEndpoint
from mainspring.service.access.principal import Principal
from mainspring.service.authorization.authentication import (
    ANONYMOUS,
    AuthenticationResult,
    DecodedPart,
    RequestCredentials,
)
from mainspring.service.authorization.key_scope import RoutePolicy


def new_server(name: str, *, instructions: str | None = None) -> McpDispatcher:
    """The request states that it signs are valid until the process ends."""
    signer = StateSigner(secrets.token_bytes(32), seconds_now=lambda: clock.now().timestamp())
    info = Implementation(name=name, version=__version__)
    return McpDispatcher(info, signer=signer, instructions=instructions)


@dataclass(frozen=True, slots=True)
class McpRoutes:
    endpoint: McpEndpoint
    features_for: Callable[[Principal], Features]
    route_options: ClassVar[RouteOptions] = {
        "for_agent_keys": True,
        "is_extension": True,
        "is_documented": False,
    }

    @route(
        "POST /mcp",
        "Send a message of the Model Context Protocol",
        upload="application/json",
        role="viewer",
    )
    async def post(self, call: ApiCall[Empty, Empty]) -> web.StreamResponse:
        return await self.endpoint.post(call.request, self._caller(call))

    @route(
        "GET /mcp",
        "Stream the server's messages in a session of the Model Context Protocol",
        media_type="text/event-stream",
    )
    async def get(self, call: ApiCall[Empty, Empty]) -> web.StreamResponse:
        return await self.endpoint.get(call.request, self._caller(call))

    @route("DELETE /mcp", "End a session of the Model Context Protocol", role="viewer")
    async def delete(self, call: ApiCall[Empty, Empty]) -> web.StreamResponse:
        return await self.endpoint.delete(call.request, self._caller(call))

    def _caller(self, call: ApiCall[Empty, Empty]) -> HttpCaller:
        who = call.who
        parts = (who.tenant, who.issuer, who.key_id, who.acting_agent or "")
        return HttpCaller(
            id="/".join(parts),
            features=self.features_for(who),
            recheck_access=call.recheck_access,
        )


def mcp_routes(
    server: McpDispatcher,
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
