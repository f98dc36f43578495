"""Forwards one request over its own connection, and its response, cleaned of secrets.

No two requests share a connection to a server, so none can be smuggled in another.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from mainspring.capabilities.network import http1
from mainspring.capabilities.network.http1 import (
    Header,
    Http1Request,
    Http1Response,
    HttpConnection,
    HttpError,
    ProxyLimits,
)
from mainspring.capabilities.network.placeholders import Placeholders
from mainspring.capabilities.network.rules import PORTS, EgressRequest

_INFLATED = 1 << 16  # bytes inflated at once, so that a small body cannot fill the memory
_UNCLEANABLE = (b"accept-encoding", b"range", b"if-range", b"x-ms-range")
"""Headers that ask for a compressed or partial response: a part may have only a part of a
secret."""
_COMPRESSED = frozenset((b"gzip", b"x-gzip", b"deflate"))
CONNECTION_ERRORS = (
    OSError,
    TimeoutError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
)
"""How a connection may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A server whose addresses were resolved and allowed."""

    request: EgressRequest
    addresses: tuple[str, ...]
    trust: ssl.SSLContext | None
    """`None`: without TLS."""

    @property
    def authority(self) -> str:
        is_usual = self.request.port == PORTS[self.request.scheme]
        return self.request.host + ("" if is_usual else f":{self.request.port}")


@asynccontextmanager
async def connect_upstream(
    upstream: Upstream, limits: ProxyLimits
) -> AsyncGenerator[HttpConnection]:
    """Connect to the server.

    Raises:
        HttpError: none of its addresses answers, or its certificate is not for this host.
    """
    stream = await _connect(upstream, limits)
    try:
        yield HttpConnection(stream, limits, is_server=True)
    finally:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 1):
            await anyio.aclose_forcefully(stream)


async def _connect(upstream: Upstream, limits: ProxyLimits) -> ByteStream:
    why = "no answer"
    for address in upstream.addresses:
        try:
            with anyio.fail_after(limits.head_seconds):
                stream = await anyio.connect_tcp(address, upstream.request.port)
                if upstream.trust is None:
                    return stream
                return await _start_tls(stream, upstream.request.host, upstream.trust)
        except ssl.SSLCertVerificationError as error:
            why = f"its certificate is not trusted: {error.verify_message}"
        except CONNECTION_ERRORS as error:
            why = f"no connection: {type(error).__name__}"
    raise HttpError(502, f"{upstream.request.host}: {why}")


async def _start_tls(stream: ByteStream, host: str, trust: ssl.SSLContext) -> ByteStream:
    try:
        return await TLSStream.wrap(
            stream, hostname=host, ssl_context=trust, standard_compatible=False
        )
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


class ProxyExchange:
    """Forwards one request and its response."""

    def __init__(
        self,
        client: HttpConnection,
        request: Http1Request,
        placeholders: Placeholders,
        limits: ProxyLimits,
    ) -> None:
        self._client = client
        self._request = request
        self._placeholders = placeholders
        self._limits = limits
        self._is_whole = True
        self.is_answered = False
        """Whether anything was sent to the client."""
        self.status: int | None = None
        self.credentials: tuple[str, ...] = ()

    async def run(self, upstream: Upstream) -> bool:
        """Forward the request; whether the client's connection can be used again.

        Raises:
            HttpError: the client or the server sent something that cannot be forwarded.
        """
        framing = http1.request_framing(self._request)
        if isinstance(framing, int) and framing > self._limits.request_bytes:
            raise HttpError(413, f"the body is longer than {self._limits.request_bytes} bytes")
        async with connect_upstream(upstream, self._limits) as server:
            try:
                await self._ask(server, upstream, framing)
                response = await self._answer(server)
            except CONNECTION_ERRORS as error:
                raise HttpError(502, f"{upstream.request.host} stopped answering") from error
            self.status = response.status
            return await self._pass_back(server, response)

    async def _ask(
        self, server: HttpConnection, upstream: Upstream, framing: http1.Framing
    ) -> None:
        plain = [(b"Accept-Encoding", b"identity")] if self._placeholders else []
        dropped = {b"host", *(_UNCLEANABLE if self._placeholders else ())}
        headers = list(http1.end_to_end(self._request.headers))
        headers = [header for header in headers if header[0].lower() not in dropped]
        if upstream.trust is not None:
            filled = self._placeholders.fill(upstream.request.host, headers)
            headers, self.credentials = list(filled.headers), filled.names
        own: list[Header] = [
            (b"Host", upstream.authority.encode()),
            *plain,
            (b"Connection", b"close"),
            *_length(framing),
        ]
        target = self._request.target
        if target.startswith("http://"):
            target = http1.absolute_form(target)[1]
        first = f"{self._request.method} {target} HTTP/1.1"
        await server.send(http1.encode_head(first, [*own, *headers]))
        await self._pass_on(server, framing)

    async def _pass_on(self, server: HttpConnection, framing: http1.Framing) -> None:
        if not framing:
            return
        if http1.header_values(self._request.headers, b"expect"):
            await self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self._client.body(framing, max_bytes=self._limits.request_bytes)
        async with aclosing(body):
            async for piece in body:
                try:
                    await server.send(http1.chunk(piece) if framing == "chunked" else piece)
                except CONNECTION_ERRORS:  # the server stopped reading; it may have responded
                    self._is_whole = False
                    return
        if framing == "chunked":
            await server.send(http1.LAST_CHUNK)

    async def _answer(self, server: HttpConnection) -> Http1Response:
        while True:
            head = await server.head(idle_seconds=self._limits.idle_seconds)
            if head is None:
                raise HttpError(502, "the server closed the connection")
            response = http1.parse_response(head, self._limits)
            if response.status == 101:
                raise HttpError(502, "the server switched to another protocol than HTTP")
            if response.status == 206 and self._placeholders:
                raise HttpError(502, "a part of an answer cannot be cleaned of secrets")
            if response.status >= 200:
                return response

    async def _pass_back(self, server: HttpConnection, response: Http1Response) -> bool:
        framing = http1.response_framing(response, self._request.method)
        compression = _content_encoding(response) if self._placeholders else None
        stays = self._is_whole and http1.keeps_alive(self._request)
        headers: list[Header] = [
            (name, self._placeholders.clean(value))
            for name, value in http1.end_to_end(response.headers)
            if self._placeholders.clean(name) == name
            and (compression is None or name.lower() != b"content-encoding")
        ]
        is_changed = bool(self._placeholders)  # its new length is not known yet
        is_chunked = self._request.minor == 1 and (is_changed or not isinstance(framing, int))
        if framing == 0:
            headers += self._length_without_body(response)
        elif is_chunked:
            headers.append((b"Transfer-Encoding", b"chunked"))
        elif isinstance(framing, int) and not is_changed:
            headers.append((b"Content-Length", str(framing).encode()))
        headers.append((b"Connection", b"keep-alive" if stays else b"close"))
        self.is_answered = True
        await self._client.send(http1.encode_head(f"HTTP/1.1 {response.status} ", headers))
        async with aclosing(self._clean_body(server, framing, compression)) as pieces:
            async for piece in pieces:
                if piece:
                    await self._client.send(http1.chunk(piece) if is_chunked else piece)
        if is_chunked and framing != 0:
            await self._client.send(http1.LAST_CHUNK)
        return stays

    async def _clean_body(
        self, server: HttpConnection, framing: http1.Framing, compression: bytes | None
    ) -> AsyncGenerator[bytes]:
        cleaner = self._placeholders.cleaner()
        body = server.body(framing, max_bytes=self._limits.response_bytes)
        decompressed = (
            body if compression is None else _decompress(body, self._limits.response_bytes)
        )
        async with aclosing(body), aclosing(decompressed):
            async for piece in decompressed:
                yield cleaner.feed(piece)
        yield cleaner.end()

    def _length_without_body(self, response: Http1Response) -> list[Header]:
        """The length header of a response without a body: none, or for HEAD the length that GET
        would have."""
        if response.status in (204, 304):
            return []
        lengths = http1.header_values(response.headers, b"content-length")
        lengths = lengths if self._request.method == "HEAD" else [b"0"]
        return [(b"Content-Length", item) for item in lengths]


def _length(framing: http1.Framing) -> Sequence[Header]:
    if framing == "chunked":
        return [(b"Transfer-Encoding", b"chunked")]
    return [(b"Content-Length", str(framing).encode())] if framing else []


def _content_encoding(response: Http1Response) -> bytes | None:
    """The compression of the response; servers may use one although we request none.

    Raises:
        HttpError: it cannot be decompressed here.
    """
    codings = b",".join(http1.header_values(response.headers, b"content-encoding")).strip().lower()
    if codings in (b"", b"identity"):
        return None
    if codings not in _COMPRESSED:
        raise HttpError(502, "the response has a compression that cannot be cleaned of secrets")
    return codings


async def _decompress(compressed: AsyncGenerator[bytes], max_bytes: int) -> AsyncGenerator[bytes]:
    inflate = zlib.decompressobj(wbits=47)  # detects gzip or zlib
    size = 0
    async for piece in compressed:
        while piece:
            try:
                plain = inflate.decompress(piece, _INFLATED)
            except zlib.error as error:
                raise HttpError(502, "the response is not compressed as it says") from error
            piece = inflate.unconsumed_tail
            size += len(plain)
            if size > max_bytes:
                raise HttpError(502, f"the answer is longer than {max_bytes} bytes")
            yield plain
            await anyio.lowlevel.checkpoint()
    yield inflate.flush()
