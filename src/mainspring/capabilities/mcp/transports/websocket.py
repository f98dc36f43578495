"""MCP over a WebSocket: one JSON message in each text frame."""

from __future__ import annotations

import aiohttp
from anyio import CancelScope, move_on_after

from mainspring.capabilities.mcp.protocol.transport import MAX_MESSAGE_BYTES, PARTING_SECONDS
from mainspring.capabilities.mcp.transports.http import MakeHeaders
from mainspring.capabilities.mcp.transports.http_responses import connection_error
from mainspring.core.errors import McpFailed

_PROTOCOL = "mcp"


class WebSocketChannel:
    """A `Channel`. `http` belongs to it, and is closed with it."""

    def __init__(
        self, http: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse
    ) -> None:
        self._http = http
        self._socket = socket

    async def send(self, message: bytes) -> None:
        try:
            await self._socket.send_str(message.decode())
        except aiohttp.ClientError as error:
            raise OSError("closed") from error

    async def receive(self) -> bytes | None:
        while True:
            frame = await self._socket.receive()
            match frame.type:
                case aiohttp.WSMsgType.TEXT:
                    return str(frame.data).encode("utf-8", "replace")
                case aiohttp.WSMsgType.BINARY:
                    return bytes(frame.data)
                case aiohttp.WSMsgType.ERROR:
                    why = f"the connection broke ({type(frame.data).__name__})"
                    raise McpFailed(why, is_in_doubt=True)
                case aiohttp.WSMsgType.CLOSE | aiohttp.WSMsgType.CLOSING | aiohttp.WSMsgType.CLOSED:
                    return None
                case _:
                    continue

    async def aclose(self) -> None:
        with CancelScope(shield=True):
            with move_on_after(PARTING_SECONDS):
                await self._socket.close()
            await self._http.close()


async def open_websocket(
    url: str, http: aiohttp.ClientSession, make_headers: MakeHeaders
) -> WebSocketChannel:
    """Takes ownership of `http`, which must not follow redirects.

    Raises:
        McpFailed: no connection.
    """
    try:
        headers = await make_headers()
        socket = await http.ws_connect(
            url, headers=headers, protocols=(_PROTOCOL,), max_msg_size=MAX_MESSAGE_BYTES
        )
    except BaseException as error:
        with CancelScope(shield=True):
            await http.close()
        if isinstance(error, aiohttp.ClientError | OSError | ValueError):
            raise McpFailed(connection_error(error)) from error
        raise
    return WebSocketChannel(http, socket)
