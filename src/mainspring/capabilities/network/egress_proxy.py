"""The only way out of a sandbox: a proxy that terminates TLS, applies the rules, and inserts the
secrets.

The caller passes the listening socket.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
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
    ipv4_address,
    network_fact,
    parse_rules,
)
from mainspring.core.errors import NetworkRefused
from mainspring.core.events import NetworkRequested

Audit: TypeAlias = Callable[[NetworkRequested], None]

_BUNDLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "DENO_CERT"),
    *("NODE_EXTRA_CA_CERTS", "PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE"),
    "npm_config_cafile",  # npm ignores other certificates once its own settings name one
)
_NOT_PROXIED = "localhost,127.0.0.1,::1"
_AUTHORITY = re.compile(r"([^:@/?#\[\]]+)(?::([0-9]{1,5}))?")
_PARTING_SECONDS = 0.5  # for a clean end of TLS; then the connection is cut


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """How servers are resolved, which certificates are trusted, and the time limits."""

    resolver: Resolver = system_resolver
    trust: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    limits: ProxyLimits = field(default_factory=ProxyLimits)


class EgressProxy:
    """The proxy of one session."""

    def __init__(
        self,
        rules: EgressRules,
        placeholders: Placeholders,
        authority: CertificateAuthority,
        audit: Audit,
        *,
        settings: UpstreamSettings | None = None,
    ) -> None:
        settings = settings or UpstreamSettings()
        self._settings = settings
        self.certificate_authority = authority
        self.placeholders = placeholders
        self.caps = settings.limits
        self._rules = rules
        self._audit = audit
        self._resolver = settings.resolver
        self._trust = settings.trust

    def environment(
        self, names: Iterable[str], *, address: str, bundle: PurePath | str
    ) -> dict[str, str]:
        """Variables for the programs of a sandbox: placeholders of the secrets they may use, the
        proxy's address (`127.0.0.1:3128`), and the certificates to trust."""
        proxy = f"http://{address}"
        return {
            **self.placeholders.environment(names),
            **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), _NOT_PROXIED),
            **dict.fromkeys(_BUNDLES, str(bundle)),
            "NODE_USE_ENV_PROXY": "1",
        }

    def limited_to(self, networking: Mapping[str, object]) -> EgressProxy:
        """The same, for programs that may reach only some of the hosts.

        Raises: InvalidInput: see `parse_rules`.
        """
        return EgressProxy(
            replace(parse_rules(networking), outer=self._rules),
            self.placeholders,
            self.certificate_authority,
            self._audit,
            settings=self._settings,
        )

    async def serve(self, listening: socket.socket) -> None:
        """Serve on a socket until cancelled, then close it."""
        listener: SocketListener = await SocketListener.from_socket(listening)
        limiter = anyio.CapacityLimiter(self.caps.connections)

        async def handle(stream: SocketStream) -> None:
            async with stream, limiter:
                await _ProxyConnection(self, stream).run()

        async with listener:
            await listener.serve(handle)

    def record(
        self,
        request: EgressRequest,
        rule: EgressRule | None,
        *,
        status: int | None = None,
        used: Iterable[str] = (),
    ) -> None:
        self._audit(network_fact(request, rule, status=status, used=used))

    async def find_upstream(self, request: EgressRequest) -> tuple[EgressRule, Upstream]:
        """Resolve the server of a request.

        Raises:
            HttpError: no rule covers the host, or its addresses are not allowed.
        """
        rules = self._rules.covering(request.host, request.port, request.scheme)
        if not rules:
            self.record(request, None, status=403)
            raise HttpError(403, f"{request.host}:{request.port} is not among the allowed hosts")
        besides = self._rules.addresses(request.host, request.port, request.scheme)
        # Resolved once: the connection goes to these addresses, so a name that means another
        # host a moment later (DNS rebinding) gains nothing.
        try:
            addresses = await resolve_allowed(request.host, self._resolver, besides=besides)
        except NetworkRefused as error:
            self.record(request, None, status=403)
            raise HttpError(403, str(error)) from error
        trust = self._trust if request.scheme == "https" else None
        return rules[0], Upstream(request=request, addresses=addresses, trust=trust)

    def authorize(self, request: EgressRequest) -> EgressRule:
        rule = self._rules.allowing(request)
        if rule is None:
            self.record(request, None, status=403)
            what = f"{request.method} {request.path}"
            raise HttpError(403, f"{what} is not allowed at {request.host}")
        return rule


