"""`/v1/mainspring/mcp_logins`, an extension: a person logs in to an MCP server with a link."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from aiohttp import web
from msgspec import Struct
from yarl import URL

from mainspring.core.errors import InvalidInput, NotFound
from mainspring.edges.api.route import ApiCall, Empty, route
from mainspring.edges.dashboard.pages import PAGE_HEADERS
from mainspring.service.vaults.mcp_logins import CreateMcpLogin, McpLogin, McpLogins

_CALLBACK = "/v1/mainspring/mcp_logins/callback"
_PAGE = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Mainspring</title><p>{}</p>'


class CallbackQuery(Struct, frozen=True, kw_only=True):
    state: str = ""
    code: str | None = None
    iss: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class McpLoginRoutes:
    logins: McpLogins

    @route(
        "POST /v1/mainspring/mcp_logins",
        "Create a link with which a person logs in to an MCP server; a vault stores the tokens",
    )
    async def create(self, call: ApiCall[Empty, CreateMcpLogin]) -> McpLogin:
        base = call.body.public_url or str(call.request.url.origin())
        return await self.logins.begin(call.tenant, call.body, base.rstrip("/") + _CALLBACK)

    @route(
        f"GET {_CALLBACK}",
        "Finish a login: the authorization server redirects the browser here",
        is_open=True,
        media_type="text/html",
    )
    async def finish(self, call: ApiCall[CallbackQuery, Empty]) -> web.Response:
        query = {name: value for name, value in call.request.query.items()}
        back = str(URL(str(call.request.url.origin()) + _CALLBACK).with_query(query))
        try:
            await self.logins.finish(call.query.state, back)
            status, text = 200, "You are logged in. You can close this page."
        except (InvalidInput, NotFound) as error:
            status, text = 400, f"The login failed: {error}"
        page = _PAGE.format(escape(text))
        return web.Response(
            status=status, text=page, content_type="text/html", headers=PAGE_HEADERS
        )
