"""HTTP/1.1 on both sides of the proxy, parsed strictly and within limits.

What two servers could parse differently is refused, not repaired.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, TypeAlias

import anyio
from anyio.abc import ByteStream

Header: TypeAlias = tuple[bytes, bytes]
Framing: TypeAlias = int | Literal["chunked", "until closed"]
"""How the length of a body is determined."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]{1,8192}) HTTP/1\.([01])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[\t ]*([\t\x20-\x7e\x80-\xff]*?)[\t ]*")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?")
_HOP_BY_HOP = frozenset(
    b"connection content-length expect http2-settings keep-alive proxy-authenticate te trailer"
    b" proxy-authorization proxy-connection transfer-encoding upgrade".split()
)
_HOST_PART = re.compile(r"[/?#]")
_PIECE = 1 << 16  # bytes read at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits:
    head_bytes: int = 64 << 10
    headers: int = 100
    request_bytes: int = 256 << 20
    response_bytes: int = 2 << 30
    head_seconds: float = 20.0
    """The limit for receiving a whole head, for a handshake, and for connecting."""
    idle_seconds: float = 60.0
    exchange_seconds: float = 900.0
    connections: int = 64


class HttpError(Exception):
    """A message that cannot be forwarded; `status` is the response to it."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class Http1Request:
    method: str
    target: str
    minor: int
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class Http1Response:
    status: int
    minor: int
    headers: tuple[Header, ...]


class HttpConnection:
    """A connection that is read as heads, lines and bodies."""

    def __init__(self, stream: ByteStream, limits: ProxyLimits, *, is_server: bool = False) -> None:
        self.stream = stream
        self._limits = limits
        self._is_server = is_server
        self._buffer = bytearray()

    async def send(self, content: bytes) -> None:
        with anyio.fail_after(self._limits.idle_seconds):
            await self.stream.send(content)

    async def head(self, *, idle_seconds: float | None = None) -> bytes | None:
        """The lines before the empty line; `None` if the other side closed the connection before
        sending any."""
        if idle_seconds is not None and not self._buffer:
            with anyio.fail_after(idle_seconds):
                if not await self._fill_buffer():
                    return None
        with anyio.fail_after(self._limits.head_seconds):
            while (end := self._buffer.find(b"\r\n\r\n")) < 0:
                if len(self._buffer) > self._limits.head_bytes:
                    raise self._fault(431, "the head is too long")
                if not await self._fill_buffer():
                    if self._buffer:
                        raise self._fault(400, "the head is cut off")
                    return None
        if end > self._limits.head_bytes:
            raise self._fault(431, "the head is too long")
        return self._take(end + 4)[:-4]

    async def body(self, framing: Framing, *, max_bytes: int) -> AsyncGenerator[bytes]:
        """A body in chunks.

        Raises:
            HttpError: it is longer than that, cut off, or invalid.
        """
        if framing == "chunked":
            pieces = self._chunks()
        elif framing == "until closed":
            pieces = self._until_closed()
        else:
            pieces = self._read_exactly(framing)
        size = 0
        async with aclosing(pieces):
            async for piece in pieces:
                size += len(piece)
                if size > max_bytes:
                    raise self._fault(413, f"the body is longer than {max_bytes} bytes")
                yield piece

    async def _read_exactly(self, remaining: int) -> AsyncGenerator[bytes]:
        while remaining:
            piece = await self._read_some(remaining)
            if not piece:
                raise self._fault(400, "the body is cut off")
            remaining -= len(piece)
            yield piece

    async def _until_closed(self) -> AsyncGenerator[bytes]:
        while piece := await self._read_some(_PIECE):
            yield piece

    async def _chunks(self) -> AsyncGenerator[bytes]:
        while True:
            size = _CHUNK.fullmatch(await self._line())
            if size is None:
                raise self._fault(400, "a chunk without a size")
            if not (remaining := int(size[1], 16)):
                break
            async with aclosing(self._read_exactly(remaining)) as pieces:
                async for piece in pieces:
                    yield piece
            if await self._line():
                raise self._fault(400, "a chunk longer than its size")
        for _ in range(self._limits.headers):
            if not await self._line():
                return
        raise self._fault(431, "too many trailers")

    async def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > self._limits.head_bytes or not await self._patiently_more():
                raise self._fault(400, "a line without an end")
        return self._take(end + 2)[:-2]

    async def _read_some(self, limit: int) -> bytes:
        if not self._buffer and not await self._patiently_more():
            return b""
        return self._take(min(limit, len(self._buffer)))

    def _take(self, size: int) -> bytes:
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        return piece

    async def _patiently_more(self) -> bool:
        with anyio.fail_after(self._limits.idle_seconds):
            return await self._fill_buffer()

    async def _fill_buffer(self) -> bool:
        try:
            self._buffer += await self.stream.receive(_PIECE)
        except anyio.EndOfStream:
            return False
        return True

    def _fault(self, status: int, why: str) -> HttpError:
        """The client did not cause a server's error, so the status is then 502."""
        return HttpError(502 if self._is_server else status, why)


