"""Outbound HTTP requests of the service itself to URLs that clients name (token endpoints, MCP
servers, webhooks): public addresses only unless the operator allows others, no redirects,
bounded size and time."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from mainspring.capabilities.network.addresses import Resolver, resolve_allowed, system_resolver
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.network.web_client import PinnedResolver, error_text
from mainspring.core.errors import NetworkRefused
from mainspring.core.ports import HttpPost, HttpReply, PostResult

_MAX_BYTES = 64 << 10  # of an answer to a notice: only its status matters
_EVERYWHERE: tuple[Network, ...] = (ip_network("0.0.0.0/0"), ip_network("::/0"))


class OutboundHttpClient:
    """Sends the service's own requests. `allowed`: networks that may be reached although they are
    not public."""

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

    async def __call__(self, post: HttpPost) -> HttpReply:
        """Raises: NetworkRefused."""
        return await self.fetch(post.url, post.headers, post.body)

    async def fetch(
        self,
        url: str,
        headers: Mapping[str, str] | Sequence[tuple[str, str]],
        body: bytes | None = None,
    ) -> HttpReply:
        """Send a POST, or without a body a GET. Raises: NetworkRefused."""
        connector = await guarded_connector(
            url, self._allowed, resolver=self._resolver, trust=self._trust
        )
        host = urlsplit(url).hostname or ""
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    timeout=self._timeout,
                    trust_env=False,
                ) as session,
                session.request(
                    "GET" if body is None else "POST",
                    url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                ) as response,
            ):
                return HttpReply(
                    status=response.status,
                    content_type=response.headers.get("content-type", ""),
                    body=await _read_start(response),
                )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise NetworkRefused(f"{host}: no answer ({type(error).__name__})") from error


class GuardedFetch:
    """Sends requests to URLs that a server gave us. A public server must not make us reach
    addresses that are not public."""

    def __init__(self, server: str) -> None:
        self._host = urlsplit(server).hostname or ""

    async def __call__(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpReply:
        """Raises: NetworkRefused."""
        try:
            await resolve_allowed(self._host, system_resolver)
            allowed: tuple[Network, ...] = ()
        except NetworkRefused:
            allowed = _EVERYWHERE
        return await OutboundHttpClient(allowed=allowed).fetch(url, headers, body)


async def guarded_connector(
    url: str,
    allowed: Sequence[Network] = (),
    *,
    resolver: Resolver = system_resolver,
    trust: ssl.SSLContext | None = None,
) -> aiohttp.TCPConnector:
    """A connector for the host of a URL and no other, at the addresses that it has now.

    Raises:
        NetworkRefused: none of them may be connected to.
    """
    try:
        host = urlsplit(url).hostname or ""
    except ValueError as error:
        raise NetworkRefused("not a valid URL") from error
    addresses = await resolve_allowed(host, resolver, besides=allowed)
    return aiohttp.TCPConnector(
        resolver=PinnedResolver(host, addresses),
        ssl=True if trust is None else trust,
        use_dns_cache=False,
    )


async def _read_start(response: aiohttp.ClientResponse) -> bytes:
    is_stream = response.content_type == "text/event-stream"  # may never end
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if is_stream or len(content) >= _MAX_BYTES:
            break
    return bytes(content[:_MAX_BYTES])


_EXCERPT_BYTES = 1024  # of an answer that an error quotes
_CONNECT_ERRORS = (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError)


class HttpPoster:
    """A `WebhookPoster`. A name is resolved and checked once, and exactly that address is used, so
    that a later DNS change has no effect."""

    def __init__(
        self,
        *,
        allowed: Sequence[Network] = (),
        allow_http: bool = False,
        resolver: Resolver = system_resolver,
        trust: ssl.SSLContext | None = None,
        seconds: float = 15.0,
        connect_seconds: float = 5.0,
    ) -> None:
        """`allowed`: networks that may be called although they are not public."""
        self._allowed = tuple(allowed)
        self._schemes = ("https", "http") if allow_http else ("https",)
        self._resolver = resolver
        self._trust = trust or ssl.create_default_context()
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=connect_seconds)

    async def __call__(self, url: str, *, headers: Mapping[str, str], body: bytes) -> PostResult:
        try:
            target = URL(url)
        except ValueError as error:
            return PostResult(error=f"no URL: {error}", is_refused=True)
        if target.scheme not in self._schemes or not target.host or target.user is not None:
            return PostResult(error="not an https:// address", is_refused=True)
        try:
            addresses = await resolve_allowed(target.host, self._resolver, besides=self._allowed)
        except NetworkRefused as refusal:
            # an unknown name may become known; an address that is not public stays so
            return PostResult(error=str(refusal), is_refused=refusal.__cause__ is None)
        except ValueError:  # the system's resolver cannot encode it
            return PostResult(error="its host is not a valid name", is_refused=True)
        failed = PostResult(error="no answer")
        for address in addresses:
            try:
                return await self._send(target, address, headers, body)
            except _CONNECT_ERRORS as error:
                failed = PostResult(error=error_text(error))
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                return PostResult(error=error_text(error))
        return failed

    async def _send(
        self, target: URL, address: str, headers: Mapping[str, str], body: bytes
    ) -> PostResult:
        host = target.host or ""
        default = {"https": 443, "http": 80}[target.scheme]
        host_header = f"[{host}]" if ":" in host else host
        own = {"host": host_header if target.port == default else f"{host_header}:{target.port}"}
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._trust, force_close=True),
                timeout=self._timeout,
                trust_env=False,
                auto_decompress=False,  # no decompression bombs
            ) as session,
            session.post(
                target.with_host(address),
                data=body,
                headers={**headers, **own},
                allow_redirects=False,
                server_hostname=host if target.scheme == "https" else None,
            ) as response,
        ):
            excerpt = await response.content.read(_EXCERPT_BYTES)
            return PostResult(
                status=response.status, excerpt=excerpt.decode(errors="replace").replace("\0", "")
            )


_ISSUER_SECONDS = 10.0  # for an identity provider to answer
_MAX_ISSUER_BYTES = 1 << 20  # of one document of the provider; the rest is not read


async def fetch_issuer_keys(url: str) -> bytes:
    """The keys that a token issuer publishes. Raises: NetworkRefused."""
    timeout = aiohttp.ClientTimeout(total=_ISSUER_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as client,
            client.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise NetworkRefused(f"{url} answers {answer.status}")
            return await answer.content.read(_MAX_ISSUER_BYTES)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise NetworkRefused(f"{url}: {error or 'no answer in time'}") from error
