"""MCP over streamable HTTP at one path, for modern and legacy clients. Callers are already
authenticated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from aiohttp import web
from anyio import CancelScope

from mainspring.capabilities.mcp.protocol.messages import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Message,
    decode_message,
    encode_refusal,
)
from mainspring.capabilities.mcp.server.connection import MAX_REQUESTS, Connections, McpConnection
from mainspring.capabilities.mcp.server.dispatcher import McpDispatcher
from mainspring.capabilities.mcp.server.features import Features
from mainspring.capabilities.mcp.server.http_headers import (
    SESSION_HEADER,
    check_arguments,
    check_modern,
    era_of,
)
from mainspring.capabilities.mcp.server.listening import notify_legacy
from mainspring.capabilities.mcp.server.refusals import RequestRefused, busy
from mainspring.capabilities.mcp.server.stdio import MAX_REQUEST_BYTES
from mainspring.core.errors import MainspringError
from mainspring.edges.api.sse import HEADERS

_CHECK_SECONDS = 0.25
"""How often to check whether a client is still connected."""
_STATUS = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRules:
    """Prevents DNS rebinding: a web page must not reach this server under another host name."""

    hosts: frozenset[str] | None = _LOOPBACK
    """Host names that requests may use; `None`: any, because every request needs a key."""
    origins: frozenset[str] = frozenset()
    """Origins of web pages that may use it besides this machine's: `https://app.example.com`."""

    def refusal(self, headers: Mapping[str, str]) -> str | None:
        host = headers.get("Host", "")
        if self.hosts is not None and _host_name(f"//{host}") not in self.hosts:
            return f"the host name {host!r:.100} is not allowed"
        origin = headers.get("Origin")
        if origin is None or origin in self.origins or _host_name(origin) in _LOOPBACK:
            return None
        return f"the origin {origin!r:.100} is not allowed"