class _ProxyConnection:
    """One connection from the sandbox."""

    def __init__(self, proxy: EgressProxy, stream: ByteStream) -> None:
        self._proxy = proxy
        self._caps = proxy.caps
        self._stream = stream
        self._is_first = True
        self._request_count = 0

    async def run(self) -> None:
        try:
            await self._converse(HttpConnection(self._stream, self._caps))
        except CONNECTION_ERRORS:
            return  # disconnected, or timed out

    async def _converse(self, connection: HttpConnection) -> None:
        stays = True
        while stays:
            try:
                request = await self._read_request(connection)
                if request is None:
                    return
                if request.method == "CONNECT":
                    await self._tunnel(connection, request)
                    return
                plain = self._egress_request(request, _plain_request)
                _, upstream = await self._proxy.find_upstream(plain)
                stays = await self._pass_on(connection, request, upstream)
            except HttpError as error:
                await _send_refusal(connection, error)
                return

    async def _read_request(self, connection: HttpConnection) -> Http1Request | None:
        idle_seconds = None if self._is_first else self._caps.idle_seconds
        head = await connection.head(idle_seconds=idle_seconds)
        self._is_first = False
        return None if head is None else http1.parse_request(head, self._caps)

    async def _tunnel(self, connection: HttpConnection, request: Http1Request) -> None:
        egress_request = self._egress_request(request, _tunnel_request)
        rule, upstream = await self._proxy.find_upstream(egress_request)
        await connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            with anyio.fail_after(self._caps.head_seconds):
                inner = await TLSStream.wrap(
                    self._stream,
                    server_side=True,
                    ssl_context=self._proxy.certificate_authority.context(egress_request.host),
                    standard_compatible=False,
                )
            await self._converse_inside(HttpConnection(inner, self._caps), upstream)
            with anyio.move_on_after(_PARTING_SECONDS):  # a clean end of TLS, not a cut
                await inner.unwrap()
        finally:
            if not self._request_count:
                self._proxy.record(egress_request, rule)

    async def _converse_inside(self, connection: HttpConnection, tunnel: Upstream) -> None:
        stays = True
        while stays:
            try:
                request = await self._read_request(connection)
                if request is None:
                    return
                self._request_count += 1
                inner = self._egress_request(request, partial(_inner_request, tunnel.request))
                stays = await self._pass_on(connection, request, replace(tunnel, request=inner))
            except HttpError as error:
                await _send_refusal(connection, error)
                return

    def _egress_request(
        self, request: Http1Request, parse: Callable[[Http1Request], EgressRequest]
    ) -> EgressRequest:
        try:
            return parse(request)
        except HttpError as error:
            host = http1.absolute_form(request.target)[0].rpartition("@")[2]
            egress_request = EgressRequest("https", host, 0, request.method, "")
            self._proxy.record(egress_request, None, status=error.status)
            raise

    async def _pass_on(
        self, connection: HttpConnection, request: Http1Request, upstream: Upstream
    ) -> bool:
        egress_request = upstream.request
        rule = self._proxy.authorize(egress_request)
        exchange = ProxyExchange(connection, request, self._proxy.placeholders, self._caps)
        try:
            with anyio.fail_after(self._caps.exchange_seconds):
                return await exchange.run(upstream)
        except HttpError as error:
            if exchange.is_answered:  # too late for an error: the client sees the cut
                return False
            exchange.status = error.status
            raise
        finally:
            credentials = exchange.credentials
            self._proxy.record(egress_request, rule, status=exchange.status, used=credentials)


async def _send_refusal(connection: HttpConnection, error: HttpError) -> None:
    body = f"mainspring: {error.why}\n".encode()
    headers = [
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"Content-Length", str(len(body)).encode()),
        (b"Connection", b"close"),
    ]
    await connection.send(http1.encode_head(f"HTTP/1.1 {error.status} Refused", headers) + body)


def _authority(text: str, scheme: Scheme) -> tuple[str, int]:
    """Parse `HOST[:PORT]`.

    Raises:
        HttpError: it is neither a host name nor a plain IPv4 address.
    """
    match = _AUTHORITY.fullmatch(text)
    host = None if match is None else host_name(match[1]) or ipv4_address(match[1])
    if match is None or host is None:
        raise HttpError(403, "use a host name, not an address")
    port = int(match[2]) if match[2] else PORTS[scheme]
    if not 0 < port < 65536:
        raise HttpError(400, "no such port")
    return host, port


def _tunnel_request(request: Http1Request) -> EgressRequest:
    host, port = _authority(request.target, "https")
    if http1.request_framing(request):
        raise HttpError(400, "CONNECT has no body")
    return EgressRequest("https", host, port, "CONNECT", "")


def _plain_request(request: Http1Request) -> EgressRequest:
    if not request.target.startswith("http://"):
        raise HttpError(400, "a request to a proxy must name http://HOST/PATH or use CONNECT")
    authority, path = http1.absolute_form(request.target)
    host, port = _authority(authority, "http")
    if _authority(http1.host_of(request), "http") != (host, port):
        raise HttpError(421, "the host differs from the requested one")
    return EgressRequest("http", host, port, request.method, _path(path))


def _inner_request(tunnel: EgressRequest, request: Http1Request) -> EgressRequest:
    if not request.target.startswith("/") and (request.method, request.target) != ("OPTIONS", "*"):
        raise HttpError(400, "inside a tunnel, a request must name a path")
    if _authority(http1.host_of(request), "https") != (tunnel.host, tunnel.port):
        raise HttpError(421, "the host differs from that of the tunnel")
    return EgressRequest("https", tunnel.host, tunnel.port, request.method, _path(request.target))


def _path(target: str) -> str:
    if "#" in target:
        raise HttpError(400, "a fragment is not sent")
    return target.partition("?")[0]
