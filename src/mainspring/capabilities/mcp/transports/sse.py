"""MCP over HTTP with server-sent events, the transport of servers before 2025-03-26: a stream of
messages from the server, whose first event names the URL to post messages to."""

from __future__ import annotations

from collections import deque
from urllib.parse import urljoin

import aiohttp
from anyio import CancelScope
from yarl import URL

from mainspring.capabilities.mcp.transports.http import EventDecoder, MakeHeaders
from mainspring.capabilities.mcp.transports.http_responses import connection_error
from mainspring.core.errors import McpFailed

_MAX_EVENTS_BEFORE_ENDPOINT = 100  # the first event names the endpoint; others may be comments


class SseChannel:
    """A `Channel`. `http` belongs to it, and is closed with it."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        response: aiohttp.ClientResponse,
        decoder: EventDecoder,
        make_headers: MakeHeaders,
    ) -> None:
        self._http = http
        self._response = response
        self._decoder = decoder
        self._make_headers = make_headers
        self._events: deque[bytes] = deque()
        self._endpoint = ""

    async def send(self, message: bytes) -> None:
        headers = {**await self._make_headers(), "Content-Type": "application/json"}
        try:
            async with self._http.post(
                self._endpoint, data=message, headers=headers, allow_redirects=False
            ) as response:
                if response.status >= 400:
                    raise McpFailed(f"HTTP {response.status}", code=0)
        except (aiohttp.ClientError, ValueError) as error:
            raise OSError(connection_error(error)) from error

    async def receive(self) -> bytes | None:
        while not self._events:
            try:
                piece = await self._response.content.readany()
                self._events.extend(self._decoder.feed(piece))
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise McpFailed(connection_error(error), is_in_doubt=True) from error
            if not piece:
                return None
        return self._events.popleft()

    async def aclose(self) -> None:
        self._response.close()
        with CancelScope(shield=True):
            await self._http.close()

    async def find_endpoint(self, url: str) -> None:
        """Wait for the event that names the URL to post to.

        Raises:
            McpFailed: the server names no URL of its own.
        """
        for _ in range(_MAX_EVENTS_BEFORE_ENDPOINT):
            data = await self.receive()
            if data is None:
                break
            if data[:1] not in (b"", b"{"):
                self._endpoint = _endpoint(url, data)
                return
        raise McpFailed("gave no address for messages")


async def open_sse(
    url: str, http: aiohttp.ClientSession, decoder: EventDecoder, make_headers: MakeHeaders
) -> SseChannel:
    """Takes ownership of `http`.

    Raises:
        McpFailed: no connection.
    """
    channel: SseChannel | None = None
    try:
        headers = {**await make_headers(), "Accept": "text/event-stream"}
        headers["Accept-Encoding"] = "identity"
        response = await http.get(url, headers=headers, allow_redirects=False)
        channel = SseChannel(http, response, decoder, make_headers)
        if response.status != 200 or response.content_type != "text/event-stream":
            raise McpFailed(f"does not answer with an event stream (HTTP {response.status})")
        await channel.find_endpoint(url)
    except BaseException as error:
        with CancelScope(shield=True):
            await (http.close() if channel is None else channel.aclose())
        if isinstance(error, aiohttp.ClientError | OSError | ValueError):
            raise McpFailed(connection_error(error)) from error
        raise
    return channel


def _endpoint(url: str, data: bytes) -> str:
    """The URL to post to, which must have the same origin, since credentials are for one host."""
    try:
        target = URL(urljoin(url, data.decode()))
    except ValueError as error:  # not text, or not a URL
        raise McpFailed("the address for messages is not a URL") from error
    if target.origin() != URL(url).origin():
        raise McpFailed("asked for messages to be sent to another host")
    return str(target)