def parse_request(head: bytes, limits: ProxyLimits) -> Http1Request:
    """Raises: HttpError."""
    first, *fields = head.split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise HttpError(400, "no request line")
    headers = _headers(fields, limits, status=400)
    return Http1Request(line[1].decode(), line[2].decode(), int(line[3]), headers)


def parse_response(head: bytes, limits: ProxyLimits) -> Http1Response:
    """Raises: HttpError."""
    first, *fields = head.split(b"\r\n")
    line = _STATUS_LINE.fullmatch(first)
    if line is None:
        raise HttpError(502, "no status line")
    return Http1Response(int(line[2]), int(line[1]), _headers(fields, limits, status=502))


def _headers(fields: Sequence[bytes], limits: ProxyLimits, *, status: int) -> tuple[Header, ...]:
    if len(fields) > limits.headers:
        raise HttpError(431 if status == 400 else status, "too many headers")
    headers: list[Header] = []
    for item in fields:
        field = _FIELD.fullmatch(item)  # no folding, no bare CR or LF, no space before the colon
        if field is None:
            raise HttpError(status, "an invalid header")
        headers.append((field[1], field[2]))
    return tuple(headers)


def header_values(headers: Sequence[Header], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


def host_of(request: Http1Request) -> str:
    """Raises: HttpError: it has no host, or more than one."""
    hosts = header_values(request.headers, b"host")
    if len(hosts) != 1:
        raise HttpError(400, "a request names one host")
    return hosts[0].decode("latin-1")


def request_framing(request: Http1Request) -> Framing:
    """Raises: HttpError: the length of the body is ambiguous."""
    framing = _framing(request.headers, request.minor, status=400)
    return 0 if framing is None else framing


def response_framing(response: Http1Response, method: str) -> Framing:
    """Raises: HttpError."""
    framing = _framing(response.headers, response.minor, status=502)
    if method == "HEAD" or response.status in (204, 304):
        return 0
    return "until closed" if framing is None else framing


def _framing(headers: Sequence[Header], minor: int, *, status: int) -> Framing | None:
    lengths = header_values(headers, b"content-length")
    codings = header_values(headers, b"transfer-encoding")
    if codings:
        if lengths or minor == 0 or [coding.lower() for coding in codings] != [b"chunked"]:
            raise HttpError(status, "two lengths of the body, or an unknown encoding")
        return "chunked"
    if not lengths:
        return None
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise HttpError(status, "no length of the body, or several")
    return int(lengths[0])


def end_to_end(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Remove hop-by-hop headers, and those that give the length of the body."""
    dropped = set(_HOP_BY_HOP)
    for value in header_values(headers, b"connection"):
        dropped |= {item.strip().lower() for item in value.split(b",")}
    return tuple(header for header in headers if header[0].lower() not in dropped)


def absolute_form(target: str) -> tuple[str, str]:
    """The host of `http://HOST/PATH?QUERY`, and the path with the query."""
    whole = target.removeprefix("http://")
    host = _HOST_PART.split(whole, maxsplit=1)[0]
    path = whole[len(host) :]
    return host, path if path.startswith("/") else f"/{path}"


def keeps_alive(request: Http1Request) -> bool:
    options = b",".join(header_values(request.headers, b"connection")).lower()
    return request.minor == 1 and b"close" not in options


def encode_head(first: str, headers: Sequence[Header]) -> bytes:
    lines = (first.encode("latin-1"), *(name + b": " + value for name, value in headers))
    return b"\r\n".join((*lines, b"", b""))


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


LAST_CHUNK = b"0\r\n\r\n"
