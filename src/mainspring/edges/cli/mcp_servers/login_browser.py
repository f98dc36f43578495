"""Logs a person in to an MCP server: in a browser on this machine, in a browser elsewhere whose
last address the person copies, or with a device code. Also asks for the inputs of a server.
"""

from __future__ import annotations

import getpass
import re
import sys
import webbrowser
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import Listener, SocketAttribute, SocketStream

from mainspring.capabilities.mcp.login.oauth_device import DeviceScreen
from mainspring.capabilities.mcp.protocol.foreign_text import clean_line
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput, McpFailed
from mainspring.edges.cli.render.printing import Screen
from mainspring.runtime.agent_folder.mcp_inputs import store_input
from mainspring.runtime.mcp_server import McpServer, ServerInput
from mainspring.wiring import mcp_servers
from mainspring.wiring.user_vault import user_vault

_SECONDS = 600.0  # for a person to log in
_MAX_REQUEST_BYTES = 16 << 10  # of the browser's request that brings the code
_REQUEST_SECONDS = 10.0  # for that request to arrive
_REQUEST = re.compile(rb"GET (/callback\?[\x21-\x7e]*) HTTP/1\.[01]\r\n")
_PAGE = b"<!doctype html><title>Mainspring</title><p>You can close this page."


@dataclass(frozen=True, slots=True)
class LoopbackBrowser:
    """A `Browser` on this machine, which is redirected to a local port."""

    listener: Listener[SocketStream]
    say: Callable[[str], None]

    @property
    def redirect_uri(self) -> str:
        port = self.listener.extra(SocketAttribute.local_port)
        return f"http://127.0.0.1:{port}/callback"

    async def __call__(self, url: str) -> str:
        self.say(f"Open this page and log in:\n{url}")
        await to_thread.run_sync(webbrowser.open, url)
        path = ""
        send, receive = anyio.create_memory_object_stream[str](1)

        async def serve(stream: SocketStream) -> None:
            async with stream:
                if (path := await _requested_path(stream)) is not None:
                    send.send_nowait(path)

        try:
            with anyio.fail_after(_SECONDS), send, receive:
                async with anyio.create_task_group() as group:
                    group.start_soon(self.listener.serve, serve)
                    path = await receive.receive()
                    group.cancel_scope.cancel()
        except TimeoutError as error:
            raise McpFailed(f"nobody logged in within {_SECONDS:g} s") from error
        return self.redirect_uri.removesuffix("/callback") + path


@asynccontextmanager
async def open_loopback_browser(say: Callable[[str], None]) -> AsyncGenerator[LoopbackBrowser]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener:
        yield LoopbackBrowser(listener.listeners[0], say)


async def _requested_path(stream: SocketStream) -> str | None:
    """The path of a request to the callback. Answers every request; `None` for any other."""
    content = b""
    with anyio.move_on_after(_REQUEST_SECONDS):
        try:
            while b"\r\n\r\n" not in content and len(content) < _MAX_REQUEST_BYTES:
                content += await stream.receive(_MAX_REQUEST_BYTES)
            match = _REQUEST.match(content)
            status, page = (b"200 OK", _PAGE) if match else (b"404 Not Found", b"")
            head = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\n" % (
                status,
                len(page),
            )
            await stream.send(head + b"Connection: close\r\n\r\n" + page)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return None
        return match[1].decode() if match else None
    return None


@dataclass(frozen=True, slots=True)
class PastingBrowser:
    """A `Browser` on another machine: the person copies the last address."""

    say: Callable[[str], None]
    ask: Callable[[str], str]
    redirect_uri: str = "http://127.0.0.1:8711/callback"
    """Nothing listens there: the browser shows an error page and the address."""

    async def __call__(self, url: str) -> str:
        self.say(f"Open this page in a browser and log in:\n{url}")
        self.say("The browser then shows a page that it cannot open. Copy its address.")
        back = await to_thread.run_sync(self.ask, "Address: ")
        if not back.strip().startswith(self.redirect_uri):
            raise McpFailed(f"that is not an address that begins with {self.redirect_uri}")
        return back.strip()


async def give_inputs(settings: Settings, server: McpServer) -> list[str]:
    """Ask for the inputs of a server that have no value yet, and store them. Returns their ids.

    Raises: InvalidInput: a value cannot be stored, or standard input has ended.
    """
    vault, folder = user_vault(settings), Path(settings.folder)
    for item in server.missing_inputs:
        value = await to_thread.run_sync(_ask_input, item)
        await to_thread.run_sync(store_input, vault, folder, server, item, value)
    return [item.id for item in server.missing_inputs]


def _ask_input(server_input: ServerInput) -> str:
    about = clean_line(server_input.description or server_input.id, 200)
    choices = ", ".join(clean_line(item, 80) for item in server_input.options)
    options = f" ({choices})" if choices else ""
    default = f" [{clean_line(server_input.default, 80)}]" if server_input.default else ""
    try:
        ask = getpass.getpass if server_input.password and sys.stdin.isatty() else input
        value = ask(f"{about}{options}{default}: ").strip() or server_input.default
    except EOFError as error:
        raise InvalidInput(f"{server_input.id}: standard input has ended") from error
    if not value or (server_input.options and value not in server_input.options):
        raise InvalidInput(f"{server_input.id}: choose one of the listed values")
    return value


async def log_in(
    settings: Settings, server: McpServer, *, paste: bool = False, device: bool = False
) -> None:
    """Raises: InvalidInput: the login failed; the message gives the reason."""

    def say(text: str) -> None:
        for line in text.splitlines():
            Screen(settings, stderr=True).line((line, ""))

    try:
        if device:
            await mcp_servers.log_in(settings, server, DeviceScreen(say))
        elif paste:
            await mcp_servers.log_in(settings, server, PastingBrowser(say, input))
        else:
            async with open_loopback_browser(say) as browser:
                await mcp_servers.log_in(settings, server, browser)
    except McpFailed as error:
        raise InvalidInput(f"{server.name}: {error}") from error
