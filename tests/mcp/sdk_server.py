"""A server made with the official SDK. The tests run it with the interpreter of the peers."""
# pyright: basic, reportMissingImports=false, reportMissingTypeStubs=false

import os
import socket
import sys

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image

was_cancelled = anyio.Event()
server = MCPServer("sdk", version="1.2.3", instructions="Echoes.", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(ctx: Context, to: int) -> str:
    """Count, and report it."""
    for n in range(to):
        await ctx.report_progress(n, to, f"step {n}")
    return "done"


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=b"\x89PNG\r\n", format="png")


@server.tool()
def fail() -> str:
    """Never works."""
    raise ValueError("no luck")


@server.tool()
async def wait(ctx: Context) -> str:
    """Report that it began, and wait to be cancelled."""
    await ctx.report_progress(0)
    try:
        await anyio.sleep(600)
    finally:
        was_cancelled.set()
    return "never"


@server.tool()
async def cancelled() -> str:
    """Say when `wait` was cancelled."""
    await was_cancelled.wait()
    return "yes"


@server.tool()
def die() -> str:
    """End the process in the middle of a call."""
    sys.stderr.write("I am dying\n")
    sys.stderr.flush()
    os._exit(3)


@server.resource("note://one")
def note() -> str:
    """A note."""
    return "one"


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Say hello to {name}."


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        listener = socket.create_server(("127.0.0.1", 0))
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        app = server.streamable_http_app()
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
    else:
        server.run()
