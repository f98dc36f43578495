"""What a connection may cost before anybody knows whose it is: slow heads, bodies without end."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import SocketStream
from msgspec import Struct
from tests.api.api_server import Tags

from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.connections import ConnectionLimits
from mainspring.edges.api.route import ApiCall, Empty, Route

HASTY = ConnectionLimits(head_seconds=0.2)
SHORT = ConnectionLimits(head_seconds=1.0)
STRICT = ConnectionLimits(unread_bytes=100_000, unread_seconds=30)
CHUNK = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
WITH_KEY = b"x-api-key: acme:user\r\n"


class Reply(Struct, frozen=True, kw_only=True):
    text: str = ""


async def _answer(_call: ApiCall[Empty, Reply]) -> Reply:
    return Reply(text="done")


@asynccontextmanager
async def run_server(limits: ConnectionLimits) -> AsyncGenerator[tuple[str, int]]:
    route = Route(
        method="POST",
        path="/v1/things",
        handle=_answer,
        summary="s",
        body=Reply,
        response_type=Reply,
    )
    app = Api([route], access_control=Tags(), limits=limits).application()
    async with http_server(app, limits=limits) as url:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        yield parts.hostname, parts.port


@asynccontextmanager
async def open_connection(limits: ConnectionLimits) -> AsyncGenerator[SocketStream]:
    async with run_server(limits) as (host, port):
        with anyio.fail_after(60):
            async with await anyio.connect_tcp(host, port) as stream:
                yield stream


async def read_all(stream: SocketStream) -> bytes:
    """What comes until the server ends the connection."""
    got = b""
    try:
        while True:
            got += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return got


async def read_response(stream: SocketStream) -> bytes:
    """One answer with its body."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += await stream.receive()
    head, _, body = got.partition(b"\r\n\r\n")
    [length] = [
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    ]
    while len(body) < length:
        body += await stream.receive()
    return head


async def flood(stream: SocketStream) -> int:
    """How much of a body could be sent until the server ended the connection."""
    sent = 0
    try:
        while sent < 50_000_000:
            await stream.send(CHUNK)
            sent += len(CHUNK)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    return sent


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST", b"POST /v1/things HTTP/1.1\r\nhost: x\r\nx-a: ", b"\r\n"],
    ids=["nothing", "a method", "half a head", "an empty line"],
)
async def test_an_incomplete_request_head_times_out(sent: bytes):
    async with open_connection(HASTY) as stream:
        if sent:
            await stream.send(sent)
        assert await read_all(stream) == b""


async def test_a_head_sent_byte_by_byte_times_out_too():
    async with run_server(HASTY) as (host, port), anyio.create_task_group() as group:

        async def drip(stream: SocketStream) -> None:
            with anyio.CancelScope(), anyio.fail_after(60):
                try:
                    while True:
                        await stream.send(b"x")
                        await anyio.lowlevel.checkpoint()
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

        with anyio.fail_after(60):
            async with await anyio.connect_tcp(host, port) as stream:
                await stream.send(b"POST /v1/things HTTP/1.1\r\n")
                group.start_soon(drip, stream)
                await read_all(stream)


async def test_the_second_head_of_a_connection_is_timed_from_its_first_byte():
    async with open_connection(SHORT) as stream:
        head = b"POST /v1/things HTTP/1.1\r\nhost: x\r\n" + WITH_KEY
        await stream.send(head + b"content-length: 2\r\n\r\n{}")
        assert b"200 OK" in await read_response(stream)
        await stream.send(b"POST /v1/th")
        assert await read_all(stream) == b""


async def test_a_slow_body_does_not_count_against_the_head_timeout():
    """The time of a head is over when the head is there, however long the body takes."""
    async with open_connection(SHORT) as stream:
        head = b"POST /v1/things HTTP/1.1\r\nhost: x\r\n" + WITH_KEY
        await stream.send(head + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n")
        begun = anyio.current_time()
        while anyio.current_time() < begun + 2 * SHORT.head_seconds:
            await stream.send(b"1\r\n \r\n")
        await stream.send(b"1\r\n}\r\n0\r\n\r\n")
        assert b"200 OK" in await read_response(stream)


@pytest.mark.parametrize("path", ["/v1/things", "/v1/nowhere"])
async def test_after_an_unauthorized_request_little_of_an_endless_body_is_read(path: str):
    async with open_connection(STRICT) as stream:
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        await stream.send(head.encode())
        answer = await read_response(stream)
        assert answer.split(b" ")[1] in (b"401", b"404")
        assert b"connection: close" in answer.lower()
        assert await flood(stream) < 20_000_000  # what the buffers of two sockets hold


async def test_100_continue_is_sent_only_after_authentication():
    async with run_server(STRICT) as (host, port):
        with anyio.fail_after(60):
            async with await anyio.connect_tcp(host, port) as stream:
                head = b"POST /v1/things HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
                await stream.send(head + b"content-length: 2\r\n\r\n")
                assert (await read_response(stream)).startswith(b"HTTP/1.1 401")
            async with await anyio.connect_tcp(host, port) as stream:
                await stream.send(head + WITH_KEY + b"content-length: 2\r\n\r\n")
                assert (await stream.receive()).startswith(b"HTTP/1.1 100")
                await stream.send(b"{}")
                assert b"200 OK" in await read_response(stream)


async def test_a_connection_stays_usable_after_a_refused_small_body():
    async with open_connection(STRICT) as stream:
        head = b"POST /v1/things HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n"
        await stream.send(head + b"\r\n{}")
        assert b" 401 " in await read_response(stream)
        await stream.send(head + WITH_KEY + b"\r\n{}")
        assert b"200 OK" in await read_response(stream)


async def test_too_many_headers_are_refused():
    async with open_connection(ConnectionLimits()) as stream:
        many = b"".join(b"x-%d: y\r\n" % number for number in range(500))
        await stream.send(b"POST /v1/things HTTP/1.1\r\nhost: x\r\n" + many + b"\r\n")
        assert b" 400 " in await read_all(stream)


UPGRADE = b"GET /v1/things HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/things HTTP/1.1\r\nhost: x\r\nx-api-key sk-secret\r\n\r\n",
        b"sk-secret\r\n\r\n",
        UPGRADE + b"sk-secret" * 1000,
    ],
)
async def test_malformed_requests_are_not_copied_into_the_log(
    sent: bytes, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    async with run_server(HASTY) as (host, port), await anyio.connect_tcp(host, port) as stream:
        await stream.send(sent)
        with anyio.fail_after(60):
            assert b" 400 Bad Request" in await read_all(stream)
    assert "sk-secret" not in caplog.text
