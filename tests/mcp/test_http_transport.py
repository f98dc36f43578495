"""Streamable HTTP: what the transport does about refusals, lost sessions and odd answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias, cast

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.mcp.peers import http_client
from tests.mcp.scripted_server import DISCOVERED, INITIALIZED, Fields, error, result

from mainspring.capabilities.mcp.client import ClientLimits, McpClient
from mainspring.core.errors import McpFailed

Respond: TypeAlias = Callable[[web.Request, Fields], Awaitable[web.StreamResponse]]


def answer(message: Fields, **fields: object) -> web.Response:
    return web.json_response(result(message, resultType="complete", **fields))


@asynccontextmanager
async def connected(
    respond: Respond, *, is_modern: bool = True, limits: ClientLimits | None = None
) -> AsyncGenerator[tuple[McpClient, list[tuple[web.Request, Fields]]], None]:
    heard: list[tuple[web.Request, Fields]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        message = cast(Fields, msgspec.json.decode(await request.read() or b"{}"))
        heard.append((request, message))
        match message.get("method"):
            case "server/discover" if is_modern:
                return web.json_response(result(message, **DISCOVERED))
            case "server/discover":
                return web.Response(status=400)
            case "initialize":
                number = sum(item.get("method") == "initialize" for _, item in heard)
                headers = {"Mcp-Session-Id": f"session-{number}"}
                return web.json_response(result(message, **INITIALIZED), headers=headers)
            case "notifications/initialized" | "notifications/cancelled" | None:
                return web.Response(status=202)
            case _:
                return await respond(request, message)

    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/mcp", handle)
    async with (
        TestServer(app) as server,
        http_client(str(server.make_url("/mcp")), limits=limits) as client,
    ):
        await client.connect()
        yield client, heard


async def test_a_modern_call_is_mirrored_in_its_headers() -> None:
    schema = {
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}},
            "absent": {"type": "string", "x-mcp-header": "Absent"},
        }
    }

    async def respond(_: web.Request, message: Fields) -> web.StreamResponse:
        if message["method"] == "tools/list":
            return answer(message, tools=[{"name": "grüße", "inputSchema": schema}])
        return answer(message, content=[])

    async with connected(respond) as (client, heard):
        await client.list_tools()
        await client.call_tool("grüße", {"region": " padded ", "deep": {"on": True}})
    headers = heard[-1][0].headers
    assert headers["MCP-Protocol-Version"] == "2026-07-28"
    assert headers["Mcp-Method"] == "tools/call"
    assert headers["Mcp-Name"] == "=?base64?Z3LDvMOfZQ==?="
    assert headers["Mcp-Param-Region"] == "=?base64?IHBhZGRlZCA=?="
    assert headers["Mcp-Param-On"] == "true"
    assert "Mcp-Param-Absent" not in headers
    assert "Mcp-Session-Id" not in headers


async def test_too_many_requests_are_repeated_before_anybody_hears_of_it() -> None:
    tries: list[int] = []

    async def respond(_: web.Request, message: Fields) -> web.StreamResponse:
        tries.append(1)
        if len(tries) < 4:
            return web.Response(status=429, headers={"Retry-After": "0"})
        return answer(message, content=[])

    async with connected(respond) as (client, _):
        assert not (await client.call_tool("a", {})).is_error
    assert len(tries) == 4

    async def always(_: web.Request, __: Fields) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "0"})

    async with connected(always) as (client, heard):
        with pytest.raises(McpFailed, match="refused 5 times"):
            await client.call_tool("a", {})
        assert len(heard) == 1 + 5


async def test_a_session_that_the_server_has_forgotten_is_begun_anew() -> None:
    async def respond(request: web.Request, message: Fields) -> web.StreamResponse:
        if request.headers["Mcp-Session-Id"] == "session-1":
            return web.Response(status=404)
        return web.json_response(result(message, content=[]))

    async with connected(respond, is_modern=False) as (client, heard):
        assert (await client.call_tool("a", {})).content == []
        methods = [message.get("method") for _, message in heard]
        assert methods.count("initialize") == 2
        assert methods.count("tools/call") == 2
    assert heard[-1][0].method == "DELETE"
    assert heard[-1][0].headers["Mcp-Session-Id"] == "session-2"


async def test_a_redirect_is_not_followed_and_is_no_reason_to_try_another_era() -> None:
    elsewhere: list[web.Request] = []

    async def redirect(_: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("/stolen")

    async def stolen(request: web.Request) -> web.StreamResponse:
        elsewhere.append(request)
        return web.Response()

    app = web.Application()
    app.router.add_post("/mcp", redirect)
    app.router.add_post("/stolen", stolen)
    async with TestServer(app) as server, http_client(str(server.make_url("/mcp"))) as client:
        with pytest.raises(McpFailed, match="redirects are not followed"):
            await client.connect()
    assert not elsewhere


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_no_reason_to_try_another_era(status: int) -> None:
    heard: list[web.Request] = []

    async def refuse(request: web.Request) -> web.StreamResponse:
        heard.append(request)
        return web.Response(status=status)

    app = web.Application()
    app.router.add_post("/mcp", refuse)
    async with TestServer(app) as server, http_client(str(server.make_url("/mcp"))) as client:
        with pytest.raises(McpFailed, match="does not accept the credentials"):
            await client.connect()
    assert len(heard) == 1


async def test_an_error_is_an_error_however_it_is_sent() -> None:
    answers: dict[str, web.Response | Callable[[Fields], web.Response]] = {
        "body": web.json_response({"error": "quota exceeded"}),
        "html": web.Response(text="<html>busy</html>", content_type="text/html"),
        "empty": web.Response(),
        "accepted": web.Response(status=202),
        "foreign": web.json_response({"jsonrpc": "2.0", "id": 777, "result": {}}),
        "gateway": web.Response(status=502, text="bad gateway"),
        "rpc": lambda message: web.json_response(error(message, -32602, "odd"), status=400),
        "stream": web.Response(text=": bye\n\n", content_type="text/event-stream"),
        "large": web.Response(body=b"x" * (17 << 20)),
        "compressed": web.Response(body=b"x" * (17 << 20), zlib_executor_size=1 << 30),
    }
    compressed = answers["compressed"]
    assert isinstance(compressed, web.Response)
    compressed.enable_compression()

    async def respond(_: web.Request, message: Fields) -> web.StreamResponse:
        name = str(cast(Fields, message["params"])["name"])
        found = answers[name]
        return found if isinstance(found, web.Response) else found(message)

    async with connected(respond) as (client, _):
        for name in answers:
            with pytest.raises(McpFailed) as failed:
                await client.call_tool(name, {})
            is_refused = name in ("rpc", "accepted")
            assert failed.value.is_in_doubt is not is_refused, name


async def test_a_stream_that_never_answers_ends_at_the_time_limit() -> None:
    ended: list[bool] = []

    async def respond(request: web.Request, _: Fields) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        note = b'data: {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}\n\n'
        try:
            while True:
                await stream.write(note * 100)
        finally:
            ended.append(True)

    limits = ClientLimits(call_seconds=0.3)
    async with connected(respond, limits=limits) as (client, _):
        with pytest.raises(McpFailed) as failed:
            await client.call_tool("a", {})
        assert failed.value.is_in_doubt
