"""Server-Sent Events on the wire: frames, heartbeats, and slow readers."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import anyio
from aiohttp import web

from mainspring.core.errors import MainspringError, StoreFailed
from mainspring.edges.api.errors import error_body, http_status
from mainspring.log.task_groups import run_in_background
from mainspring.service.sessions.events.event_streams import StreamMessage

_LOG = logging.getLogger("mainspring.api")
HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # else proxies buffer the stream
}
_CHUNK_BYTES = 64 * 1024  # of events written at once
_SMALL_BYTES = 8 * 1024
"""The size of a chunk that fits into an empty write buffer: writing it never waits."""
_GRACE_SECONDS = 2.0
"""How long sending the error may take when a slow reader is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTiming:
    heartbeat_seconds: float = 15.0
    """Idle time after which a heartbeat is sent."""
    patience_seconds: float = 30.0
    """How long a reader may leave data unread."""


STREAM_TIMING = StreamTiming()


class MessageStream(Protocol):
    """The messages for one reader."""

    is_over: bool

    async def next(self) -> list[StreamMessage]:
        """Wait for the next messages; an empty list after `stop_waiting`, or if it is over."""
        ...

    def stop_waiting(self) -> None: ...


def frame(name: str, data: bytes, seq: int | None = None) -> bytes:
    id_ = b"" if seq is None else b"id: %d\n" % seq
    return b"%sevent: %s\ndata: %s\n\n" % (id_, name.encode(), data)


PING = frame("ping", b'{"type":"ping"}')


async def send_stream(
    request: web.Request,
    stream: MessageStream,
    stream_timing: StreamTiming,
    *,
    check_access: Callable[[], Awaitable[None]],
) -> web.StreamResponse:
    """Send a stream until it is over, or its reader disconnects, is too slow, or loses access: its
    key may have been revoked."""
    response = web.StreamResponse(headers=HEADERS)
    await response.prepare(request)
    writer = _StreamWriter(request, response, stream, stream_timing, check_access)
    try:
        async with run_in_background(writer.beat):
            await writer.write()
    except ConnectionError:  # the reader has disconnected
        pass
    except TimeoutError:
        what = f"the client read nothing for {stream_timing.patience_seconds:g} s"
        await _close_with_error(response, request, _error_frame(408, what))
    except MainspringError as error:
        status = http_status(error)
        if status >= 500:  # internal errors go to the log only
            _LOG.error("a stream was cut off: %s", error)
        what = str(error) if status < 500 else "the log cannot be read at the moment"
        await _close_with_error(response, request, _error_frame(status, what))
    return response


class _StreamWriter:
    """Writes a stream. Once per heartbeat interval, also while events flow, it checks that the
    reader still has access."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        stream: MessageStream,
        stream_timing: StreamTiming,
        check_access: Callable[[], Awaitable[None]],
    ) -> None:
        self._transport = request.transport
        self._response = response
        self._stream = stream
        self._timing = stream_timing
        self._check_access = check_access
        self._checked = self._wrote = time.monotonic()

    async def beat(self) -> None:
        """Make the writer send a heartbeat after each idle interval. One timer for all messages: a
        time limit for each would cost as much as writing it."""
        seconds = self._timing.heartbeat_seconds
        while True:
            idle = time.monotonic() - self._wrote
            await anyio.sleep(seconds - idle if idle < seconds else seconds)
            if time.monotonic() - self._wrote >= seconds:
                self._stream.stop_waiting()

    async def write(self) -> None:
        """Raises: Unauthenticated, Forbidden, NotFound; TimeoutError: the reader is too slow."""
        while not self._stream.is_over:
            messages = await self._stream.next()
            self._wrote = time.monotonic()
            if self._wrote - self._checked >= self._timing.heartbeat_seconds:
                with suppress(StoreFailed):  # checked again the next time
                    await self._check_access()
                self._checked = time.monotonic()
            if not messages and self._stream.is_over:
                break
            for chunk in _chunks(messages) if messages else (PING,):
                await self._send(chunk)

    async def _send(self, chunk: bytes) -> None:
        transport = self._transport
        is_empty = transport is not None and not transport.get_write_buffer_size()
        if is_empty and len(chunk) <= _SMALL_BYTES:
            await self._response.write(chunk)
            return
        with anyio.fail_after(self._timing.patience_seconds):
            await self._response.write(chunk)


def _chunks(messages: Iterable[StreamMessage]) -> Iterator[bytes]:
    """Frames, joined into few writes: a write for each would be expensive."""
    chunk = bytearray()
    for item in messages:
        chunk += frame(item.name, item.data, item.seq)
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _error_frame(status: int, what: str) -> bytes:
    message = f"{what}; nothing is lost: resume with the header Last-Event-ID"
    return frame("error", error_body(status, message, ""))


async def _close_with_error(
    response: web.StreamResponse, request: web.Request, last: bytes
) -> None:
    """Send the reason if possible, then close without waiting for unread data."""
    is_sent = False
    with anyio.move_on_after(_GRACE_SECONDS):
        try:
            await response.write(last)
            await response.write_eof()
            is_sent = True
        except ConnectionError:
            return
    if not is_sent and request.transport is not None:
        request.transport.abort()
