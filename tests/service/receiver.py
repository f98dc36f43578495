"""A receiver of webhooks on loopback, that answers as it is told and keeps what it got."""

import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from mainspring.edges.api.app import http_server


@dataclass
class Receiver:
    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    answer: bytes = b"thanks"
    got: list[tuple[dict[str, str], str]] = field(default_factory=list[tuple[dict[str, str], str]])

    async def handle(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), (await request.read()).decode()))
        return web.Response(status=self.status, body=self.answer, headers=self.headers)


@asynccontextmanager
async def receiving() -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", receiver.handle)
    async with http_server(app) as url:
        receiver.url = f"{url}/hook"
        yield receiver


def holds(secret: str, headers: dict[str, str], body: str) -> bool:
    """Whether a signature holds, reckoned as standardwebhooks.com says and not with our code."""
    low = {name.lower(): value for name, value in headers.items()}
    content = f"{low['webhook-id']}.{low['webhook-timestamp']}.{body}".encode()
    key = base64.b64decode(secret.removeprefix("whsec_"))
    wanted = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return f"v1,{wanted}" in low["webhook-signature"].split(" ")
