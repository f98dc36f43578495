"""A real HTTP server on the loopback interface that answers with the bytes a test gives it."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import anyio
import anyio.lowlevel
from aiohttp import web

Responder: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

SSE = "text/event-stream"


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes
    port: int

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass
class Loopback:
    url: str
    received: list[Received] = field(default_factory=list[Received])
    responders: list[Responder] = field(default_factory=list[Responder])

    def answers(self, *responders: Responder) -> None:
        """One after the other; the last one stays."""
        self.responders = list(responders)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        peer = cast(
            tuple[str, int], request.transport and request.transport.get_extra_info("peername")
        )
        self.received.append(Received(request.path, headers, await request.read(), peer[1]))
        responder = self.responders.pop(0) if len(self.responders) > 1 else self.responders[0]
        return await responder(request)


@asynccontextmanager
async def serving() -> AsyncGenerator[Loopback]:
    app = web.Application(client_max_size=64 * 1024 * 1024)
    runner = web.AppRunner(app, shutdown_timeout=0.01, access_log=None)
    server = Loopback("")
    app.router.add_route("*", "/{path:.*}", server.handle)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = cast(tuple[str, int], runner.addresses[0][:2])
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


def streams(
    chunks: Iterable[bytes],
    *,
    then: str = "end",
    content_type: str = SSE,
    headers: dict[str, str] | None = None,
) -> Responder:
    """Send the chunks one by one, then `end`, `reset` the connection, or stay `silent`."""
    sent = list(chunks)

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": content_type, **(headers or {})})
        await response.prepare(request)
        for chunk in sent:
            await response.write(chunk)
            await anyio.lowlevel.checkpoint()
        if then == "silent":
            await anyio.sleep_forever()
        if then == "reset":
            assert request.transport is not None
            await anyio.sleep(0.02)
            request.transport.abort()
        return response

    return respond


def says(
    status: int, body: object, *, content_type: str = "application/json", **headers: str
) -> Responder:
    text = body if isinstance(body, str) else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, content_type=content_type, headers=named)

    return respond


def never() -> Responder:
    """Not even headers."""

    async def respond(request: web.Request) -> web.StreamResponse:
        await anyio.sleep_forever()
        raise AssertionError

    return respond


def event(data: object, name: str | None = None) -> bytes:
    named = f"event: {name}\n".encode() if name else b""
    return named + b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"
