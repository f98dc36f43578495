"""MCP over streamable HTTP: one POST for each message, answered as JSON or as an event stream. A
legacy server may also have a stream of its own, and streams that can be resumed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from mainspring.capabilities.mcp.protocol.messages import (
    McpRequest,
    Message,
    decode_message,
    encode_notification,
)
from mainspring.capabilities.mcp.protocol.param_headers import encode_header
from mainspring.capabilities.mcp.protocol.transport import (
    MAX_MESSAGE_BYTES,
    MAX_UNSOLICITED,
    PARTING_SECONDS,
    AnswerTasks,
    Listener,
)
from mainspring.capabilities.mcp.transports.http_responses import (
    MAX_WAIT_SECONDS,
    connection_error,
    http_error,
    is_stream,
    plain_start,
    read_body,
    retry_seconds,
)
from mainspring.capabilities.mcp.transports.server_auth import Refusal, Renew
from mainspring.core.errors import McpFailed

_MAX_ATTEMPTS = 5  # at one request, and to resume one stream
_RESUME_SECONDS = 1.0
"""The delay before a broken stream is resumed, unless the server sets one."""
_STREAM_SECONDS = 2.0
"""How long to wait for a server to show whether it has a stream."""
_MAX_ERROR_BYTES = 64 << 10  # of a refusal's body, which an error quotes in part
_SESSION = "Mcp-Session-Id"
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_UNAUTHORIZED = (401, 403)  # statuses that new credentials may mend
_MAX_CHALLENGE = 8_192  # characters of `WWW-Authenticate`


class EventDecoder(Protocol):
    """Splits a stream of server-sent events into the data of each."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Raises ValueError: an event is too large."""
        ...

    @property
    def last_id(self) -> str: ...

    @property
    def retry_ms(self) -> int | None: ...


MakeHeaders = Callable[[], Awaitable[Mapping[str, str]]]
"""Makes headers for the server, such as its credentials. Raises: McpFailed."""


@dataclass(slots=True)
class _StreamPosition:
    """The position in an event stream."""

    last_id: str = ""
    seconds: float = _RESUME_SECONDS
    """The delay before it is resumed."""

    def read(self, decoder: EventDecoder) -> None:
        self.last_id = decoder.last_id or self.last_id
        if decoder.retry_ms is not None:
            self.seconds = min(decoder.retry_ms / 1000, MAX_WAIT_SECONDS)


