"""MCP over HTTP and event streams with a hostile server. An attack wins if it ends in anything but
a result or an `McpFailed`, takes longer than the client's limits, reaches another address than the
server's, or puts what the server chose into a header that it may not choose."""

from collections.abc import Mapping

import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.mcp.peers import no_headers
from tests.mcp.scripted_server import Fields
from tests.mcp.test_http_transport import open_client

from mainspring.capabilities.mcp.protocol.client import ClientLimits
from mainspring.capabilities.mcp.transports.http_responses import open_http
from mainspring.capabilities.mcp.transports.sse import open_sse
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.core.errors import McpFailed

LIMITS = ClientLimits(request_seconds=3, call_seconds=3)
DEEP = b"[" * 100_000 + b"]" * 100_000
SSE = "text/event-stream"


def event(data: bytes, *lines: bytes) -> bytes:
    return b"".join(line + b"\n" for line in lines) + b"data: " + data + b"\n\n"


BODIES: dict[str, tuple[bytes, Mapping[str, str]]] = {
    "nested deeply": (DEEP, {}),
    "nested deeply in a result": (b'{"jsonrpc":"2.0","id":1,"result":' + DEEP + b"}", {}),
    "nested deeply in an event": (event(DEEP), {"Content-Type": SSE}),
    "an array of messages": (b"[{},{}]", {}),
    "null": (b"null", {}),
    "no JSON": (b"<html>", {}),
    "another charset": ('{"jsonrpc":"2.0"}'.encode("utf-16"), {"Content-Type": "application/json"}),
    "an unknown charset": (b"{}", {"Content-Type": "application/json; charset=made-up"}),
    "another type": (b"{}", {"Content-Type": "application/xml"}),
    "an image": (b"\x89PNG", {"Content-Type": "image/png"}),
    "twenty megabytes": (b'{"a":"' + b"x" * 20_000_000 + b'"}', {}),
    "an event of twenty megabytes": (b"data: " + b"x" * 20_000_000, {"Content-Type": SSE}),
    "an event without an end": (b"data: {", {"Content-Type": SSE}),
    "events without data": (b"event: x\n\n" * 100_000, {"Content-Type": SSE}),
    "a retry of years": (event(b"{}", b"id: 1", b"retry: 99999999999"), {"Content-Type": SSE}),
    "a negative retry": (event(b"{}", b"id: 1", b"retry: -5"), {"Content-Type": SSE}),
    "a retry that is no number": (event(b"{}", b"retry: \xff\xfe"), {"Content-Type": SSE}),
    "an id with a line break": (event(b"{}", b"id: 1\rX-Evil: 1"), {"Content-Type": SSE}),
    "an id of megabytes": (event(b"{}", b"id: " + b"x" * 2_000_000), {"Content-Type": SSE}),
    "an id with NUL and letters of others": (
        event(b"{}", b"id: \0\xc3\xa9\xf0\x9f\x98\x80"),
        {"Content-Type": SSE},
    ),
    "answers to others": (
        event(b'{"jsonrpc":"2.0","id":999,"result":{}}') * 50,
        {"Content-Type": SSE},
    ),
    "an id that is a list": (b'{"jsonrpc":"2.0","id":[1],"result":{}}', {}),
    "an error that is a text": (b'{"jsonrpc":"2.0","id":1,"error":"no"}', {}),
    "a number too large": (b'{"jsonrpc":"2.0","id":1,"result":{"a":1e99999}}', {}),
    "a session with a line break": (b"{}", {"Mcp-Session-Id": "a b\tc"}),
    "a session of 100 kB": (b"{}", {"Mcp-Session-Id": "s" * 7_000}),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_is_no_answer_is_a_failure_of_the_call(name: str) -> None:
    body, headers = BODIES[name]

    async def respond(_: web.Request, __: Fields) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Type": "application/json", **headers})

    with anyio.fail_after(60):
        async with open_client(respond, limits=LIMITS) as (client, _):
            with pytest.raises(McpFailed) as failed:
                await client.call_tool("x", {})
    assert len(str(failed.value)) < 2_000


STATUSES: dict[str, tuple[int, Mapping[str, str]]] = {
    "a redirect elsewhere": (307, {"Location": "http://169.254.169.254/latest/meta-data"}),
    "a redirect to a file": (302, {"Location": "file:///etc/passwd"}),
    "a permanent redirect": (308, {"Location": "//evil.example/mcp"}),
    "unauthorized, elsewhere": (
        401,
        {"WWW-Authenticate": 'Bearer resource_metadata="http://169.254.169.254/x"'},
    ),
    "a challenge of 7 kB": (401, {"WWW-Authenticate": "Bearer " + 'a="b", ' * 1_000}),
    "a challenge without an end": (401, {"WWW-Authenticate": 'Bearer scope="' + "\\" * 999}),
    "wait for a year": (429, {"Retry-After": "31536000"}),
    "wait until a date far away": (503, {"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}),
    "wait for no time at all": (503, {"Retry-After": "0"}),
    "wait for less": (429, {"Retry-After": "-1"}),
    "wait for a text": (429, {"Retry-After": "soon" * 1_000}),
    "a status of its own": (599, {}),
    "nothing to say": (204, {}),
}


@pytest.mark.parametrize("name", STATUSES)
async def test_a_status_sends_the_client_nowhere_and_does_not_hold_it(name: str) -> None:
    status, headers = STATUSES[name]

    async def respond(_: web.Request, __: Fields) -> web.StreamResponse:
        return web.Response(status=status, headers=headers)

    with anyio.fail_after(60):
        async with open_client(respond, limits=LIMITS) as (client, heard):
            with pytest.raises(McpFailed):
                await client.call_tool("x", {})
            assert 1 <= len([item for _, item in heard if item.get("method") == "tools/call"]) <= 6


ENDPOINTS = {
    "another host": b"http://evil.example/post",
    "another port": b"http://127.0.0.1:1/post",
    "another scheme": b"https://127.0.0.1/post",
    "a host without a scheme": b"//evil.example/post",
    "a file": b"file:///etc/passwd",
    "a user before the host": b"http://127.0.0.1@evil.example/post",
    "a metadata service": b"http://169.254.169.254/latest",
    "no text": b"\xff\xfe\xfd",
    "no URL": b"http://[::1",
    "JSON only": b"{}",
    "nothing": b"",
    "a mailbox": b"mailto:eve@evil.example",
}


@pytest.mark.parametrize("name", ENDPOINTS)
async def test_an_event_stream_cannot_send_messages_elsewhere(name: str) -> None:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(f"{request.method} {request.path}")
        stream = web.StreamResponse(headers={"Content-Type": SSE})
        await stream.prepare(request)
        await stream.write(event(ENDPOINTS[name], b"event: endpoint") * 2)
        return stream

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    with anyio.fail_after(60):
        async with TestServer(app) as server:
            with pytest.raises(McpFailed):
                await open_sse(str(server.make_url("/sse")), open_http(), SseDecoder(), no_headers)
    assert asked == ["GET /sse"]
