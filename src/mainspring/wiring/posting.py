"""Webhooks over HTTP: to public addresses only, unless the operator names others; no redirects."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence

import aiohttp
from yarl import URL

from mainspring.capabilities.network.addresses import Resolver, dialable, system_resolver
from mainspring.capabilities.network.rules import Network
from mainspring.core.errors import NetworkRefused
from mainspring.service.mail.deliveries import Posted

_EXCERPT_BYTES = 1024
_UNREACHED = (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError)


class HttpPoster:
    """A `Poster`. A name is resolved once, judged, and that very address is dialled: what it leads
    to a moment later does not matter."""

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
        """`allowed`: networks that are not public and may be called all the same."""
        self._allowed = tuple(allowed)
        self._schemes = ("https", "http") if allow_http else ("https",)
        self._resolver = resolver
        self._trust = trust or ssl.create_default_context()
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=connect_seconds)

    async def __call__(self, url: str, *, headers: Mapping[str, str], body: bytes) -> Posted:
        try:
            target = URL(url)
        except ValueError as error:
            return Posted(error=f"no URL: {error}", is_refused=True)
        if target.scheme not in self._schemes or not target.host or target.user is not None:
            return Posted(error="not an https:// address", is_refused=True)
        try:
            addresses = await dialable(target.host, self._resolver, besides=self._allowed)
        except NetworkRefused as refused:
            # a name that is not known now may be later; an address that is not public stays so
            return Posted(error=str(refused), is_refused=refused.__cause__ is None)
        except ValueError:  # what the system's resolver cannot even write down
            return Posted(error="its host is no name", is_refused=True)
        failed = Posted(error="no answer")
        for address in addresses:
            try:
                return await self._sent(target, address, headers, body)
            except _UNREACHED as error:
                failed = Posted(error=_told(error))
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                return Posted(error=_told(error))
        return failed

    async def _sent(
        self, target: URL, address: str, headers: Mapping[str, str], body: bytes
    ) -> Posted:
        host = target.host or ""
        default = {"https": 443, "http": 80}[target.scheme]
        shown = f"[{host}]" if ":" in host else host
        own = {"host": shown if target.port == default else f"{shown}:{target.port}"}
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._trust, force_close=True),
                timeout=self._timeout,
                trust_env=False,
                auto_decompress=False,  # what is packed small may be large
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
            return Posted(
                status=response.status, excerpt=excerpt.decode(errors="replace").replace("\0", "")
            )


def _told(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not to be trusted"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return f"no answer ({type(error).__name__})"