class HttpTransport:
    """A `Transport`. It never follows a redirect: credentials are for one host.

    `http` belongs to the transport, and is closed with it. Its connector decides which addresses
    can be reached.
    """

    mirrors_params = True

    def __init__(
        self,
        url: str,
        http: aiohttp.ClientSession,
        *,
        new_decoder: Callable[[], EventDecoder],
        make_headers: MakeHeaders,
        renew: Renew | None = None,
        max_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.listener: Listener | None = None
        self.end: str | None = None
        self._url = url
        self._http = http
        self._new_decoder = new_decoder
        self._make_headers = make_headers
        self._renew = renew
        self._max_bytes = max_bytes
        self._session_id: str | None = None
        self._version: str | None = None
        """The version of a legacy server, for messages that are not requests."""
        self._initialize: McpRequest | None = None
        self._initialize_lock = anyio.Lock()
        self._is_new_session = False
        self._has_begun = anyio.Event()
        """Set when a session with a legacy server begins, which may have a stream."""
        self._is_followed = anyio.Event()
        """Set when the stream is open, or there is none."""
        self._group: TaskGroup | None = None
        self._answers = AnswerTasks(self.notify)

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            while True:
                await self._has_begun.wait()
                self._has_begun = anyio.Event()
                await self._follow(self._session_id)

    async def exchange(self, request: McpRequest) -> Message:
        if request.method == "initialize":
            self._initialize, self._session_id = request, None
        if request.era == "legacy" and request.method == "tools/call":
            with anyio.move_on_after(_STREAM_SECONDS):
                await self._is_followed.wait()  # otherwise, questions of a call may be lost
        try:
            return await self._exchange(request)
        except anyio.get_cancelled_exc_class():
            if request.era == "legacy" and request.method != "initialize":
                params = {"requestId": request.id, "reason": "cancelled"}
                with CancelScope(shield=True), anyio.move_on_after(PARTING_SECONDS):
                    await self.notify(encode_notification("notifications/cancelled", params))
            raise

    async def notify(self, message: bytes) -> None:
        try:
            async with await self._post(message, {}) as response:
                if response.status >= 400:
                    raise http_error(response, b"")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise McpFailed(connection_error(error)) from error
        if self._is_new_session:
            self._is_new_session = False
            self._has_begun.set()

    async def aclose(self) -> None:
        if self._group is not None:
            self._group.cancel_scope.cancel()
        with CancelScope(shield=True):
            with anyio.move_on_after(PARTING_SECONDS):
                await self._end_session()
            self.end = "the connection was closed"
            await self._http.close()

    async def _end_session(self) -> None:
        if self._session_id is None:
            return
        try:
            headers = {**await self._make_headers(), **self._own_headers()}
            async with self._http.delete(self._url, headers=headers, allow_redirects=False):
                return
        except (aiohttp.ClientError, OSError, ValueError, McpFailed):
            return  # the server expires the session itself

    async def _exchange(self, request: McpRequest) -> Message:
        for attempt in range(_MAX_ATTEMPTS):
            session_id = self._session_id
            is_sent = False
            try:
                async with await self._post(request.encode(), _headers(request)) as response:
                    is_sent = True
                    wait = retry_seconds(response)
                    if await self._has_renewed(response):
                        wait = 0.0
                    elif wait is None and not self._has_lost_session(request, response):
                        return await self._response(request, response)
            except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
                raise McpFailed(connection_error(error)) from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                is_in_doubt = is_sent or not isinstance(error, ValueError)
                raise McpFailed(connection_error(error), is_in_doubt=is_in_doubt) from error
            if attempt + 1 == _MAX_ATTEMPTS:
                break
            if wait is None:
                await self._initialize_again(session_id)
            else:
                await anyio.sleep(wait)
        raise McpFailed(
            f"{request.method}: refused {_MAX_ATTEMPTS} times, last with HTTP status"
            " 401, 403, 404, 429 or 503",
            code=0,
        )

    async def _has_renewed(self, response: aiohttp.ClientResponse) -> bool:
        if self._renew is None or response.status not in _UNAUTHORIZED:
            return False
        challenge = ", ".join(response.headers.getall("WWW-Authenticate", []))
        return await self._renew(Refusal(response.status, challenge[:_MAX_CHALLENGE]))

    def _has_lost_session(self, request: McpRequest, response: aiohttp.ClientResponse) -> bool:
        is_in_session = self._session_id is not None and request.method != "initialize"
        return response.status == 404 and is_in_session

    async def _initialize_again(self, lost: str | None) -> None:
        """Start a new session, since the server has lost the old one; it did not process the
        request."""
        async with self._initialize_lock:
            if self._session_id != lost or self._initialize is None:
                return  # another task has done it
            self._session_id = None
            await self._exchange(self._initialize)
            await self.notify(encode_notification("notifications/initialized", {}))

    async def _response(self, request: McpRequest, response: aiohttp.ClientResponse) -> Message:
        if response.status not in (200, 201):
            body = await read_body(response, _MAX_ERROR_BYTES, is_cut=True)
            message = decode_message(body)
            if message is not None and message.error is not None:
                return message
            raise http_error(response, body)
        if request.method == "initialize":
            self._session_id = response.headers.get(_SESSION)
            self._version = request.version
            self._is_new_session = True
        if response.content_type == "text/event-stream":
            return await self._read_stream(request, response)
        body = await read_body(response, self._max_bytes)
        message = decode_message(body)
        if message is None or not message.is_response or message.id != request.id:
            text = "" if message is not None else plain_start(body)
            detail = f": {text}" if text else ""
            raise McpFailed(
                f"{request.method}: the answer is not a response to it{detail}",
                code=0,
                is_in_doubt=True,
            )
        return message

    async def _read_stream(self, request: McpRequest, response: aiohttp.ClientResponse) -> Message:
        """The response to a request. If the stream ends before the response, it is resumed if
        possible: a server may disconnect and let the client fetch the response later."""
        position = _StreamPosition()
        message = await self._find_response(request, response, position)
        while message is None and position.last_id and request.era == "legacy":
            last_id = position.last_id
            await anyio.sleep(position.seconds)
            async with await self._get(position) as resumed:
                if not is_stream(resumed):
                    break
                message = await self._find_response(request, resumed, position)
            if message is None and position.last_id == last_id:
                break  # no progress: it would never end
        if message is None:
            why = f"{request.method}: the stream ended without response"
            raise McpFailed(why, is_in_doubt=True)
        return message

    async def _find_response(
        self, request: McpRequest, response: aiohttp.ClientResponse, position: _StreamPosition
    ) -> Message | None:
        unsolicited = 0
        try:
            async for message in self._messages(response, position):
                if message.is_response and message.id == request.id:
                    return message
                unsolicited += 1
                if unsolicited > MAX_UNSOLICITED:
                    why = f"more than {MAX_UNSOLICITED:,} messages before the response"
                    raise McpFailed(why, is_in_doubt=True)
                self._hear(message)
        except (aiohttp.ClientError, OSError):
            if not position.last_id:
                raise
        return None

    async def _messages(
        self, response: aiohttp.ClientResponse, position: _StreamPosition
    ) -> AsyncGenerator[Message, None]:
        decoder = self._new_decoder()
        async for piece in response.content.iter_any():
            events = decoder.feed(piece)
            position.read(decoder)
            for data in events:
                if (message := decode_message(data)) is not None:
                    yield message

    def _hear(self, message: Message) -> None:
        if message.is_response or self.listener is None or self._group is None:
            return
        self._answers.handle(message, self.listener, self._group)

    async def _follow(self, session_id: str | None) -> None:
        """Read the server-initiated stream of a legacy server while the session lasts. Many have
        none."""
        position, failures = _StreamPosition(), 0
        while self._session_id == session_id:
            try:
                async with await self._get(position) as response:
                    self._is_followed.set()
                    if not is_stream(response):
                        return
                    async for message in self._messages(response, position):
                        failures = 0
                        self._hear(message)
            except (aiohttp.ClientError, OSError):
                pass  # retry
            except (ValueError, McpFailed):
                return  # it violates the protocol; requests still work
            finally:
                self._is_followed.set()
            await anyio.sleep(min(MAX_WAIT_SECONDS, position.seconds * 2**failures))
            failures = min(failures + 1, 6)

    async def _get(self, position: _StreamPosition) -> aiohttp.ClientResponse:
        headers = {**await self._make_headers(), **self._own_headers()}
        headers["Accept"] = "text/event-stream"
        if position.last_id:
            headers["Last-Event-ID"] = position.last_id
        return await self._http.get(self._url, headers=headers, allow_redirects=False)

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        every = {**await self._make_headers(), **self._own_headers(), **headers}
        if self.end is not None:
            raise McpFailed(self.end)
        return await self._http.post(self._url, data=body, headers=every, allow_redirects=False)

    def _own_headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",  # no decompression bombs
        }
        if self._version is not None:
            headers["MCP-Protocol-Version"] = self._version
        if self._session_id is not None:
            headers[_SESSION] = self._session_id
        return headers


def _headers(request: McpRequest) -> dict[str, str]:
    if request.era == "legacy":
        is_first = request.method == "initialize"
        return {} if is_first else {"MCP-Protocol-Version": request.version}
    headers = {"MCP-Protocol-Version": request.version, "Mcp-Method": request.method}
    if request.method in _NAMES:
        headers["Mcp-Name"] = encode_header(str(request.params[_NAMES[request.method]]))
    return {**headers, **request.headers}
