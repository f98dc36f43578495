"""How the service itself asks servers that clients name: token endpoints and MCP servers. Only at
public addresses, unless the operator names others; no redirects, little, in time."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import aiohttp
import msgspec

from mainspring.capabilities.network.addresses import Resolver, dialable, system_resolver
from mainspring.capabilities.network.fetch import Pinned
from mainspring.capabilities.network.rules import Network
from mainspring.core.errors import NetworkRefused
from mainspring.service.vaults.token_endpoint import Post, Reply
from mainspring.service.vaults.validating import Failed

_MAX_BYTES = 64 << 10
_PROTOCOL = "2025-06-18"
_GREETING = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": _PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "mainspring", "version": "1"},
        },
    }
)


class Asker:
    """A `Fetch`. `allowed`: networks that are not public and may be asked all the same."""

    def __init__(
        self,
        *,
        allowed: Sequence[Network] = (),
        resolver: Resolver = system_resolver,
        trust: ssl.SSLContext | None = None,
        seconds: float = 20.0,
    ) -> None:
        self._allowed = tuple(allowed)
        self._resolver = resolver
        self._trust = trust or ssl.create_default_context()
        self._timeout = aiohttp.ClientTimeout(total=seconds)

    async def __call__(self, post: Post) -> Reply:
        """Raises: NetworkRefused."""
        host = urlsplit(post.url).hostname or ""
        addresses = await dialable(host, self._resolver, besides=self._allowed)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(
                        resolver=Pinned(host, addresses), ssl=self._trust, use_dns_cache=False
                    ),
                    timeout=self._timeout,
                    trust_env=False,
                ) as session,
                session.post(
                    post.url, data=post.body, headers=post.headers, allow_redirects=False
                ) as response,
            ):
                return Reply(
                    status=response.status,
                    content_type=response.headers.get("content-type", ""),
                    body=await _beginning(response),
                )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise NetworkRefused(f"{host}: no answer ({type(error).__name__})") from error


class Greeting:
    """A `Probe`: says to an MCP server what every client says first."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def __call__(self, url: str, token: str) -> Failed | None:
        headers = (
            ("authorization", f"Bearer {token}"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", _PROTOCOL),
        )
        try:
            reply = await self._asker(Post(url=url, headers=headers, body=_GREETING))
        except NetworkRefused:
            return Failed(method="initialize", reply=None)
        return None if reply.status == 200 else Failed(method="initialize", reply=reply)


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    is_stream = response.content_type == "text/event-stream"  # may never end
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if is_stream or len(content) >= _MAX_BYTES:
            break
    return bytes(content[:_MAX_BYTES])
