"""The only way out of a sandbox: a proxy that ends TLS, asks the rules, and keeps the secrets.

It is handed the socket to listen on; where that is, it does not know.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import TypeAlias

import anyio
from anyio.abc import ByteStream, SocketListener, SocketStream
from anyio.streams.tls import TLSStream

from mainspring.capabilities.network import http1
from mainspring.capabilities.network.addresses import Resolver, resolve_allowed, system_resolver
from mainspring.capabilities.network.certificate_authority import CertificateAuthority
from mainspring.capabilities.network.http1 import (
    Http1Request,
    HttpConnection,
    HttpError,
    ProxyLimits,
)
from mainspring.capabilities.network.placeholders import Placeholders
from mainspring.capabilities.network.proxy_exchange import (
    CONNECTION_ERRORS,
    ProxyExchange,
    Upstream,
)
from mainspring.capabilities.network.rules import (
    PORTS,
    EgressRequest,
    EgressRule,
    EgressRules,
    Scheme,
    host_name,
)
from mainspring.core.errors import NetworkRefused
from mainspring.core.facts import NetworkRequested

Audit: TypeAlias = Callable[[NetworkRequested], None]

_BUNDLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
)
_NOT_PROXIED = "localhost,127.0.0.1,::1"
_AUTHORITY = re.compile(r"([^:@/?#\[\]]+)(?::([0-9]{1,5}))?")
_LONGEST_PATH = 500
_PARTING_SECONDS = 0.5


def loopback_socket() -> socket.socket:
    """For sandboxes that have no network of their own to listen in."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """How servers are found, which of them are believed, and how long they are waited for."""

    resolver: Resolver = system_resolver
    trust: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    proxy_limits: ProxyLimits = field(default_factory=ProxyLimits)


class EgressProxy:
    """One session's."""

    def __init__(
        self,
        egress_rules: EgressRules,
        placeholders: Placeholders,
        certificate_authority: CertificateAuthority,
        audit: Audit,
        *,
        upstream_settings: UpstreamSettings | None = None,
    ) -> None:
        upstream_settings = upstream_settings or UpstreamSettings()
        self.certificate_authority = certificate_authority
        self.placeholders = placeholders
        self.caps = upstream_settings.proxy_limits
        self._egress_rules = egress_rules
        self._audit = audit
        self._resolver = upstream_settings.resolver
        self._trust = upstream_settings.trust

    def environment(
        self, names: Iterable[str], *, address: str, bundle: PurePath | str
    ) -> dict[str, str]:
        """Variables for the programs of a sandbox: placeholders of the secrets they may use, where
        the proxy is (`127.0.0.1:3128`), and whom to believe."""
        proxy = f"http://{address}"
        return {
            **self.placeholders.environment(names),
            **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), _NOT_PROXIED),
            **dict.fromkeys(_BUNDLES, str(bundle)),
            "NODE_USE_ENV_PROXY": "1",
        }

    async def serve(self, listening: socket.socket) -> None:
        """Answer on a socket until cancelled; it is closed then."""
        listener: SocketListener = await SocketListener.from_socket(listening)
        limiter = anyio.CapacityLimiter(self.caps.connections)

        async def handle(stream: SocketStream) -> None:
            async with stream, limiter:
                await _ProxyConnection(self, stream).run()

        async with listener:
            await listener.serve(handle)

    def record(
        self,
        egress_request: EgressRequest,
        egress_rule: EgressRule | None,
        *,
        status: int | None = None,
        used: Iterable[str] = (),
    ) -> None:
        self._audit(
            NetworkRequested(
                host=egress_request.host[:255],
                decision="deny" if egress_rule is None else "allow",
                rule=None if egress_rule is None else egress_rule.host,
                method=egress_request.method,
                path=egress_request.path[:_LONGEST_PATH],
                status=status,
                credential=",".join(used) or None,
            )
        )

    async def find_upstream(self, egress_request: EgressRequest) -> tuple[EgressRule, Upstream]:
        """
        Raises:
            Malformed: no rule has such a host, or it is where nobody may go.
        """
        rules = self._egress_rules.covering(
            egress_request.host, egress_request.port, egress_request.scheme
        )
        if not rules:
            self.record(egress_request, None, status=403)
            raise HttpError(
                403, f"{egress_request.host}:{egress_request.port} is not among the allowed hosts"
            )
        besides = self._egress_rules.addresses(
            egress_request.host, egress_request.port, egress_request.scheme
        )
        try:
            addresses = await resolve_allowed(egress_request.host, self._resolver, besides=besides)
        except NetworkRefused as error:
            self.record(egress_request, None, status=403)
            raise HttpError(403, str(error)) from error
        trust = self._trust if egress_request.scheme == "https" else None
        return rules[0], Upstream(request=egress_request, addresses=addresses, trust=trust)

    def authorize(self, egress_request: EgressRequest) -> EgressRule:
        rule = self._egress_rules.allowing(egress_request)
        if rule is None:
            self.record(egress_request, None, status=403)
            raise HttpError(
                403,
                f"{egress_request.method} {egress_request.path} is not allowed at "
                f"{egress_request.host}",
            )
        return rule


