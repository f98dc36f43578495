"""The connection to one MCP server over the life of a session: made when it is first needed, made
again after the server has ended, ended with the session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from mainspring.capabilities.mcp.client import (
    ClientLimits,
    InputHandler,
    McpClient,
    Progress,
    ServerInfo,
    ToolList,
)
from mainspring.capabilities.mcp.messages import CallResult, Era, Implementation
from mainspring.capabilities.mcp.transport import Transport
from mainspring.core.errors import McpFailed, ToolEnvironmentError

_MAX_BACKOFF_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransport:
    transport: Transport
    run: Callable[[], Awaitable[None]] | None = None
    """What has to go on as long as it is used."""
    is_ended: Callable[[], bool] = lambda: False
    error_output: Callable[[], Awaitable[str]] | None = None


Opener: TypeAlias = Callable[[], Awaitable[OpenTransport]]
"""Raises: ToolEnvironmentError."""


class ServerConnection:
    """`group` has to outlive the connection."""

    def __init__(
        self,
        opener: Opener,
        group: TaskGroup,
        *,
        implementation: Implementation,
        call_seconds: float | None = None,
        input_handler: InputHandler | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        self._opener = opener
        self._group = group
        self._implementation = implementation
        self._call_seconds = call_seconds
        self._input_handler = input_handler
        self._limits = limits
        self._connecting = anyio.Lock()
        self._client: McpClient | None = None
        self._opened: OpenTransport | None = None
        self._scope = CancelScope()
        self._era: Era | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._is_closed = False
        self.info: ServerInfo | None = None
        self.error: str | None = None
        """Why there is no connection."""
        self.error_output = ""
        """What the server wrote to its standard error output before it failed."""

    async def client(self) -> McpClient:
        """
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
                raise McpFailed(f"not connected: {self.error}")
            try:
                self._client = await self._connect()
            except ToolEnvironmentError as error:
                await self._note_failure(str(error))
                raise McpFailed(f"not connected: {error}") from error
            self.error, self._failures = None, 0
            return self._client

    async def list_tools(self) -> ToolList:
        """Raises: McpFailed."""
        return await (await self.client()).list_tools()

    async def call(
        self, name: str, arguments: Mapping[str, object], progress: Progress
    ) -> CallResult:
        """Raises: McpFailed."""
        client = await self.client()
        return await client.call_tool(
            name, arguments, seconds=self._call_seconds, progress=progress
        )

    async def aclose(self) -> None:
        self._is_closed = True
        with CancelScope(shield=True):
            async with self._connecting:
                await self._drop()

    def _has_ended(self) -> bool:
        return self._opened is not None and self._opened.is_ended()

    async def _connect(self) -> McpClient:
        """A server that dies of a request of the modern era is asked again without one."""
        try:
            return await self._open()
        except McpFailed:
            is_probed = self._era is None and self._has_ended()
            if not is_probed:
                raise
        await self._drop()
        self._era = "legacy"
        return await self._open()

    async def _open(self) -> McpClient:
        opened = self._opened = await self._opener()
        self._scope = scope = CancelScope()
        if opened.run is not None:
            run = opened.run

            async def keep_running() -> None:
                with scope:
                    await run()

            self._group.start_soon(keep_running)
        client = McpClient(
            opened.transport,
            implementation=self._implementation,
            era=self._era,
            input_handler=self._input_handler,
            limits=self._limits,
        )
        self.info = await client.connect()
        self._era = self.info.era
        return client

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
        if (opened := self._opened) is not None:
            self._opened = None
            await opened.transport.aclose()
            self._scope.cancel()
