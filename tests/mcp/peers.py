"""Foreign MCP servers that `make peers` installs, and clients connected to them."""

import shutil
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import anyio
import pytest
from anyio.abc import Process

from mainspring.capabilities.mcp.protocol.client import ClientLimits, InputHandler, McpClient
from mainspring.capabilities.mcp.protocol.messages import Era, Implementation
from mainspring.capabilities.mcp.protocol.transport import Transport
from mainspring.capabilities.mcp.transports.channel import ChannelTransport, LineChannel
from mainspring.capabilities.mcp.transports.http import HttpTransport
from mainspring.capabilities.mcp.transports.http_responses import open_http
from mainspring.capabilities.mcp.transports.server_auth import ServerAuth
from mainspring.capabilities.providers.sse_decoder import SseDecoder
from mainspring.log.task_groups import unwrap_single_error

PEERS = Path(sys.prefix) / "peers"
PYTHON = PEERS / "python" / "bin" / "python"
NODE_SERVERS = PEERS / "node" / "node_modules" / "@modelcontextprotocol"
SDK_SERVER = Path(__file__).with_name("sdk_server.py")
NOTES_SERVER = Path(__file__).with_name("notes_server.py")
CLIENT = Implementation(name="mainspring", version="0")

needs_sdk = pytest.mark.skipif(not PYTHON.exists(), reason="the official SDK: run `make peers`")
needs_node_servers = pytest.mark.skipif(
    not NODE_SERVERS.exists() or shutil.which("node") is None, reason="run `make peers`"
)


def node_server(name: str, *args: str) -> list[str]:
    return ["node", str(NODE_SERVERS / f"server-{name}" / "dist" / "index.js"), *args]


class LocalProgram:
    """An `AttachedProgram` without a sandbox."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            await self.process.stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise OSError("closed") from error

    async def receive(self) -> bytes:
        assert self.process.stdout is not None
        try:
            return await self.process.stdout.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return b""

    async def error_output(self) -> str:
        return ""

    async def aclose(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.aclose()


@asynccontextmanager
async def running_client(
    transport: Transport,
    *,
    era: Era | None = None,
    limits: ClientLimits | None = None,
    input_handler: InputHandler | None = None,
    seconds: float = 60,
) -> AsyncGenerator[McpClient, None]:
    """A client whose transport runs; it is not connected yet."""
    client = McpClient(
        transport, implementation=CLIENT, era=era, limits=limits, input_handler=input_handler
    )
    with anyio.fail_after(seconds), unwrap_single_error():
        async with anyio.create_task_group() as group:
            group.start_soon(transport.run)
            try:
                yield client
            finally:
                await client.aclose()
                group.cancel_scope.cancel()


@asynccontextmanager
async def stdio_client(
    command: Sequence[str], *, era: Era | None = None, input_handler: InputHandler | None = None
) -> AsyncGenerator[McpClient, None]:
    process = await anyio.open_process(list(command), stdin=PIPE, stdout=PIPE, stderr=None)
    transport = ChannelTransport(LineChannel(LocalProgram(process)))
    async with running_client(transport, era=era, input_handler=input_handler) as client:
        yield client


async def no_headers() -> dict[str, str]:
    return {}


def http_client(
    url: str,
    *,
    era: Era | None = None,
    limits: ClientLimits | None = None,
    input_handler: InputHandler | None = None,
    auth: ServerAuth | None = None,
) -> AbstractAsyncContextManager[McpClient]:
    transport = HttpTransport(
        url,
        open_http(),
        new_decoder=SseDecoder,
        make_headers=no_headers if auth is None else auth.headers,
        renew=None if auth is None else auth.renew,
    )
    return running_client(transport, era=era, limits=limits, input_handler=input_handler)


@asynccontextmanager
async def sdk_http_server() -> AsyncGenerator[str, None]:
    process = await anyio.open_process([str(PYTHON), str(SDK_SERVER), "http"], stderr=None)
    assert process.stdout is not None
    try:
        with anyio.fail_after(60):
            port = int(await process.stdout.receive())
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        if process.returncode is None:
            process.kill()
        await process.aclose()