def _host_name(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.username is None else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTimes:
    body_seconds: float = 30.0
    """How long a request may take to arrive."""
    patience_seconds: float = 30.0
    """How long a client may leave data unread."""
    silent_seconds: float = 15.0
    """Then a stream is opened, or a comment sent: proxies close silent connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCaller:
    """The caller of a request, and the features that it may use."""

    id: str
    features: Features
    recheck_access: Callable[[], Awaitable[None]]
    """Raises an error if the request would now be refused: its key may have been revoked."""


class McpEndpoint:
    def __init__(
        self,
        server: McpDispatcher,
        *,
        new_session_id: Callable[[], str],
        monotonic: Callable[[], float],
        host_rules: HostRules,
        times: HttpTimes | None = None,
    ) -> None:
        self._server = server
        self._hosts = host_rules
        self._times = times or HttpTimes()
        self._connections = Connections(new_id=new_session_id, monotonic=monotonic)
        self._active = Counter[str]()
        self._listening = set[str]()

    async def post(self, request: web.Request, caller: HttpCaller) -> web.StreamResponse:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        body = await _read_body(request, self._times.body_seconds)
        if isinstance(body, web.Response):
            return body
        message = decode_message(body)
        if message is None:
            return _error(400, PARSE_ERROR, "the body must be one JSON-RPC message")
        if era_of(message, request.headers) == "modern":
            return await self._modern(request, message, caller)
        return await self._legacy(request, message, caller)

    async def get(self, request: web.Request, caller: HttpCaller) -> web.StreamResponse:
        """The stream of messages to a legacy client that answer no request."""
        if (refusal := self._refusal(request)) is not None:
            return refusal
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            return web.Response(status=405, headers={"Allow": "POST"})
        connection = self._connections.find(session_id, caller.id)
        if connection is None:
            return _no_session()
        if session_id in self._listening:
            return _error(409, INVALID_REQUEST, "this session already has a stream")
        self._listening.add(session_id)
        outlet = _HttpOutlet(request, caller.recheck_access, self._times)
        try:
            await outlet.open()
            async with anyio.create_task_group() as group:
                group.start_soon(_watch, outlet, group.cancel_scope)
                await notify_legacy(connection, outlet)
        except* ConnectionError:
            pass
        finally:
            self._listening.discard(session_id)
        return outlet.response

    async def delete(self, request: web.Request, caller: HttpCaller) -> web.StreamResponse:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            return web.Response(status=405, headers={"Allow": "POST"})
        return (
            web.Response(status=204)
            if self._connections.end(session_id, caller.id)
            else _no_session()
        )

    def _refusal(self, request: web.Request) -> web.Response | None:
        if (why := self._hosts.refusal(request.headers)) is not None:
            return _error(403, INVALID_REQUEST, why)
        accepted = request.headers.get("Accept", "")
        is_readable = "*/*" in accepted or (
            "text/event-stream" in accepted
            and (request.method == "GET" or "application/json" in accepted)
        )
        if request.method != "DELETE" and not is_readable:
            what = "Accept: must include application/json and text/event-stream"
            return _error(406, INVALID_REQUEST, what)
        if request.method == "POST" and request.content_type != "application/json":
            return _error(415, INVALID_REQUEST, "Content-Type: must be application/json")
        return None

    async def _modern(
        self, request: web.Request, message: Message, caller: HttpCaller
    ) -> web.StreamResponse:
        if message.is_response:
            return _error(400, INVALID_REQUEST, "a client must not send responses")
        if message.id is None:
            return web.Response(status=202)
        try:
            check_modern(message, request.headers)
            if message.method == "tools/call" and "tools" in caller.features.capabilities:
                check_arguments(message, request.headers, await caller.features.tools())
        except RequestRefused as error:
            return _refusal(message, error, 400)
        connection = McpConnection(caller=caller.id, features=caller.features)
        return await self._respond(request, message, connection, caller)

    async def _legacy(
        self, request: web.Request, message: Message, caller: HttpCaller
    ) -> web.StreamResponse:
        if message.method == "initialize" and message.id is not None:
            return await self._initialize(request, message, caller)
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            return _error(400, INVALID_REQUEST, f"{SESSION_HEADER}: missing; send initialize first")
        connection = self._connections.find(session_id, caller.id)
        if connection is None:
            return _no_session()
        if message.is_response:
            is_asked = connection.settle(message)
            return (
                web.Response(status=202)
                if is_asked
                else _error(400, INVALID_REQUEST, "the response answers no open request")
            )
        if message.id is None:
            if message.method == "notifications/cancelled":
                connection.cancel(message.params)
            return web.Response(status=202)
        return await self._respond(request, message, connection, caller)

    async def _initialize(
        self, request: web.Request, message: Message, caller: HttpCaller
    ) -> web.StreamResponse:
        connection = McpConnection(caller=caller.id, features=caller.features)
        response = await self._respond(request, message, connection, caller)
        if connection.client is not None:
            try:
                response.headers[SESSION_HEADER] = self._connections.add(connection)
            except RequestRefused as error:
                return _refusal(message, error, 503)
        return response

    async def _respond(
        self,
        request: web.Request,
        message: Message,
        connection: McpConnection,
        caller: HttpCaller,
    ) -> web.StreamResponse:
        assert message.id is not None
        if self._active[connection.caller] >= MAX_REQUESTS:
            return _refusal(message, busy(f"more than {MAX_REQUESTS} concurrent requests"), 429)
        is_modern = era_of(message, request.headers) == "modern"
        outlet = _HttpOutlet(
            request, caller.recheck_access, self._times, outlives_client=not is_modern
        )
        self._active[connection.caller] += 1
        try:
            with connection.answering(message.id):
                answer = await self._answer(connection, message, outlet)
                return await _finish(outlet, answer, is_modern=is_modern)
        except RequestRefused as error:
            return _refusal(message, error, 400)
        finally:
            self._active[connection.caller] -= 1
        return outlet.response if outlet.is_open else web.Response(status=202)  # cancelled

    async def _answer(
        self, connection: McpConnection, message: Message, outlet: _HttpOutlet
    ) -> tuple[bytes, int | None] | None:
        """The answer and its error code; `None` if the client has disconnected."""
        answer: tuple[bytes, int | None] | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_watch, outlet, group.cancel_scope)
                answer = await self._server.respond(connection, message, outlet)
                group.cancel_scope.cancel()
        except* ConnectionError:
            pass
        return answer


async def _finish(
    outlet: _HttpOutlet, answer: tuple[bytes, int | None] | None, *, is_modern: bool
) -> web.StreamResponse:
    if answer is None:
        return outlet.response if outlet.is_open else web.Response(status=202)
    body, code = answer
    if outlet.is_open:
        with suppress(ConnectionError):
            await outlet.send(body)
            await outlet.response.write_eof()
        return outlet.response
    status = 200 if code is None or not is_modern else _STATUS.get(code, 200)
    return web.Response(status=status, body=body, content_type="application/json")


class _HttpOutlet:
    """An `Outlet`. Its first message turns the response into an event stream."""

    def __init__(
        self,
        request: web.Request,
        recheck_access: Callable[[], Awaitable[None]],
        times: HttpTimes,
        *,
        outlives_client: bool = False,
    ) -> None:
        """`outlives_client`: a legacy client that disconnects has not cancelled its request; only
        questions to it fail then."""
        self.response = web.StreamResponse(headers=HEADERS)
        self.recheck_access = recheck_access
        self.times = times
        self._request = request
        self._outlives_client = outlives_client
        self._sending = anyio.Lock()

    @property
    def is_open(self) -> bool:
        return self.response.prepared

    @property
    def is_lost(self) -> bool:
        transport = self._request.transport
        return transport is None or transport.is_closing()

    @property
    def ends_with_client(self) -> bool:
        return not self._outlives_client

    async def send(self, message: bytes) -> None:
        await self._write(b"event: message\ndata: %s\n\n" % message)

    async def ask(self, message: bytes) -> None:
        self._outlives_client = False
        await self.send(message)

    async def open(self) -> None:
        await self._write(b":\n\n")

    async def _write(self, content: bytes) -> None:
        async with self._sending:
            try:
                if self.is_lost:
                    raise ConnectionResetError("the client has disconnected")
                if not self.is_open:
                    await self.response.prepare(self._request)
                with anyio.fail_after(self.times.patience_seconds):
                    await self.response.write(content)
            except (ConnectionError, TimeoutError) as error:
                if not self._outlives_client:
                    raise ConnectionResetError("the client has stopped reading") from error


async def _watch(outlet: _HttpOutlet, scope: CancelScope) -> None:
    """Cancel a request if its client disconnects or loses access; keep silent streams alive."""
    seconds = 0.0
    while True:
        await anyio.sleep(_CHECK_SECONDS)
        seconds += _CHECK_SECONDS
        if outlet.is_lost and outlet.ends_with_client:
            scope.cancel()
        elif seconds >= outlet.times.silent_seconds:
            seconds = 0.0
            try:
                await outlet.recheck_access()
            except MainspringError:
                scope.cancel()
            await outlet.open()


async def _read_body(request: web.Request, seconds: float) -> bytes | web.Response:
    body = bytearray()
    with anyio.move_on_after(seconds) as scope:
        while len(body) <= MAX_REQUEST_BYTES and (piece := await request.content.readany()):
            body += piece
    if scope.cancelled_caught:
        return _error(408, INVALID_REQUEST, f"the request took more than {seconds:g} s")
    if len(body) > MAX_REQUEST_BYTES:
        return _error(
            413, INVALID_REQUEST, f"a request may have at most {MAX_REQUEST_BYTES:,} bytes"
        )
    return bytes(body)


def _error(status: int, code: int, why: str) -> web.Response:
    body = encode_refusal(None, code, why)
    return web.Response(status=status, body=body, content_type="application/json")


def _refusal(message: Message, error: RequestRefused, status: int) -> web.Response:
    body = encode_refusal(message.id, error.code, str(error), error.data)
    return web.Response(status=status, body=body, content_type="application/json")


def _no_session() -> web.Response:
    """The same for a session that does not exist and for one of another caller."""
    return _error(404, INVALID_REQUEST, "there is no such session; send initialize first")
