"""`/mcp`: the Model Context Protocol beside the API, with the same keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from aiohttp import web

from mainspring.capabilities.mcp.server.features import Features
from mainspring.edges.api.route import ApiCall, Empty, RouteOptions, route
from mainspring.edges.mcp.http_endpoint import HttpCaller, McpEndpoint
from mainspring.service.access.principal import Principal


class McpRoutes:
    route_options: ClassVar[RouteOptions] = {
        "for_agent_keys": True,
        "is_extension": True,
        "is_documented": False,
    }

    def __init__(
        self, endpoint: McpEndpoint, features_for: Callable[[Principal], Features]
    ) -> None:
        self._endpoint = endpoint
        self._features_for = features_for

    @route(
        "POST /mcp",
        "Send a message of the Model Context Protocol",
        upload="application/json",
        role="viewer",
    )
    async def post(self, call: ApiCall[Empty, Empty]) -> web.StreamResponse:
        return await self._endpoint.post(call.request, self._caller(call))

    @route(
        "GET /mcp",
        "Follow what a session of the Model Context Protocol is told",
        media_type="text/event-stream",
    )
    async def get(self, call: ApiCall[Empty, Empty]) -> web.StreamResponse:
        return await self._endpoint.get(call.request, self._caller(call))

    @route("DELETE /mcp", "End a session of the Model Context Protocol", role="viewer")
    async def delete(self, call: ApiCall[Empty, Empty]) -> web.StreamResponse:
        return await self._endpoint.delete(call.request, self._caller(call))

    def _caller(self, call: ApiCall[Empty, Empty]) -> HttpCaller:
        who = call.who
        parts = (who.tenant, who.issuer, who.key_id, who.acting_agent or "")
        return HttpCaller(
            id="/".join(parts),
            features=self._features_for(who),
            recheck_access=call.recheck_access,
        )
