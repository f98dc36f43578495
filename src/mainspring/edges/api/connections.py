"""Sockets and connections of the HTTP server: binding addresses, and limits on how long a client
may take and how much it may send.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from mainspring import error_table
from mainspring.core.errors import InvalidInput

_LOG = logging.getLogger("mainspring.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    head_seconds: float = 10.0
    """How long the head of a request may take to arrive, from the connection or its first byte."""
    idle_seconds: float = 75.0
    """How long a connection may be idle between two requests."""
    unread_bytes: int = 256 * 1024
    """How much of an unread body is discarded after the response, so that a client that sends a
    little too much can read the reason; then the connection is closed."""
    unread_seconds: float = 2.0


async def discard_unread_body(
    request: web.Request, response: web.StreamResponse, limits: ConnectionLimits
) -> None:
    """Respond before the body has been read; discard only a limited part of the rest."""
    if request.transport is None or request.content.is_eof():
        return
    length = request.content_length
    if (length is None or length > limits.unread_bytes) and not response.prepared:
        response.force_close()
    remaining = limits.unread_bytes
    with (
        # the client has disconnected
        suppress(OSError, web.RequestPayloadError, HttpProcessingError),
        anyio.move_on_after(limits.unread_seconds),
    ):
        await response.prepare(request)
        await response.write_eof()
        while remaining > 0 and (piece := await request.content.readany()):
            remaining -= len(piece)


def limited_runner(app: web.Application, limits: ConnectionLimits) -> web.AppRunner:
    return _Runner(
        app,
        access_log=None,
        shutdown_timeout=5.0,
        keepalive_timeout=limits.idle_seconds,
        lingering_time=0,  # `discard_unread_body` does this, limited by bytes
        head_seconds=limits.head_seconds,
    )


class _Connection(web.RequestHandler):
    """A connection that is closed if the head of a request takes too long. The time starts when the
    client connects, and with the first byte after a response."""

    def __init__(self, manager: web.Server, *, head_seconds: float, **more: Any) -> None:  # noqa: ANN401 (aiohttp's own)
        super().__init__(manager, **more)
        self._head_seconds = head_seconds
        self._head_timer: Any = None  # the timer handle of the event loop

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 (aiohttp's own)
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        before = self._request_count
        super().data_received(data)
        if self._request_count > before:
            self._stop_waiting()
        elif self._head_timer is None and not (self._request_in_progress or self._messages):
            self._await_head()

    def log_exception(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 (aiohttp's own)
        """Malformed requests are not logged: they may be long or contain a key."""
        error = more.get("exc_info")
        if isinstance(error, HttpProcessingError):
            _LOG.info("malformed HTTP request: %s", type(error).__name__)
        else:
            super().log_exception(*args, **more)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Server(web.Server):
    @classmethod
    def like(cls, server: web.Server) -> _Server:
        return cls(
            server.request_handler,
            request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation,
            loop=server._loop,
            **server._kwargs,
        )

    def __call__(self) -> _Connection:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Runner(web.AppRunner):
    async def _make_server(self) -> web.Server:
        return _Server.like(await super()._make_server())


async def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Bind one socket for each address of the host. The caller closes them.

    Raises: InvalidInput: the address cannot be listened on.
    """
    sockets: list[socket.socket] = []
    try:
        addresses = await anyio.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            sockets.append(socket.socket(family, kind, protocol))
            _bind_socket(sockets[-1], address)
    except OSError as error:
        for item in sockets:
            item.close()
        if error.errno == errno.EADDRINUSE:
            in_use = error_table.PORT_IN_USE
            raise in_use.error(InvalidInput, host=host, port=port, other=port + 1) from error
        code = error.errno or 0  # negative: an error of the resolver
        why = os.strerror(code) if code > 0 else error.strerror
        raise InvalidInput(f"{host}:{port}: cannot listen on this address: {why}") from error
    return sockets


def _bind_socket(
    listener: socket.socket, address: tuple[str, int] | tuple[str, int, int, int]
) -> None:
    if os.name == "posix":  # a recently used port can be bound again
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:  # IPv4 has its own socket
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(address)
