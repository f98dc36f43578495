"""The OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aiohttp import web
from anyio import to_thread

from mainspring.edges.api.openapi import OPENAPI_PATH, document, encode_document
from mainspring.edges.api.route import ApiCall, Empty, Route, route, routes_of


@dataclass(slots=True)
class OpenApiRoutes:
    """Serves the OpenAPI document. It is built on first request: it takes a second, which would
    delay every start."""

    others: Sequence[Route]
    version: str
    _encoded: bytes | None = field(default=None, init=False)

    @route(
        f"GET {OPENAPI_PATH}", "Get this document", is_open=True, response_type=dict[str, object]
    )
    async def read(self, _: ApiCall[Empty, Empty]) -> web.Response:
        if self._encoded is None:
            self._encoded = await to_thread.run_sync(self.encode)
        return web.Response(body=self._encoded, content_type="application/json")

    def encode(self) -> bytes:
        return encode_document(document((*self.others, *routes_of(self)), version=self.version))
