"""`/mcp`: the Model Context Protocol beside the API, with the same keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from aiohttp import web

from mainspring.capabilities.mcp.server.features import Features
from mainspring.edges.api.route import ApiCall, Empty, RouteOptions, route
from mainspring.edges.mcp.http_endpoint import HttpCaller, McpEndpoint
from mainspring.service.access.principal import Principal


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
