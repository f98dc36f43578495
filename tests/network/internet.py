"""A small internet on loopback: servers with certificates, a resolver, the proxy, and a client
that knows nothing but the proxy."""

import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TypeAlias

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener, TLSStream

from mainspring.capabilities.network.certificate_authority import CertificateAuthority
from mainspring.capabilities.network.egress_proxy import EgressProxy, UpstreamSettings
from mainspring.capabilities.network.http1 import ProxyLimits
from mainspring.capabilities.network.placeholders import Placeholders
from mainspring.capabilities.network.rules import EgressRule, EgressRules
from mainspring.capabilities.vault.known_values import KnownValues
from mainspring.core import clock
from mainspring.core.events import NetworkRequested
from mainspring.core.ports import Credential

Answer: TypeAlias = Callable[[bytes], Awaitable[Sequence[bytes]]]
LOOPBACK = (ip_network("127.0.0.0/8"),)
PUBLIC = CertificateAuthority(clock.now)
"""What everybody outside believes."""
SESSION = CertificateAuthority(clock.now)
"""What only the sandbox believes."""
SECRET = 'gh"real/secret+value=123'


def ok(body: bytes = b"hello", *headers: bytes) -> bytes:
    lines = (b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers, b"", body)
    return b"\r\n".join(lines)


@dataclass
class Origin:
    """A server that keeps what it was asked, and answers in the pieces it is told."""

    port: int = 0
    asked: list[bytes] = field(default_factory=list[bytes])
    answer: Answer | None = None
    pieces: Sequence[bytes] = (ok(),)

    async def handle(self, stream: ByteStream) -> None:
        async with stream:
            request = await _whole_request(stream)
            self.asked.append(request)
            pieces = self.pieces if self.answer is None else await self.answer(request)
            for piece in pieces:
                await stream.send(piece)
                await anyio.lowlevel.checkpoint()


async def _whole_request(stream: ByteStream) -> bytes:
    content = b""
    while b"\r\n\r\n" not in content:
        content += await stream.receive()
    head = content.partition(b"\r\n\r\n")[0].lower()
    if b"\r\ntransfer-encoding: chunked" in head:
        while not content.endswith(b"0\r\n\r\n"):
            content += await stream.receive()
    elif b"\r\ncontent-length: " in head:
        length = int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
        while len(content) < len(head) + 4 + length:
            content += await stream.receive()
    return content


@dataclass
class Reply:
    status: int
    headers: dict[bytes, bytes]
    body: bytes
    raw: bytes


class Internet:
    def __init__(
        self,
        proxy: EgressProxy,
        port: int,
        secure: Origin,
        plain: Origin,
        audit: list[NetworkRequested],
    ) -> None:
        self.proxy = proxy
        self.port = port
        self.secure = secure
        self.plain = plain
        self.audit = audit

    @property
    def placeholder(self) -> str:
        return self.proxy.placeholders.environment(["TOKEN"])["TOKEN"]

    async def raw(self, content: bytes) -> bytes:
        """What the proxy says to bytes as they are."""
        with anyio.fail_after(60):
            async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
                await stream.send(content)
                return await _rest(stream)

    async def is_refused(self, host: str, port: int | None = None) -> bool:
        """Whether the proxy opens no tunnel to a host."""
        said = await self.raw(
            f"CONNECT {host}:{port or self.secure.port} HTTP/1.1\r\n\r\n".encode()
        )
        return said.startswith(b"HTTP/1.1 403")

    @asynccontextmanager
    async def tunnel(self, host: str, port: int | None = None) -> AsyncGenerator[TLSStream]:
        with anyio.fail_after(60):
            async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
                authority = f"{host}:{port or self.secure.port}"
                await stream.send(
                    f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()
                )
                said = await stream.receive()
                assert said.startswith(b"HTTP/1.1 200 "), said
                trust = ssl.create_default_context(cadata=SESSION.certificate.decode())
                async with await TLSStream.wrap(
                    stream, hostname=host, ssl_context=trust, standard_compatible=False
                ) as inner:
                    yield inner

    async def send(self, host: str, content: bytes) -> Reply:
        """What comes back for bytes sent inside a tunnel."""
        async with self.tunnel(host) as inner:
            await inner.send(content)
            return _reply(await _rest(inner))

    async def get(
        self, host: str, path: str = "/", *headers: str, method: str = "GET", body: bytes = b""
    ) -> Reply:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{self.secure.port}", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        lines += ["Connection: close", "", ""]
        return await self.send(host, "\r\n".join(lines).encode() + body)


