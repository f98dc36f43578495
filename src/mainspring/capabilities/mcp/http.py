"""MCP over streamable HTTP: one POST for each message, answered as JSON or as an event stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import aiohttp
import anyio
from anyio import CancelScope

from mainspring.capabilities.mcp.messages import (
    Message,
    Request,
    decode_message,
    encode_notification,
)
from mainspring.capabilities.mcp.param_headers import encode_header
from mainspring.capabilities.mcp.transport import MAX_MESSAGE_BYTES, Listener
from mainspring.core.errors import McpFailed

_MAX_UNASKED = 100_000
"""Messages on the stream of one request besides its response."""
_MAX_ATTEMPTS = 5
_MAX_WAIT_SECONDS = 60.0
_PARTING_SECONDS = 2.0
_MAX_ERROR_BYTES = 64 << 10
_SESSION = "Mcp-Session-Id"
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_REPEATABLE = (429, 503)
"""With `Retry-After`, the server says that it has done nothing."""


class EventDecoder(Protocol):
    """Cuts a stream of server-sent events into the data of each."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Raises ValueError: an event is too large."""
        ...


MakeHeaders = Callable[[], Awaitable[Mapping[str, str]]]
"""Headers of the server's own, such as its credentials."""


class HttpTransport:
    """A `Transport`. It never follows a redirect: credentials are for one host.

    `http` is the transport's own, and is closed with it. Which addresses can be reached is for its
    connector to decide.
    """

    mirrors_params = True

    def __init__(
        self,
        url: str,
        http: aiohttp.ClientSession,
        *,
        new_decoder: Callable[[], EventDecoder],
        make_headers: MakeHeaders,
        max_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.listener: Listener | None = None
        self._url = url
        self._http = http
        self._new_decoder = new_decoder
        self._make_headers = make_headers
        self._max_bytes = max_bytes
        self._session_id: str | None = None
        self._version: str | None = None
        """Of legacy servers, for what is no request."""
        self._initialize: Request | None = None
        self._initializing = anyio.Lock()

    async def exchange(self, request: Request) -> Message:
        if request.method == "initialize":
            self._initialize, self._session_id = request, None
        try:
            return await self._exchange(request)
        except anyio.get_cancelled_exc_class():
            if request.era == "legacy" and request.method != "initialize":
                params = {"requestId": request.id, "reason": "cancelled"}
                with CancelScope(shield=True), anyio.move_on_after(_PARTING_SECONDS):
                    await self.notify(encode_notification("notifications/cancelled", params))
            raise

    async def notify(self, message: bytes) -> None:
        try:
            async with await self._post(message, {}) as response:
                if response.status >= 400:
                    raise _http_error(response, b"")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise McpFailed(_connection_error(error)) from error

    async def aclose(self) -> None:
        with CancelScope(shield=True):
            with anyio.move_on_after(_PARTING_SECONDS):
                await self._end_session()
            await self._http.close()

    async def _end_session(self) -> None:
        if self._session_id is None:
            return
        try:
            headers = {**await self._make_headers(), **self._own_headers()}
            async with self._http.delete(self._url, headers=headers, allow_redirects=False):
                return
        except (aiohttp.ClientError, OSError, ValueError, McpFailed):
            return  # it forgets the session by itself

    async def _exchange(self, request: Request) -> Message:
        for attempt in range(_MAX_ATTEMPTS):
            session_id = self._session_id
            is_sent = False
            try:
                async with await self._post(request.encode(), _headers(request)) as response:
                    is_sent = True
                    wait = _retry_seconds(response)
                    if wait is None and not self._has_lost_session(request, response):
                        return await self._response(request, response)
            except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
                raise McpFailed(_connection_error(error)) from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                is_in_doubt = is_sent or not isinstance(error, ValueError)
                raise McpFailed(_connection_error(error), is_in_doubt=is_in_doubt) from error
            if attempt + 1 == _MAX_ATTEMPTS:
                break
            if wait is None:
                await self._initialize_again(session_id)
            else:
                await anyio.sleep(wait)
        raise McpFailed(
            f"{request.method}: refused {_MAX_ATTEMPTS} times, last with HTTP status"
            " 429, 503 or 404",
            code=0,
        )

    def _has_lost_session(self, request: Request, response: aiohttp.ClientResponse) -> bool:
        is_in_session = self._session_id is not None and request.method != "initialize"
        return response.status == 404 and is_in_session

    async def _initialize_again(self, lost: str | None) -> None:
        """The server has forgotten the session; the request was not looked at."""
        async with self._initializing:
            if self._session_id != lost or self._initialize is None:
                return  # somebody else has done it meanwhile
            self._session_id = None
            await self._exchange(self._initialize)
            await self.notify(encode_notification("notifications/initialized", {}))

    async def _response(self, request: Request, response: aiohttp.ClientResponse) -> Message:
        if response.status not in (200, 201):
            body = await _read(response, _MAX_ERROR_BYTES, is_cut=True)
            message = decode_message(body)
            if message is not None and message.error is not None:
                return message
            raise _http_error(response, body)
        if request.method == "initialize":
            self._session_id = response.headers.get(_SESSION)
            self._version = request.version
        if response.content_type == "text/event-stream":
            return await self._read_stream(request, response)
        message = decode_message(await _read(response, self._max_bytes))
        if message is None or not message.is_response or message.id != request.id:
            raise McpFailed(
                f"{request.method}: the answer is no response to it", code=0, is_in_doubt=True
            )
        return message

    async def _read_stream(self, request: Request, response: aiohttp.ClientResponse) -> Message:
        decoder, unasked = self._new_decoder(), 0
        async for piece in response.content.iter_any():
            for data in decoder.feed(piece):
                message = decode_message(data)
                if message is not None and message.is_response and message.id == request.id:
                    return message
                unasked += 1
                if unasked > _MAX_UNASKED:
                    raise McpFailed(
                        f"more than {_MAX_UNASKED:,} messages before the response",
                        is_in_doubt=True,
                    )
                await self._hear(message)
        raise McpFailed(f"{request.method}: the stream ended without response", is_in_doubt=True)

    async def _hear(self, message: Message | None) -> None:
        if message is None or message.is_response or self.listener is None:
            return
        if message.id is None:
            self.listener.notified(message)
        else:
            await self.notify(await self.listener.answer(message))

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        every = {**await self._make_headers(), **self._own_headers(), **headers}
        return await self._http.post(self._url, data=body, headers=every, allow_redirects=False)

    def _own_headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",  # what is packed small may be large
        }
        if self._version is not None:
            headers["MCP-Protocol-Version"] = self._version
        if self._session_id is not None:
            headers[_SESSION] = self._session_id
        return headers


