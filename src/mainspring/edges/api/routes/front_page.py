"""`/`, a page for people who open the address of the service in a browser, and the OpenAPI
document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from aiohttp import web
from anyio import to_thread

from mainspring.edges.api.openapi import OPENAPI_PATH, document, encode_document
from mainspring.edges.api.route import ApiCall, Empty, Route, route, routes_of

PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Mainspring</title></head>
<body>
<h1>Mainspring {version}</h1>
<p>This is the API of a Mainspring service. It implements the Managed Agents API. To use it,
set the base URL of the official SDK to this address:</p>
<pre>client = anthropic.Anthropic(base_url="THIS ADDRESS", api_key="msk_...")</pre>
<p>An administrator creates a key with <code>mainspring keys create NAME</code>.</p>
<ul>
<li><a href="{openapi}">OpenAPI document</a>: every request and response</li>
<li>Documentation: the folder <code>docs</code> of the source; start with <code>clients.md</code>,
then <code>api.md</code> and <code>service.md</code></li>
<li><a href="/healthz">/healthz</a> and <a href="/readyz">/readyz</a>: its health</li>
</ul>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class FrontPageRoutes:
    version: str

    @route(
        "GET /",
        "Get a page with the version and links to the documentation",
        is_open=True,
        media_type="text/html",
        is_extension=True,
    )
    async def read(self, _api_call: ApiCall[Empty, Empty]) -> web.Response:
        page = _PAGE.format(version=escape(self.version), openapi=OPENAPI_PATH)
        return web.Response(text=page, content_type="text/html", headers=PAGE_HEADERS)


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
