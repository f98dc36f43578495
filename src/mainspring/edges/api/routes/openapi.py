"""`/v1/mainspring/openapi.json`: what this API is, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aiohttp import web
from anyio import to_thread

from mainspring.edges.api.openapi import document, encoded
from mainspring.edges.api.route import Call, Nothing, Route

OPENAPI = "/v1/mainspring/openapi.json"


@dataclass(slots=True)
class OpenApiRoutes:
    """Made when it is first asked for: it takes a second, which no start needs to wait for."""

    others: Sequence[Route]
    version: str
    _made: bytes | None = field(default=None, init=False)

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path=OPENAPI,
                handle=self.read,
                summary="Read this document",
                answer=dict[str, object],
                is_open=True,
                is_extension=True,
            ),
        )

    async def read(self, _call: Call[Nothing, Nothing]) -> web.Response:
        if self._made is None:
            self._made = await to_thread.run_sync(self.made)
        return web.Response(body=self._made, content_type="application/json")

    def made(self) -> bytes:
        routes = (*self.others, *self.routes())
        return encoded(document(routes, version=self.version))
