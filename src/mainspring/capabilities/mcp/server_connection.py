"""The connection to one MCP server during a session: opened on first use, reopened after the server
has ended, closed with the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from mainspring.capabilities.mcp.elicitation import Elicitations, Questions
from mainspring.capabilities.mcp.protocol.client import (
    ClientLimits,
    McpClient,
    Progress,
    ToolList,
)
from mainspring.capabilities.mcp.protocol.era import ServerInfo
from mainspring.capabilities.mcp.protocol.messages import CallResult, Era, Implementation
from mainspring.capabilities.mcp.protocol.transport import Transport
from mainspring.core.errors import McpFailed, ToolEnvironmentError
from mainspring.core.tool import Call

_MAX_BACKOFF_SECONDS = 60.0  # between attempts; a restarted server is back within a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransport:
    transport: Transport
    error_output: Callable[[], Awaitable[str]] | None = None


Opener: TypeAlias = Callable[[], Awaitable[OpenTransport]]
"""Raises: ToolEnvironmentError."""


class ServerConnection:
    """`group` must outlive the connection. `era`: the server's era, if known."""

    def __init__(
        self,
        opener: Opener,
        group: TaskGroup,
        *,
        implementation: Implementation,
        era: Era | None = None,
        elicitations: Elicitations | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        self._opener = opener
        self._group = group
        self._implementation = implementation
        self._elicitations = elicitations
        self._limits = limits
        self._connecting = anyio.Lock()
        self._client: McpClient | None = None
        self._opened: OpenTransport | None = None
        self._scopes: list[CancelScope] = []
        self._era: Era | None = era
        self._failures = 0
        self._retry_at = 0.0
        self._is_closed = False
        self.info: ServerInfo | None = None
        self.error: str | None = None
        """The reason why there is no connection."""
        self.needs_auth = False
        """Whether there is none because the server refuses the credentials."""
        self.error_output = ""
        """The server's standard error output before it failed."""

    async def client(self) -> McpClient:
        """The connected client.

        Raises:
            McpFailed: there is no connection.
        """
        async with self._connecting:
            if self._client is not None and not self._has_ended():
                return self._client
            await self._drop()
            if self._is_closed:
                raise McpFailed("the session has ended")
            if self.error is not None and anyio.current_time() < self._retry_at:
                raise McpFailed(f"not connected: {self.error}", needs_auth=self.needs_auth)
            try:
                self._client = await self._connect()
            except ToolEnvironmentError as error:
                self.needs_auth = isinstance(error, McpFailed) and error.needs_auth
                await self._note_failure(str(error))
                raise McpFailed(f"not connected: {error}", needs_auth=self.needs_auth) from error
            self.error, self.needs_auth, self._failures = None, False, 0
            return self._client

    @property
    def has_changed_tools(self) -> bool:
        """Whether the server has announced a change since its tools were last listed."""
        return self._client is not None and self._client.has_changed_tools

    async def list_tools(self) -> ToolList:
        """Raises: McpFailed."""
        return await (await self.client()).list_tools()

    async def call(self, call: Call, name: str, progress: Progress) -> CallResult | Questions:
        """The result, or questions that a person must answer first; then the same call is made
        again.

        Raises: McpFailed.
        """
        client = await self.client()
        if self._elicitations is None:
            return await client.call_tool(name, call.input, progress=progress)
        return await self._elicitations.run(
            call,
            lambda show, rounds: client.call_tool(name, call.input, progress=show, rounds=rounds),
            progress,
        )

    async def reconnect(self) -> None:
        """Raises: McpFailed."""
        async with self._connecting:
            await self._drop()
            self.error, self._failures = None, 0
        (await self.client()).has_changed_tools = True

    async def aclose(self) -> None:
        self._is_closed = True
        with CancelScope(shield=True):
            async with self._connecting:
                await self._drop()

    def _has_ended(self) -> bool:
        return self._opened is not None and self._opened.transport.end is not None

    async def _connect(self) -> McpClient:
        """Connect. If a modern request ends the server, a legacy one is tried. If a known legacy
        server refuses, its era is found again."""
        try:
            return await self._open()
        except McpFailed as error:
            is_probed = self._era is None and self._has_ended()
            is_refused = self._era == "legacy" and error.code is not None
            if not is_probed and not is_refused:
                raise
        await self._drop()
        self._era = "legacy" if is_probed else None
        return await self._open()

    async def _open(self) -> McpClient:
        connection = self._opened = await self._opener()
        self._start(connection.transport.run)
        client = McpClient(
            connection.transport,
            implementation=self._implementation,
            era=self._era,
            input_handler=self._elicitations,
            limits=self._limits,
        )
        self.info = await client.connect()
        self._era = self.info.era
        self._start(client.listen)
        return client

    def _start(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run a function in the background until the connection is dropped."""
        scope = CancelScope()
        self._scopes.append(scope)

        async def run() -> None:
            with scope:
                await function()

        self._group.start_soon(run)

    async def _note_failure(self, why: str) -> None:
        if self._opened is not None and self._opened.error_output is not None:
            with CancelScope(shield=True), anyio.move_on_after(5):
                self.error_output = await self._opened.error_output()
        await self._drop()
        self.error = why
        self._failures += 1
        pause = min(_MAX_BACKOFF_SECONDS, 2.0**self._failures)
        self._retry_at = anyio.current_time() + pause

    async def _drop(self) -> None:
        self._client = None
        if (connection := self._opened) is not None:
            self._opened = None
            await connection.transport.aclose()
        while self._scopes:
            self._scopes.pop().cancel()
