"""Fetches a page for a tool, outside the sandbox and under the same rules as the proxy's."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from mainspring.capabilities.network.addresses import Resolver, resolve_allowed, system_resolver
from mainspring.capabilities.network.rules import (
    PORTS,
    EgressRequest,
    EgressRule,
    EgressRules,
    Scheme,
    host_name,
    network_fact,
)
from mainspring.core.errors import NetworkRefused
from mainspring.core.events import NetworkRequested
from mainspring.core.ports import FetchResponse

_REDIRECTS = (301, 302, 303, 307, 308)  # the statuses that name a new place (RFC 9110, 15.4)
_MOST_HOPS = 5  # redirects of one page, each of which is checked
_LONGEST_URL = 4096  # characters; longer ones carry data out
_HEADERS = {
    "Accept": "text/html, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5",
    "User-Agent": "Mainspring",
}


@dataclass(frozen=True, slots=True)
class _Hop:
    url: str
    request: EgressRequest
    rule: EgressRule


class WebFetch:
    """A `Fetch`."""

    def __init__(
        self,
        rules: EgressRules,
        audit: Callable[[NetworkRequested], None],
        *,
        resolver: Resolver = system_resolver,
        trust: ssl.SSLContext | None = None,
        seconds: float = 30.0,
    ) -> None:
        self._rules = rules
        self._audit = audit
        self._resolver = resolver
        self._trust = trust or ssl.create_default_context()
        self._timeout = aiohttp.ClientTimeout(total=seconds)

    async def __call__(self, url: str, *, max_bytes: int) -> FetchResponse:
        hop = self._allowed(url)
        for _ in range(_MOST_HOPS):
            page, target = await self._get(hop, max_bytes)
            if target is None:
                return page
            onward = urljoin(hop.url, target)
            if host_name(_split(onward).hostname or "") != hop.request.host:
                return _redirect_page(page, onward)
            hop = self._allowed(onward)
        raise NetworkRefused(f"{url} redirects more than {_MOST_HOPS} times")

    def _allowed(self, url: str) -> _Hop:
        request = _egress_request(url)
        rule = self._rules.allowing(request)
        if rule is None:
            self._audit(network_fact(request, None))
            plain = " over http; try https" * (request.scheme == "http")
            raise NetworkRefused(f"{request.host} is not among the allowed hosts{plain}")
        return _Hop(url, request, rule)

    async def _get(self, hop: _Hop, max_bytes: int) -> tuple[FetchResponse, str | None]:
        """The page, and the target if it is a redirect."""
        request = hop.request
        besides = self._rules.addresses(request.host, request.port, request.scheme)
        status: int | None = None
        try:
            addresses = await resolve_allowed(request.host, self._resolver, besides=besides)
            connector = aiohttp.TCPConnector(
                resolver=PinnedResolver(request.host, addresses),
                ssl=self._trust,
                use_dns_cache=False,
            )
            async with (
                aiohttp.ClientSession(
                    connector=connector, timeout=self._timeout, trust_env=False, headers=_HEADERS
                ) as session,
                session.get(hop.url, allow_redirects=False) as response,
            ):
                status = response.status
                target = response.headers.get("Location") if status in _REDIRECTS else None
                return await _page(response, hop.url, max_bytes), target
        except NetworkRefused:
            self._audit(network_fact(request, None))
            raise
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise NetworkRefused(f"{request.host}: {error_text(error)}") from error
        finally:
            if status is not None:
                self._audit(network_fact(request, hop.rule, status=status))


class PinnedResolver(AbstractResolver):
    """Resolves to the addresses that were checked, whatever DNS returns now."""

    def __init__(self, host: str, addresses: tuple[str, ...]) -> None:
        self._host = host
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host != self._host:
            raise OSError(f"{host} was not requested")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        return None


async def _page(response: aiohttp.ClientResponse, url: str, max_bytes: int) -> FetchResponse:
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > max_bytes:
            break
    return FetchResponse(
        url=url,
        status=response.status,
        media_type=response.content_type,
        content=bytes(content[:max_bytes]),
        is_cut=len(content) > max_bytes,
    )


def _redirect_page(page: FetchResponse, target: str) -> FetchResponse:
    note = f"This page has moved to another host: {target}\nFetch it from there if you need it.\n"
    content = note.encode()
    return FetchResponse(url=page.url, status=page.status, media_type="text/plain", content=content)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise NetworkRefused(f"not a valid URL: {error}") from error


def _egress_request(url: str) -> EgressRequest:
    if len(url) > _LONGEST_URL or not url.isprintable() or " " in url:
        raise NetworkRefused("not a valid URL")
    parts = _split(url)
    schemes: dict[str, Scheme] = {"https": "https", "http": "http"}
    scheme = schemes.get(parts.scheme)
    if scheme is None:
        raise NetworkRefused("a URL must start with https://")
    if "@" in parts.netloc:
        raise NetworkRefused("a URL must not contain a user name or password")
    host = host_name(parts.hostname or "")
    if host is None:
        raise NetworkRefused(f"{parts.hostname}: use a host name, not an IP address")
    try:
        port = parts.port or PORTS[scheme]
    except ValueError as error:
        raise NetworkRefused(f"{host}: {error}") from error
    return EgressRequest(scheme, host, port, "GET", parts.path or "/")


def error_text(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return f"no answer ({type(error).__name__})"
