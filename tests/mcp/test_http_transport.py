"""Streamable HTTP: what the transport does about refusals, lost sessions and odd answers."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias, cast

import anyio
import anyio.lowlevel
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.mcp.peers import http_client
from tests.mcp.scripted_server import DISCOVERED, INITIALIZED, Fields, error, result

from mainspring.capabilities.mcp.protocol.client import ClientLimits, InputHandler, McpClient
from mainspring.capabilities.mcp.tools import tool_result
from mainspring.core.content import plain_text
from mainspring.core.errors import McpFailed

Respond: TypeAlias = Callable[[web.Request, Fields], Awaitable[web.StreamResponse]]


def answer(message: Fields, **fields: object) -> web.Response:
    return web.json_response(result(message, resultType="complete", **fields))


@asynccontextmanager
async def open_client(
    respond: Respond,
    *,
    is_modern: bool = True,
    limits: ClientLimits | None = None,
    input_handler: InputHandler | None = None,
    capabilities: Mapping[str, object] | None = None,
) -> AsyncGenerator[tuple[McpClient, list[tuple[web.Request, Fields]]], None]:
    heard: list[tuple[web.Request, Fields]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        message = cast(Fields, msgspec.json.decode(await request.read() or b"{}"))
        heard.append((request, message))
        match message.get("method"):
            case "server/discover" if is_modern:
                known = {**DISCOVERED, "capabilities": capabilities or {}}
                return web.json_response(result(message, **known))
            case "server/discover":
                return web.Response(status=400)
            case "initialize":
                number = sum(item.get("method") == "initialize" for _, item in heard)
                headers = {"Mcp-Session-Id": f"session-{number}"}
                return web.json_response(result(message, **INITIALIZED), headers=headers)
            case "notifications/initialized" | "notifications/cancelled":
                return web.Response(status=202)
            case None if request.method == "DELETE":
                return web.Response(status=202)
            case _:
                return await respond(request, message)

    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/mcp", handle)
    async with (
        TestServer(app) as server,
        http_client(
            str(server.make_url("/mcp")), limits=limits, input_handler=input_handler
        ) as client,
    ):
        await client.connect()
        yield client, heard


async def test_a_modern_call_has_its_parameters_in_headers() -> None:
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

    async with open_client(respond) as (client, heard):
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


async def test_rate_limited_requests_are_retried() -> None:
    tries: list[int] = []

    async def respond(_: web.Request, message: Fields) -> web.StreamResponse:
        tries.append(1)
        if len(tries) < 4:
            return web.Response(status=429, headers={"Retry-After": "0"})
        return answer(message, content=[])

    async with open_client(respond) as (client, _):
        assert not (await client.call_tool("a", {})).is_error
    assert len(tries) == 4

    async def always(_: web.Request, __: Fields) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "0"})

    async with open_client(always) as (client, heard):
        with pytest.raises(McpFailed, match="refused 5 times"):
            await client.call_tool("a", {})
        assert len(heard) == 1 + 5


async def test_a_session_the_server_has_forgotten_is_started_again() -> None:
    async def respond(request: web.Request, message: Fields) -> web.StreamResponse:
        if request.method == "GET":
            return web.Response(status=405)
        if request.headers["Mcp-Session-Id"] == "session-1":
            return web.Response(status=404)
        return web.json_response(result(message, content=[]))

    async with open_client(respond, is_modern=False) as (client, heard):
        assert (await client.call_tool("a", {})).content == []
        methods = [message.get("method") for _, message in heard]
        assert methods.count("initialize") == 2
        assert methods.count("tools/call") == 2
    assert heard[-1][0].method == "DELETE"
    assert heard[-1][0].headers["Mcp-Session-Id"] == "session-2"


async def test_a_redirect_is_neither_followed_nor_a_reason_to_try_another_era() -> None:
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
async def test_refused_credentials_are_not_a_reason_to_try_another_era(status: int) -> None:
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


async def test_an_error_is_recognized_in_every_format() -> None:
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

    async with open_client(respond) as (client, _):
        for name in answers:
            with pytest.raises(McpFailed) as failed:
                await client.call_tool(name, {})
            is_refused = name in ("rpc", "accepted")
            assert failed.value.is_in_doubt is not is_refused, name
            said = {"body": "quota exceeded", "gateway": "bad gateway", "rpc": "odd"}.get(name, "")
            assert said in str(failed.value)
            assert "<html" not in str(failed.value)


async def test_a_result_marked_as_error_is_a_failed_result() -> None:
    text = [{"type": "text", "text": "no such city"}]

    async def respond(_: web.Request, message: Fields) -> web.StreamResponse:
        return answer(message, content=text, isError=True)

    async with open_client(respond) as (client, _):
        made = tool_result(await client.call_tool("weather", {}))
    assert (made.ok, made.error) == (False, "failed")
    assert plain_text(made.content) == "no such city"


async def test_a_stream_without_an_answer_times_out() -> None:
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
    async with open_client(respond, limits=limits) as (client, _):
        with pytest.raises(McpFailed) as failed:
            await client.call_tool("a", {})
        assert failed.value.is_in_doubt


def stream_of(*events: str) -> web.Response:
    text = "".join(f"{event}\n\n" for event in events)
    return web.Response(text=text, content_type="text/event-stream")


def event_of(message: Fields) -> str:
    return f"data: {msgspec.json.encode(message).decode()}"


async def test_an_interrupted_stream_is_resumed_at_its_last_event() -> None:
    resumed: list[str | None] = []

    async def respond(request: web.Request, message: Fields) -> web.StreamResponse:
        if request.method == "POST":
            call.update(message)
            return stream_of("id: 7\nretry: 0\ndata:", "id: 8\nretry: 1\ndata:")
        resumed.append(request.headers.get("Last-Event-ID"))
        if resumed[-1] is None:
            return web.Response(status=405)
        if resumed[-1] == "8":
            return stream_of("id: 9\ndata:")
        return stream_of(event_of(result(call, content=[])))

    call: Fields = {}
    async with open_client(respond, is_modern=False) as (client, _):
        assert (await client.call_tool("a", {})).content == []
    assert resumed == [None, "8", "9"]


async def test_a_stream_that_cannot_be_resumed_leaves_the_call_in_doubt() -> None:
    async def respond(request: web.Request, _: Fields) -> web.StreamResponse:
        if request.method == "POST":
            return stream_of("id: 7\nretry: 0\ndata:")
        return web.Response(status=405)

    async with open_client(respond, is_modern=False) as (client, _):
        with pytest.raises(McpFailed, match="ended without response") as failed:
            await client.call_tool("a", {})
        assert failed.value.is_in_doubt


async def test_the_event_stream_of_a_legacy_server_is_resumed_after_a_break() -> None:
    opened: list[str | None] = []
    said: list[Fields] = []
    is_answered = anyio.Event()

    class Answers:
        capabilities: Mapping[str, object] = {"roots": {}}

        async def __call__(self, method: str, params: bytes) -> Mapping[str, object]:
            return {"roots": [method]}

    async def respond(request: web.Request, message: Fields) -> web.StreamResponse:
        if request.method == "POST":
            said.append(message)
            is_answered.set()
            return web.Response(status=202)
        opened.append(request.headers.get("Last-Event-ID"))
        if len(opened) == 1:
            changed: Fields = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            return stream_of(f"id: a\nretry: 1\n{event_of(changed)}")
        if len(opened) == 2:
            return stream_of(event_of({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}))
        return web.Response(status=405)

    async with open_client(respond, is_modern=False, input_handler=Answers()) as (client, _):
        await is_answered.wait()
        assert client.has_changed_tools
    assert opened[:2] == [None, "a"]
    assert said == [{"jsonrpc": "2.0", "id": "q", "result": {"roots": ["roots/list"]}}]


async def test_a_modern_server_is_asked_for_change_notifications() -> None:
    asked: list[object] = []

    async def respond(request: web.Request, message: Fields) -> web.StreamResponse:
        asked.append(cast(Fields, message["params"])["notifications"])
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        note: Fields = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        await stream.write(f"{event_of(note)}\n\n{event_of(result(message))}\n\n".encode())
        return stream

    capabilities = {"tools": {"listChanged": True}, "prompts": {"listChanged": False}}
    async with (
        open_client(respond, capabilities=capabilities) as (client, _),
        anyio.create_task_group() as group,
    ):
        group.start_soon(client.listen)
        while not client.has_changed_tools:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert asked == [{"toolsListChanged": True}]


async def test_retry_after_may_be_a_date() -> None:
    tries: list[int] = []

    async def respond(_: web.Request, message: Fields) -> web.StreamResponse:
        tries.append(1)
        if len(tries) == 1:
            now = "Tue, 17 Nov 2026 11:00:00 GMT"
            return web.Response(status=429, headers={"Retry-After": now, "Date": now})
        return answer(message, content=[])

    async with open_client(respond) as (client, _):
        assert not (await client.call_tool("a", {})).is_error
