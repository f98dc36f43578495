"""Calls of MCP tools over stdio and HTTP: what one costs us, beside the official SDK's client."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from report import Measure, median, note

from mainspring.capabilities.mcp.protocol.client import McpClient
from mainspring.capabilities.mcp.protocol.messages import Implementation
from mainspring.capabilities.mcp.protocol.transport import Transport
from mainspring.capabilities.mcp.transports.channel import ChannelTransport, LineChannel
from mainspring.capabilities.mcp.transports.http import HttpTransport
from mainspring.capabilities.mcp.transports.http_responses import open_http
from mainspring.capabilities.providers.sse_decoder import SseDecoder

CALLS = 300
ROUNDS = 5
SERVER = [sys.executable, str(Path(__file__).with_name("mcp_echo.py"))]
PYTHON = Path(sys.prefix) / "peers/python/bin/python"
SDK_CLIENT = """
import sys, time, anyio
from mcp import Client, StdioServerParameters

async def main(calls, target):
    is_url = target[0].startswith("http")
    server = target[0] if is_url else StdioServerParameters(command=target[0], args=target[1:])
    async with Client(server) as client:
        for count in (20, calls):
            begun = time.process_time()
            for number in range(count):
                await client.call_tool("echo", {"text": "hello", "number": number})
        print((time.process_time() - begun) / calls * 1000)

anyio.run(main, int(sys.argv[1]), sys.argv[2:])
"""


async def measure() -> list[Measure]:
    if not PYTHON.exists():
        note("the official SDK is not here: run `make peers`")
        return []
    async with _serving() as url:
        return [
            await _compare("stdio", SERVER, _own_stdio),
            await _compare("HTTP", [url], lambda: _own_http(url)),
        ]


async def _compare(
    name: str, target: list[str], own_call: Callable[[], Awaitable[float]]
) -> Measure:
    own: list[float] = []
    sdk: list[float] = []
    for _ in range(ROUNDS):  # interleaved: the machine is as busy for both
        own.append(await own_call())
        command = [str(PYTHON), "-c", SDK_CLIENT, str(CALLS), *target]
        sdk.append(float((await anyio.run_process(command, stderr=None)).stdout))
    ratio = median([mine / theirs for mine, theirs in zip(own, sdk, strict=True)])
    detail = f"{median(own):.2f} and {median(sdk):.2f} ms of CPU a call"
    return Measure(
        name=f"a call of an MCP tool over {name}, against the SDK's client",
        value=ratio,
        unit="times",
        target="<= 0.5",
        detail=detail,
    )


class _Program:
    """An `AttachedProgram` without a sandbox."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send(data)

    async def receive(self) -> bytes:
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return b""

    async def error_output(self) -> str:
        return ""

    async def aclose(self) -> None:
        self._process.kill()
        await self._process.aclose()


async def _own_stdio() -> float:
    process = await anyio.open_process(SERVER, stdin=PIPE, stdout=PIPE, stderr=None)
    return await _cpu_ms(ChannelTransport(LineChannel(_Program(process))))


async def _own_http(url: str) -> float:
    async def no_headers() -> dict[str, str]:
        return {}

    transport = HttpTransport(url, open_http(), new_decoder=SseDecoder, make_headers=no_headers)
    return await _cpu_ms(transport)


async def _cpu_ms(transport: Transport) -> float:
    client = McpClient(transport, implementation=Implementation(name="bench", version="0"))
    spent = 0.0
    async with anyio.create_task_group() as group:
        group.start_soon(transport.run)
        await client.connect()
        begun = 0.0
        for count in (20, CALLS):
            begun = time.process_time()
            for number in range(count):
                await client.call_tool("echo", {"text": "hello", "number": number})
        spent = time.process_time() - begun
        await client.aclose()
        group.cancel_scope.cancel()
    return spent / CALLS * 1000


@asynccontextmanager
async def _serving() -> AsyncGenerator[str, None]:
    process = await anyio.open_process([*SERVER, "http"], stdout=PIPE, stderr=None)
    assert process.stdout is not None
    try:
        port = int(await TextReceiveStream(process.stdout).receive())
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.aclose()
