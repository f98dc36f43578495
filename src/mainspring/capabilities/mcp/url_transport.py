"""The transport to a server that has an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from yarl import URL

from mainspring.capabilities.mcp.channel import ChannelTransport
from mainspring.capabilities.mcp.http import EventDecoder, HttpTransport, MakeHeaders
from mainspring.capabilities.mcp.http_responses import open_http
from mainspring.capabilities.mcp.sse import open_sse
from mainspring.capabilities.mcp.transport import Transport
from mainspring.capabilities.mcp.websocket import open_websocket
from mainspring.core.errors import McpFailed


async def open_url(
    kind: Literal["http", "sse", "ws"],
    url: str,
    new_decoder: Callable[[], EventDecoder],
    make_headers: MakeHeaders,
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
    match kind:
        case "http":
            return HttpTransport(
                url, open_http(), new_decoder=new_decoder, make_headers=make_headers
            )
        case "sse":
            return ChannelTransport(await open_sse(url, open_http(), new_decoder(), make_headers))
        case "ws":
            return ChannelTransport(await open_websocket(url, open_http(), make_headers))
