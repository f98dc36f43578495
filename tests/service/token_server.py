"""A token endpoint and an MCP server on loopback, as an OAuth provider runs them."""

from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote_plus

from aiohttp import web

from mainspring.edges.api.app import http_server


@dataclass
class Provider:
    """Believes one access token and one refresh token at a time; each exchange makes new ones."""

    access_token: str = "access-token-number-0"
    refresh_token: str = "refresh-token-number-0"
    client_secret: str | None = None
    expires_in: int | str | None = 3600
    answers: list[web.Response] = field(default_factory=list[web.Response])
    """To give before it does what it should."""
    asked: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    url: str = ""

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        basic = request.headers.get("authorization", "").removeprefix("Basic ")
        if basic:
            name, _, secret = b64decode(basic).decode().partition(":")
            form |= {"basic_id": unquote_plus(name), "basic_secret": unquote_plus(secret)}
        self.asked.append(form)
        if self.answers:
            return self.answers.pop(0)
        given = form.get("basic_secret", form.get("client_secret"))
        if form.get("refresh_token") != self.refresh_token or given != self.client_secret:
            return web.json_response(
                {"error": "invalid_grant", "echo": form.get("refresh_token")}, status=400
            )
        number = len(self.asked)
        self.access_token = f"access-token-number-{number}"
        self.refresh_token = f"refresh-token-number-{number}"
        told = {"access_token": self.access_token, "refresh_token": self.refresh_token}
        if self.expires_in is not None:
            told["expires_in"] = str(self.expires_in)
        return web.json_response(told)

    async def mcp(self, request: web.Request) -> web.Response:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        assert (await request.json())["method"] == "initialize"
        if bearer != self.access_token:
            return web.json_response({"error": "invalid_token", "echo": bearer}, status=401)
        return web.json_response({"jsonrpc": "2.0", "id": 1, "result": {}})


@asynccontextmanager
async def provider() -> AsyncGenerator[Provider]:
    current = Provider()
    app = web.Application()
    app.router.add_post("/token", current.token)
    app.router.add_post("/mcp", current.mcp)
    async with http_server(app) as url:
        current.url = url
        yield current
