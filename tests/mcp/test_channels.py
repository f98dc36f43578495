"""Legacy SSE and WebSockets: the same server behind each."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias, cast

import anyio
import msgspec
import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer
from tests.mcp.peers import no_headers, running_client
from tests.mcp.scripted_server import Fields, legacy, result

from mainspring.capabilities.mcp.transports.channel import Channel, ChannelTransport
from mainspring.capabilities.mcp.transports.http_responses import open_http
from mainspring.capabilities.mcp.transports.sse import open_sse
from mainspring.capabilities.mcp.transports.websocket import open_websocket
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.core.errors import McpFailed

OpenChannel: TypeAlias = Callable[[], AbstractAsyncContextManager[Channel]]


@legacy
def respond(message: Fields) -> list[object]:
    if message["method"] == "tools/list":
        return [result(message, tools=[{"name": "a"}])]
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    return [changed, result(message, content=[{"type": "text", "text": "x" * 100_000}])]


def answers(data: bytes) -> list[bytes]:
    message = cast(Fields, msgspec.json.decode(data))
    return [msgspec.json.encode(item) for item in respond(message)]


@asynccontextmanager
async def over_sse(endpoint: str = "/messages?session=1") -> AsyncGenerator[Channel, None]:
    send, receive = anyio.create_memory_object_stream[bytes](100)

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f": hello\n\nevent: endpoint\ndata: {endpoint}\n\n".encode())
        async for item in receive:
            await response.write(b"event: message\ndata: " + item + b"\n\n")
        return response

    async def post(request: web.Request) -> web.StreamResponse:
        assert request.query["session"] == "1"
        for item in answers(await request.read()):
            send.send_nowait(item)
        return web.Response(status=202)

    app = web.Application()
    app.router.add_get("/sse", stream)
    app.router.add_post("/messages", post)
    async with TestServer(app) as server:
        url = str(server.make_url("/sse"))
        try:
            yield await open_sse(url, open_http(), SseDecoder(), no_headers)
        finally:
            send.close()
            receive.close()


@asynccontextmanager
async def over_websocket() -> AsyncGenerator[Channel, None]:
    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("mcp",))
        await socket.prepare(request)
        async for frame in socket:
            assert frame.type is WSMsgType.TEXT
            for item in answers(frame.data.encode()):
                await socket.send_str(item.decode())
        return socket

    app = web.Application()
    app.router.add_get("/ws", handle)
    async with TestServer(app) as server:
        yield await open_websocket(str(server.make_url("/ws")), open_http(), no_headers)


@pytest.mark.parametrize("open_channel", [over_sse, over_websocket])
async def test_a_server_is_used_over_every_channel(open_channel: OpenChannel) -> None:
    async with open_channel() as channel, running_client(ChannelTransport(channel)) as client:
        assert (await client.connect()).era == "legacy"
        assert [tool.name for tool in (await client.list_tools()).tools] == ["a"]
        [content] = (await client.call_tool("a", {})).content
        assert len(bytes(content)) > 100_000
        assert client.has_changed_tools
        await client.aclose()
        with pytest.raises(McpFailed):
            await client.list_tools()


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("http://127.0.0.1:1/steal?session=1", "another host"),
        ("//elsewhere.example/?session=1", "another host"),
        ("http://[", "not a URL"),
    ],
)
async def test_a_server_cannot_have_messages_sent_to_another_host(endpoint: str, why: str) -> None:
    with pytest.raises(McpFailed, match=why):
        async with over_sse(endpoint):
            pass


@pytest.mark.parametrize("status", [302, 404])
async def test_a_refused_or_redirected_channel_is_an_error(status: int) -> None:
    heard: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        heard.append(request.path)
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    async with TestServer(app) as server:
        url = str(server.make_url("/mcp"))
        with pytest.raises(McpFailed):
            await open_sse(url, open_http(), SseDecoder(), no_headers)
        with pytest.raises(McpFailed):
            await open_websocket(url, open_http(), no_headers)
    assert heard == ["/mcp", "/mcp"]