def _reply(raw: bytes) -> Reply:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *rest = head.split(b"\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in rest)
    if headers.get(b"transfer-encoding") == b"chunked":
        body = _joined(body)
    return Reply(int(first.split(b" ")[1]), headers, body, raw)


def _joined(body: bytes) -> bytes:
    whole = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        if not int(size, 16):
            return whole
        whole += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]


async def _rest(stream: ByteStream) -> bytes:
    content = b""
    while True:
        try:
            content += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return content


async def at_home(_: str) -> list[str]:
    return ["127.0.0.1"]


@asynccontextmanager
async def internet(
    *rules: EgressRule,
    resolver: Callable[[str], Awaitable[Sequence[str]]] = at_home,
    credentials: Sequence[Credential] | None = None,
    caps: ProxyLimits | None = None,
    trust: CertificateAuthority = PUBLIC,
) -> AsyncGenerator[Internet]:
    """`api.test` is the secret's host; `other.test` and `*.wide.test` can be reached too."""
    secure, plain = Origin(), Origin()
    context = PUBLIC.context("api.test")
    contexts = {name: PUBLIC.context(name) for name in ("other.test", "a.wide.test")}

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if name in contexts:
            connection.context = contexts[name]

    context.sni_callback = choose
    tls = await anyio.create_tcp_listener(local_host="127.0.0.1")
    listener = TLSListener(tls, context, standard_compatible=False)
    clear = await anyio.create_tcp_listener(local_host="127.0.0.1")
    secure.port = tls.extra(SocketAttribute.local_port)
    plain.port = clear.extra(SocketAttribute.local_port)
    ports = frozenset((secure.port, plain.port))
    default = tuple(
        EgressRule(host=host, ports=ports, addresses=LOOPBACK, plain_http=host == "other.test")
        for host in ("api.test", "other.test", "*.wide.test")
    )
    known = [Credential(name="TOKEN", value=SECRET, hosts=("api.test",))]
    audit: list[NetworkRequested] = []
    proxy = EgressProxy(
        EgressRules(tuple(_at(rule, ports) for rule in rules) or default),
        Placeholders(known if credentials is None else credentials, KnownValues),
        SESSION,
        audit.append,
        settings=UpstreamSettings(
            resolver=resolver,
            trust=ssl.create_default_context(cadata=trust.certificate.decode()),
            limits=caps or ProxyLimits(),
        ),
    )
    listening = socket.create_server(("127.0.0.1", 0))
    net = Internet(proxy, listening.getsockname()[1], secure, plain, audit)
    async with tls, clear, anyio.create_task_group() as group:
        group.start_soon(listener.serve, _survivor(secure))
        group.start_soon(clear.serve, _survivor(plain))
        group.start_soon(proxy.serve, listening)
        yield net
        group.cancel_scope.cancel()


def _at(rule: EgressRule, ports: frozenset[int]) -> EgressRule:
    return EgressRule(
        host=rule.host,
        methods=rule.methods,
        paths=rule.paths,
        plain_http=rule.plain_http,
        ports=ports,
        addresses=rule.addresses,
    )


def _survivor(origin: Origin) -> Callable[[ByteStream], Awaitable[None]]:
    """A server that outlives what clients do to it."""

    async def handle(stream: ByteStream) -> None:
        try:
            await origin.handle(stream)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return

    return handle
