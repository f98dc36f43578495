"""`/`: a page for people who open the address of the service in a browser."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from aiohttp import web

from mainspring.edges.api.openapi import OPENAPI_PATH
from mainspring.edges.api.route import ApiCall, Empty, Route

_HEADERS = {
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
<p>This is the API of a Mainspring service. It speaks the Managed Agents API; point the official
SDK at this address:</p>
<pre>client = anthropic.Anthropic(base_url="THIS ADDRESS", api_key="msk_...")</pre>
<p>An administrator makes a key with <code>mainspring keys create NAME</code>.</p>
<ul>
<li><a href="{openapi}">OpenAPI document</a>: every request and answer</li>
<li>Documentation: the folder <code>docs</code> of the source; begin with <code>clients.md</code>,
then <code>api.md</code> and <code>service.md</code></li>
<li><a href="/healthz">/healthz</a> and <a href="/readyz">/readyz</a>: whether it works</li>
</ul>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class FrontPageRoutes:
    version: str

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path="/",
                handle=self.read,
                summary="Get a page with the version and links to the documentation",
                media_type="text/html",
                is_open=True,
                is_extension=True,
            ),
        )

    async def read(self, _api_call: ApiCall[Empty, Empty]) -> web.Response:
        page = _PAGE.format(version=escape(self.version), openapi=OPENAPI_PATH)
        return web.Response(text=page, content_type="text/html", headers=_HEADERS)