def _headers(request: Request) -> dict[str, str]:
    if request.era == "legacy":
        is_first = request.method == "initialize"
        return {} if is_first else {"MCP-Protocol-Version": request.version}
    headers = {"MCP-Protocol-Version": request.version, "Mcp-Method": request.method}
    if request.method in _NAMES:
        headers["Mcp-Name"] = encode_header(str(request.params[_NAMES[request.method]]))
    return {**headers, **request.headers}


async def _read(response: aiohttp.ClientResponse, limit: int, *, is_cut: bool = False) -> bytes:
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > limit:
            if is_cut:
                break
            raise McpFailed(f"an answer of more than {limit:,} bytes", is_in_doubt=True)
    return bytes(content[:limit])


def _retry_seconds(response: aiohttp.ClientResponse) -> float | None:
    """How long to wait before the same request again, if that is of any use."""
    if response.status not in _REPEATABLE:
        return None
    value = response.headers.get("Retry-After", "1" if response.status == 429 else "")
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _MAX_WAIT_SECONDS else None


def _http_error(response: aiohttp.ClientResponse, body: bytes) -> McpFailed:
    status = response.status
    if 300 <= status < 400:
        return McpFailed(f"redirects elsewhere (HTTP {status}); redirects are not followed")
    if status in (401, 403, 407):
        return McpFailed(f"does not accept the credentials (HTTP {status})")
    text = " ".join(body[:300].decode("utf-8", "replace").split())
    what = f"HTTP {status}" + (f": {text}" if text and "<" not in text else "")
    return McpFailed(what, code=0, is_in_doubt=status >= 500)


def _connection_error(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not to be trusted"
    if isinstance(error, aiohttp.InvalidURL):
        return "not a URL"
    return f"no answer ({type(error).__name__})"
