"""Opens the transport to a server with a URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import aiohttp
from yarl import URL

from mainspring.capabilities.mcp.protocol.transport import Transport
from mainspring.capabilities.mcp.transports.channel import ChannelTransport
from mainspring.capabilities.mcp.transports.http import EventDecoder, HttpTransport
from mainspring.capabilities.mcp.transports.http_responses import open_http
from mainspring.capabilities.mcp.transports.server_auth import ServerAuth
from mainspring.capabilities.mcp.transports.sse import open_sse
from mainspring.capabilities.mcp.transports.websocket import open_websocket
from mainspring.core.errors import McpFailed


async def open_url(
    kind: Literal["http", "sse", "ws"],
    url: str,
    new_decoder: Callable[[], EventDecoder],
    auth: ServerAuth,
    connector: aiohttp.BaseConnector | None = None,
) -> Transport:
    """
    Raises:
        McpFailed: not a URL that can be used, or no connection.
    """
    schemes = ("wss", "ws") if kind == "ws" else ("https", "http")
    try:
        target = URL(url)
    except ValueError as error:
        raise McpFailed("its url is not a URL") from error
    if target.scheme not in schemes or not target.host or target.user is not None:
        begin = " or ".join(f"{scheme}://" for scheme in schemes)
        raise McpFailed(f"its url must begin with {begin}, without a user name")
    http = open_http(connector)
    match kind:
        case "http":
            return HttpTransport(
                url, http, new_decoder=new_decoder, make_headers=auth.headers, renew=auth.renew
            )
        case "sse":
            return ChannelTransport(await open_sse(url, http, new_decoder(), auth.headers))
        case "ws":
            return ChannelTransport(await open_websocket(url, http, auth.headers))
