"""Finds the protocol era of a server, and its description of itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio
import msgspec
from anyio import CancelScope

from mainspring.capabilities.mcp.protocol import messages
from mainspring.capabilities.mcp.protocol.messages import (
    LEGACY_VERSIONS,
    META,
    MODERN_ERRORS,
    MODERN_VERSIONS,
    Era,
    Implementation,
    McpRequest,
    Message,
    decode_result,
)
from mainspring.capabilities.mcp.protocol.transport import Transport
from mainspring.core.errors import McpFailed

_MAX_INSTRUCTIONS = 2_048  # characters of a server's instructions in every prompt, about 500 tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    era: Era
    version: str
    """The protocol version."""
    implementation: Implementation
    capabilities: Mapping[str, object] = field(default_factory=dict[str, object])
    instructions: str = ""


class Requests:
    """The numbered requests of one client. A modern request also identifies the client."""

    def __init__(self, implementation: Implementation, capabilities: Mapping[str, object]) -> None:
        self._implementation = msgspec.to_builtins(implementation)
        self._capabilities = dict(capabilities)
        self._last_id = 0

    def new(
        self,
        method: str,
        params: Mapping[str, object],
        *,
        version: str,
        era: Era,
        headers: Mapping[str, str] | None = None,
        has_progress: bool = False,
    ) -> McpRequest:
        self._last_id += 1
        meta: dict[str, object] = {"progressToken": self._last_id} if has_progress else {}
        if era == "modern":
            meta[f"{META}protocolVersion"] = version
            meta[f"{META}clientInfo"] = self._implementation
            meta[f"{META}clientCapabilities"] = self._capabilities
        return McpRequest(
            id=self._last_id,
            method=method,
            params={**params, "_meta": meta} if meta else params,
            version=version,
            era=era,
            headers=headers or {},
        )

    def initialize(self, version: str) -> McpRequest:
        params = {
            "protocolVersion": version,
            "capabilities": self._capabilities,
            "clientInfo": self._implementation,
        }
        return self.new("initialize", params, version=version, era="legacy")


async def negotiate(
    transport: Transport, requests: Requests, *, era: Era | None, probe_seconds: float
) -> ServerInfo:
    """Connect to a server. `era`: its known era. A server of unknown era that is silent for
    `probe_seconds` is also tried with the legacy protocol.

    Raises:
        McpFailed: no connection.
    """
    if era == "legacy":
        return await _initialize(transport, requests)
    return await _EraProbe(transport, requests, probe_seconds if era is None else math.inf).run()


class _EraProbe:
    """Sends a modern request. If the server stays silent, a legacy one is sent as well: the server
    may ignore unknown requests, or may still be starting. The first valid answer counts."""

    def __init__(self, transport: Transport, requests: Requests, silent_seconds: float) -> None:
        self._transport = transport
        self._requests = requests
        self._silent_seconds = silent_seconds
        self._is_answered = anyio.Event()
        """Set when the modern request was answered; without `_info`, the server is not modern."""
        self._info: ServerInfo | None = None
        self._error: McpFailed | None = None

    async def run(self) -> ServerInfo:
        async with anyio.create_task_group() as group:
            group.start_soon(self._ask_as_modern, group.cancel_scope)
            group.start_soon(self._ask_as_legacy, group.cancel_scope)
        if self._info is None:
            raise self._error or McpFailed("the server does not say which version of MCP it speaks")
        return self._info

    async def _ask_as_modern(self, scope: CancelScope) -> None:
        try:
            self._info = await _discover(self._transport, self._requests)
        except McpFailed as error:
            self._error = error
            scope.cancel()
        if self._info is not None:
            scope.cancel()
        self._is_answered.set()

    async def _ask_as_legacy(self, scope: CancelScope) -> None:
        with anyio.move_on_after(self._silent_seconds):
            await self._is_answered.wait()
        try:
            info = await _initialize(self._transport, self._requests)
        except McpFailed as error:
            self._error = self._error or error
            with anyio.move_on_after(self._silent_seconds):  # a modern answer may still come
                await self._is_answered.wait()
        else:
            self._info = self._info or info
        scope.cancel()


async def _discover(transport: Transport, requests: Requests) -> ServerInfo | None:
    """`None` if the server is of the legacy era."""
    version, has_agreed = MODERN_VERSIONS[0], False
    while True:
        request = requests.new("server/discover", {}, version=version, era="modern")
        try:
            response = await transport.exchange(request)
        except McpFailed as error:
            if error.code is None:
                raise
            return None
        if response.error is None:
            return _server_info(response, version)
        if response.error.code not in MODERN_ERRORS:
            return None
        offered = messages.supported_versions(response.error)
        common = [item for item in MODERN_VERSIONS if item in offered]
        if not common and (not offered or set(offered) & set(LEGACY_VERSIONS)):
            return None
        if not common or has_agreed:
            raise McpFailed(f"supports none of these versions of MCP: {', '.join(MODERN_VERSIONS)}")
        version, has_agreed = common[0], True


def _server_info(response: Message, version: str) -> ServerInfo | None:
    try:
        discover_result = decode_result(response.result, messages.DiscoverResult, "server/discover")
    except McpFailed:
        return None  # not a valid modern answer
    if version not in discover_result.supported_versions:
        return None
    name = discover_result.meta.get(f"{META}serverInfo")
    return ServerInfo(
        era="modern",
        version=version,
        implementation=messages.read_implementation(name),
        capabilities=discover_result.capabilities,
        instructions=(discover_result.instructions or "")[:_MAX_INSTRUCTIONS],
    )


async def _initialize(transport: Transport, requests: Requests) -> ServerInfo:
    response = await transport.exchange(requests.initialize(LEGACY_VERSIONS[0]))
    if response.error is not None:
        raise messages.refusal("initialize", response.error)
    result = decode_result(response.result, messages.InitializeResult, "initialize")
    if result.protocol_version not in LEGACY_VERSIONS:
        raise McpFailed(f"speaks an unknown version of MCP: {result.protocol_version!r:.40}")
    await transport.notify(messages.encode_notification("notifications/initialized", {}))
    return ServerInfo(
        era="legacy",
        version=result.protocol_version,
        implementation=result.server_info,
        capabilities=result.capabilities,
        instructions=(result.instructions or "")[:_MAX_INSTRUCTIONS],
    )
