"""`/`: the page of the dashboard and its files; without a build, a page that says how to get it."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from aiohttp import web
from anyio import to_thread
from msgspec import Struct

from mainspring.core.errors import NotFound
from mainspring.edges.api.openapi import OPENAPI_PATH
from mainspring.edges.api.route import ApiCall, Empty, route

STATIC = Path(__file__).parent / "static"
_INDEX = "index.html"
_SHARED_HEADERS = {
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
PAGE_HEADERS = {
    **_SHARED_HEADERS,
    "content-security-policy": (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
_DASHBOARD_HEADERS = {
    **_SHARED_HEADERS,
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
}
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
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
<p>The dashboard belongs here, but this installation has none: it was installed from source
without Node.js. <code>make dashboard</code> in the source builds it; packages and images have
it.</p>
<ul>
<li><a href="{openapi}">OpenAPI document</a>: every request and response</li>
<li>Documentation: the folder <code>docs</code> of the source; start with <code>clients.md</code>,
then <code>api.md</code> and <code>service.md</code></li>
<li><a href="/healthz">/healthz</a> and <a href="/readyz">/readyz</a>: its health</li>
</ul>
</body>
</html>
"""


class StaticFile(Struct, frozen=True, kw_only=True):
    content: bytes
    zipped: bytes
    media_type: str


@dataclass(slots=True)
class DashboardPages:
    version: str
    folder: Path = STATIC
    _files: dict[str, StaticFile] | None = field(default=None, init=False)

    @route(
        "GET /",
        "Get the dashboard",
        is_open=True,
        media_type="text/html",
        is_extension=True,
    )
    async def page(self, call: ApiCall[Empty, Empty]) -> web.Response:
        files = await self._read()
        if _INDEX in files:
            return _response(call.request, files[_INDEX], _DASHBOARD_HEADERS)
        page = _PAGE.format(version=escape(self.version), openapi=OPENAPI_PATH)
        return web.Response(text=page, content_type="text/html", headers=PAGE_HEADERS)

    @route(
        "GET /dashboard/app.js",
        "Get the program of the dashboard",
        is_open=True,
        is_extension=True,
        media_type=_TYPES[".js"],
    )
    @route(
        "GET /dashboard/app.css",
        "Get the styles of the dashboard",
        is_open=True,
        is_extension=True,
        media_type=_TYPES[".css"],
    )
    @route(
        "GET /dashboard/icon.svg",
        "Get the icon of the dashboard",
        is_open=True,
        is_extension=True,
        media_type=_TYPES[".svg"],
    )
    async def file(self, call: ApiCall[Empty, Empty]) -> web.Response:
        """The page names them with the hash of their content, so that browsers may keep them."""
        name = call.request.path.rpartition("/")[2]
        if (file := (await self._read()).get(name)) is None:
            raise NotFound("file", name)
        headers = {**PAGE_HEADERS, "cache-control": "public, max-age=31536000, immutable"}
        return _response(call.request, file, headers)

    async def _read(self) -> dict[str, StaticFile]:
        if self._files is None:
            self._files = await to_thread.run_sync(read_files, self.folder)
        return self._files


def read_files(folder: Path) -> dict[str, StaticFile]:
    """The files of a build; nothing, if there is none."""
    if not (folder / _INDEX).is_file():
        return {}
    return {
        path.name: StaticFile(
            content=content,
            zipped=gzip.compress(content, mtime=0),
            media_type=_TYPES[path.suffix],
        )
        for path in sorted(folder.iterdir())
        if path.suffix in _TYPES
        for content in [path.read_bytes()]
    }


def _response(request: web.Request, file: StaticFile, headers: dict[str, str]) -> web.Response:
    is_zipped = "gzip" in request.headers.get("accept-encoding", "")
    encoding = {"content-encoding": "gzip", "vary": "accept-encoding"} if is_zipped else {}
    return web.Response(
        body=file.zipped if is_zipped else file.content,
        content_type=file.media_type,
        charset="utf-8",
        headers={**headers, **encoding},
    )