class _ProxyConnection:
    """One connection from the sandbox."""

    def __init__(self, proxy: EgressProxy, stream: ByteStream) -> None:
        self._proxy = proxy
        self._caps = proxy.caps
        self._stream = stream
        self._unheard = True
        self._asked = 0

    async def run(self) -> None:
        try:
            await self._converse(HttpConnection(self._stream, self._caps))
        except CONNECTION_ERRORS:
            return  # it has gone, or has taken too long

    async def _converse(self, http_connection: HttpConnection) -> None:
        stays = True
        while stays:
            try:
                request = await self._heard(http_connection)
                if request is None:
                    return
                if request.method == "CONNECT":
                    await self._tunnel(http_connection, request)
                    return
                _, upstream = await self._proxy.find_upstream(
                    self._build_egress_request(request, _plain_request)
                )
                stays = await self._pass_on(http_connection, request, upstream)
            except HttpError as error:
                await _send_refusal(http_connection, error)
                return

    async def _heard(self, http_connection: HttpConnection) -> Http1Request | None:
        head = await http_connection.head(
            idle_seconds=None if self._unheard else self._caps.idle_seconds
        )
        self._unheard = False
        return None if head is None else http1.parse_request(head, self._caps)

    async def _tunnel(self, http_connection: HttpConnection, http1_request: Http1Request) -> None:
        egress_request = self._build_egress_request(http1_request, _tunnel_request)
        rule, upstream = await self._proxy.find_upstream(egress_request)
        await http_connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            with anyio.fail_after(self._caps.head_seconds):
                inner = await TLSStream.wrap(
                    self._stream,
                    server_side=True,
                    ssl_context=self._proxy.certificate_authority.context(egress_request.host),
                    standard_compatible=False,
                )
            await self._converse_inside(HttpConnection(inner, self._caps), upstream)
            with anyio.move_on_after(_PARTING_SECONDS):  # so that nobody takes it for a cut
                await inner.unwrap()
        finally:
            if not self._asked:
                self._proxy.record(egress_request, rule)

    async def _converse_inside(self, http_connection: HttpConnection, tunnel: Upstream) -> None:
        stays = True
        while stays:
            try:
                request = await self._heard(http_connection)
                if request is None:
                    return
                self._asked += 1
                egress_request = self._build_egress_request(
                    request, partial(_inner_request, tunnel.request)
                )
                stays = await self._pass_on(
                    http_connection, request, replace(tunnel, request=egress_request)
                )
            except HttpError as error:
                await _send_refusal(http_connection, error)
                return

    def _build_egress_request(
        self, http1_request: Http1Request, read: Callable[[Http1Request], EgressRequest]
    ) -> EgressRequest:
        try:
            return read(http1_request)
        except HttpError as error:
            host = http1.absolute_form(http1_request.target)[0].rpartition("@")[2]
            self._proxy.record(
                EgressRequest("https", host, 0, http1_request.method, ""), None, status=error.status
            )
            raise

    async def _pass_on(
        self, http_connection: HttpConnection, http1_request: Http1Request, upstream: Upstream
    ) -> bool:
        egress_request = upstream.request
        rule = self._proxy.authorize(egress_request)
        exchange = ProxyExchange(
            http_connection, http1_request, self._proxy.placeholders, self._caps
        )
        try:
            with anyio.fail_after(self._caps.exchange_seconds):
                return await exchange.run(upstream)
        except HttpError as error:
            if exchange.is_answered:  # too late to say so: the cut is what the client sees
                return False
            exchange.status = error.status
            raise
        finally:
            self._proxy.record(
                egress_request, rule, status=exchange.status, used=exchange.credentials
            )


async def _send_refusal(http_connection: HttpConnection, error: HttpError) -> None:
    body = f"mainspring: {error.why}\n".encode()
    headers = [
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"Content-Length", str(len(body)).encode()),
        (b"Connection", b"close"),
    ]
    await http_connection.send(
        http1.encode_head(f"HTTP/1.1 {error.status} Refused", headers) + body
    )


def _authority(written: str, scheme: Scheme) -> tuple[str, int]:
    """
    Raises:
        Malformed: no host's name and port; an address is none.
    """
    found = _AUTHORITY.fullmatch(written)
    host = None if found is None else host_name(found[1])
    if found is None or host is None:
        raise HttpError(403, "a host is called by its name, not by an address")
    port = int(found[2]) if found[2] else PORTS[scheme]
    if not 0 < port < 65536:
        raise HttpError(400, "no such port")
    return host, port


def _tunnel_request(http1_request: Http1Request) -> EgressRequest:
    host, port = _authority(http1_request.target, "https")
    if http1.request_framing(http1_request):
        raise HttpError(400, "CONNECT has no body")
    return EgressRequest("https", host, port, "CONNECT", "")


def _plain_request(http1_request: Http1Request) -> EgressRequest:
    if not http1_request.target.startswith("http://"):
        raise HttpError(400, "a proxy is asked for http://HOST/PATH, or by CONNECT")
    authority, rest = http1.absolute_form(http1_request.target)
    host, port = _authority(authority, "http")
    if _authority(http1.host_of(http1_request), "http") != (host, port):
        raise HttpError(421, "the host is another than the one that was asked for")
    return EgressRequest("http", host, port, http1_request.method, _path(rest))


def _inner_request(tunnel: EgressRequest, http1_request: Http1Request) -> EgressRequest:
    if not http1_request.target.startswith("/") and (
        http1_request.method,
        http1_request.target,
    ) != ("OPTIONS", "*"):
        raise HttpError(400, "inside a tunnel a request asks for a path")
    if _authority(http1.host_of(http1_request), "https") != (tunnel.host, tunnel.port):
        raise HttpError(421, "the host is another than the one of the tunnel")
    return EgressRequest(
        "https", tunnel.host, tunnel.port, http1_request.method, _path(http1_request.target)
    )


def _path(target: str) -> str:
    if "#" in target:
        raise HttpError(400, "a fragment is not sent")
    return target.partition("?")[0]
