"""A server in this process that says exactly what a test has it say."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias, cast

import anyio
import msgspec
from tests.mcp.peers import running_client

from mainspring.capabilities.mcp.protocol.client import ClientLimits, InputHandler, McpClient
from mainspring.capabilities.mcp.protocol.messages import Era
from mainspring.capabilities.mcp.transports.channel import ChannelTransport, LineChannel

Fields: TypeAlias = dict[str, object]
Respond: TypeAlias = Callable[[Fields], "list[object]"]
"""What the server writes upon a message: bytes as they are, anything else as JSON on a line."""

DISCOVERED: Fields = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
}
INITIALIZED: Fields = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "scripted", "version": "1"},
}


def result(message: Fields, **fields: object) -> Fields:
    return {"jsonrpc": "2.0", "id": message["id"], "result": fields}


def error(message: Fields, code: int, text: str, data: object = None) -> Fields:
    said = {"code": code, "message": text, "data": data}
    return {"jsonrpc": "2.0", "id": message["id"], "error": said}


def modern(respond: Respond) -> Respond:
    """Discovery is answered; the rest is the test's."""

    def both(message: Fields) -> list[object]:
        if message.get("method") == "server/discover":
            return [result(message, **DISCOVERED)]
        return respond(message)

    return both


def legacy(respond: Respond) -> Respond:
    def both(message: Fields) -> list[object]:
        match message.get("method"):
            case "server/discover":
                return [error(message, -32601, "unknown")]
            case "initialize":
                return [result(message, **INITIALIZED)]
            case "notifications/initialized":
                return []
            case _:
                return respond(message)

    return both


class ScriptedProgram:
    """An `AttachedProgram`. It ends after `b""`."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._send, self._receive = anyio.create_memory_object_stream[bytes](100_000)
        self.heard: list[Fields] = []
        self.is_closed = False

    async def send(self, data: bytes) -> None:
        for line in data.splitlines():
            message = cast(Fields, msgspec.json.decode(line))
            self.heard.append(message)
            for item in self._respond(message):
                self.say(item)

    def say(self, item: object) -> None:
        line = item if isinstance(item, bytes) else msgspec.json.encode(item) + b"\n"
        with suppress(anyio.WouldBlock):  # a random server may ask more for every answer it gets
            self._send.send_nowait(line)

    async def receive(self) -> bytes:
        try:
            return await self._receive.receive()
        except anyio.ClosedResourceError:
            return b""

    async def error_output(self) -> str:
        return ""

    async def aclose(self) -> None:
        self.is_closed = True
        self._send.close()
        self._receive.close()

    def methods(self) -> list[object]:
        return [message.get("method") for message in self.heard]


@asynccontextmanager
async def scripted_client(
    respond: Respond,
    *,
    era: Era | None = None,
    limits: ClientLimits | None = None,
    input_handler: InputHandler | None = None,
    max_bytes: int = 1 << 20,
) -> AsyncGenerator[tuple[McpClient, ScriptedProgram], None]:
    program = ScriptedProgram(respond)
    transport = ChannelTransport(LineChannel(program, max_bytes=max_bytes))
    async with running_client(
        transport, era=era, limits=limits, input_handler=input_handler
    ) as client:
        yield client, program


@asynccontextmanager
async def connected_client(
    respond: Respond,
    *,
    limits: ClientLimits | None = None,
    input_handler: InputHandler | None = None,
) -> AsyncGenerator[tuple[McpClient, ScriptedProgram], None]:
    async with scripted_client(respond, limits=limits, input_handler=input_handler) as opened:
        await opened[0].connect()
        yield opened
