"""What a program in a sandbox may try with the proxy, and does not get."""

from collections.abc import Sequence
from ipaddress import ip_network

import anyio
import pytest
from tests.network.internet import LOOPBACK, Internet, internet, ok

from mainspring.capabilities.network.http1 import ProxyLimits
from mainspring.capabilities.network.rules import EgressRule, parse_rules
from mainspring.core.errors import InvalidInput
from mainspring.core.ports import Credential

GOOD = "Host: api.test:{port}"
MALFORMED = {
    "a length and chunks": [
        "POST / HTTP/1.1",
        GOOD,
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
    ],
    "two lengths": ["POST / HTTP/1.1", GOOD, "Content-Length: 5", "Content-Length: 6"],
    "two equal lengths": ["POST / HTTP/1.1", GOOD, "Content-Length: 5, 5"],
    "a signed length": ["POST / HTTP/1.1", GOOD, "Content-Length: +5"],
    "an unknown coding": ["POST / HTTP/1.1", GOOD, "Transfer-Encoding: xchunked"],
    "two codings": ["POST / HTTP/1.1", GOOD, "Transfer-Encoding: gzip, chunked"],
    "chunks in HTTP/1.0": ["POST / HTTP/1.0", GOOD, "Transfer-Encoding: chunked"],
    "a space before the colon": ["GET / HTTP/1.1", GOOD, "Content-Length : 5"],
    "a folded header": ["GET / HTTP/1.1", GOOD, "X: a", " b: c"],
    "a bare line end": ["GET / HTTP/1.1", GOOD, "X: a\nHost: evil.test"],
    "a bare carriage return": ["GET / HTTP/1.1", GOOD, "X: a\rHost: evil.test"],
    "a null": ["GET / HTTP/1.1", GOOD, "X: a\0b"],
    "a header without a name": ["GET / HTTP/1.1", GOOD, ": x"],
    "two hosts": ["GET / HTTP/1.1", GOOD, "Host: evil.test"],
    "no host": ["GET / HTTP/1.1"],
    "a URL inside a tunnel": ["GET https://evil.test/ HTTP/1.1", GOOD],
    "a tunnel inside a tunnel": ["CONNECT evil.test:443 HTTP/1.1", GOOD],
    "a fragment": ["GET /#x HTTP/1.1", GOOD],
    "another version": ["GET / HTTP/2.0", GOOD],
    "two spaces": ["GET  / HTTP/1.1", GOOD],
    "no version": ["GET /"],
}


@pytest.mark.parametrize("lines", MALFORMED.values(), ids=MALFORMED)
async def test_an_ambiguous_request_is_refused(lines: list[str], net: Internet):
    head = "\r\n".join([*lines, "", ""]).format(port=net.secure.port).encode()
    reply = await net.send("api.test", head + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")
    assert reply.status == 400
    assert net.secure.asked == []


@pytest.mark.parametrize(
    "host",
    ["other.test:{port}", "api.test:1", "api.test", "evil.test", "127.0.0.1", "me@api.test:{port}"],
)
async def test_domain_fronting_is_refused(host: str, net: Internet):
    named = host.format(port=net.secure.port)
    reply = await net.send("api.test", f"GET / HTTP/1.1\r\nHost: {named}\r\n\r\n".encode())
    assert reply.status in (421, 403)
    assert net.secure.asked == []
    assert [fact.decision for fact in net.audit] == ["deny"]


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("http://other.test:{port}/", "api.test"),
        ("http://other.test:{port}/", "other.test:{port}, other.test:{port}"),
        ("http://me:pass@other.test:{port}/", "other.test:{port}"),
        ("http://127.0.0.1:{port}/", "127.0.0.1:{port}"),
        ("http://[::1/", "x"),
        ("https://other.test:{port}/", "other.test:{port}"),
        ("ftp://other.test:{port}/", "other.test:{port}"),
        ("/", "other.test:{port}"),
        ("*", "other.test:{port}"),
    ],
)
async def test_a_plain_request_with_two_hosts_is_refused(target: str, host: str, net: Internet):
    request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".format(port=net.plain.port)
    assert (await net.raw(request.encode())).split(b" ")[1] in (b"400", b"403", b"421")
    assert net.plain.asked == []


async def test_pipelined_requests_are_forwarded_separately(net: Internet):
    host = f"Host: api.test:{net.secure.port}"
    first = f"GET /a HTTP/1.1\r\n{host}\r\nContent-Length: 0\r\n\r\n"
    second = f"POST /b HTTP/1.1\r\n{host}\r\nConnection: close\r\n\r\n"
    await net.send("api.test", (first + second).encode())
    assert [asked.split(b" ")[1] for asked in net.secure.asked] == [b"/a", b"/b"]
    assert [fact.path for fact in net.audit] == ["/a", "/b"]


async def test_hop_by_hop_headers_are_not_forwarded(net: Internet):
    dropped = ("Upgrade: websocket", "Proxy-Authorization: x", "TE: trailers", "X-Mine: 1")
    await net.get("api.test", "/", "Connection: upgrade, x-mine", *dropped)
    asked = net.secure.asked[0].lower()
    for header in dropped:
        assert b"\r\n" + header.partition(":")[0].lower().encode() not in asked


async def test_a_connection_uses_the_address_that_was_checked():
    answers = [["127.0.0.1"], ["127.0.0.2"]]

    async def rebinding(_: str) -> Sequence[str]:
        return answers.pop(0)

    rule = EgressRule(host="api.test", addresses=(ip_network("127.0.0.1/32"),))
    async with internet(rule, resolver=rebinding) as net:
        request = f"GET / HTTP/1.1\r\nHost: api.test:{net.secure.port}\r\n"
        await net.send("api.test", f"{request}\r\n{request}Connection: close\r\n\r\n".encode())
        assert (len(net.secure.asked), len(answers)) == (2, 1)  # it was asked for its address once
        assert await net.is_refused("api.test")


PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2001:0:7f00:1::",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "100::1",
    "not an address",
    "",
]


@pytest.mark.parametrize("address", PRIVATE)
async def test_a_name_that_resolves_to_a_private_address_is_refused(address: str):
    async def inside(_: str) -> Sequence[str]:
        return [address]

    async with internet(EgressRule(host="*"), resolver=inside) as net:
        assert await net.is_refused("metadata.test")
        assert [fact.decision for fact in net.audit] == ["deny"]


async def test_an_unresolvable_name_is_refused():
    async def unknown(_: str) -> Sequence[str]:
        raise OSError("no such name")

    async with internet(resolver=unknown) as net:
        assert await net.is_refused("api.test")


async def test_a_redirect_to_a_private_address_is_passed_on_but_not_reachable(net: Internet):
    inward = b"Location: http://169.254.169.254/latest"
    net.secure.pieces = [b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n" + inward + b"\r\n\r\n"]
    assert ((await net.get("api.test")).status, len(net.secure.asked)) == (302, 1)
    said = await net.raw(
        b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n"
    )
    assert said.startswith(b"HTTP/1.1 403")


SMALL = ProxyLimits(head_bytes=2000, headers=10, request_bytes=1000, response_bytes=3000)


async def test_oversized_requests_are_refused():
    async with internet(caps=SMALL) as net:
        assert (await net.get("api.test", "/", "X: " + "a" * 3000)).status == 431
        assert (await net.get("api.test", "/", *(f"X{n}: a" for n in range(10)))).status == 431
        assert (await net.get("api.test", method="PUT", body=b"x" * 1001)).status == 413
        assert net.secure.asked == []
        host = f"Host: api.test:{net.secure.port}"
        head = f"PUT / HTTP/1.1\r\n{host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        reply = await net.send("api.test", head + b"400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n")
        assert reply.status == 413


async def test_an_oversized_response_is_cut_off():
    async with internet(caps=SMALL) as net:
        net.secure.pieces = [ok(b"x" * 5000)]
        with pytest.raises(ValueError, match="invalid literal"):  # the last chunk never comes
            await net.get("api.test")


@pytest.mark.parametrize(
    "body",
    [b"zz\r\nabc\r\n", b"5\r\nabc\r\n0\r\n\r\n", b"2\r\nabc\r\n0\r\n\r\n", b"3\nabc\n", b"-1\r\n"],
)
async def test_malformed_chunks_are_refused(body: bytes):
    async with internet(caps=ProxyLimits(idle_seconds=0.3)) as net:
        host = f"Host: api.test:{net.secure.port}"
        head = f"PUT / HTTP/1.1\r\n{host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        assert (await net.send("api.test", head + body)).status in (400, 502)


async def test_slow_clients_time_out():
    async with internet(caps=ProxyLimits(head_seconds=0.2, connections=2)) as net:
        assert await net.raw(b"CONNECT api.test:") == b""
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(6):  # more than may be here at once
                    group.start_soon(net.raw, b"G")
        assert (await net.get("api.test")).status == 200


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\nZ: a\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"",
    ],
)
async def test_a_malformed_response_is_not_passed_on(answer: bytes, net: Internet):
    net.secure.pieces = [answer] if answer else []
    assert (await net.get("api.test")).status == 502


async def test_a_secret_that_does_not_fit_into_a_header_is_not_inserted():
    split = Credential(name="TOKEN", value="one\r\nX-Other: two", hosts=("api.test",))
    async with internet(credentials=[split]) as net:
        await net.get("api.test", "/", f"X: {net.placeholder}")
        assert f"X: {net.placeholder}\r\n".encode() in net.secure.asked[0]
        assert b"X-Other" not in net.secure.asked[0]
        assert net.audit[0].credential is None


async def test_a_wildcard_rule_reaches_only_public_addresses_and_named_ranges():
    async with internet(EgressRule(host="*", addresses=LOOPBACK)) as net:
        assert (await net.get("api.test")).status == 200
    async with internet(EgressRule(host="*")) as net:
        assert await net.is_refused("api.test")


async def test_an_address_is_a_host_only_for_a_rule_that_names_it():
    async with internet(EgressRule(host="*", addresses=LOOPBACK)) as net:
        for address in ("127.0.0.1", "127.1", "0x7f000001", "2130706433", "127.0.0.01"):
            assert await net.is_refused(address), address
    async with internet(EgressRule(host="127.0.0.1", addresses=LOOPBACK)) as net:
        async with net.tunnel("127.0.0.1"):
            pass  # it has a certificate for the address
        for other in ("127.0.0.2", "127.1", "2130706433", "api.test"):
            assert await net.is_refused(other), other
    for entry in ("10.0.0.5", {"host": "127.1", "addresses": ["127.0.0.0/8"]}):
        with pytest.raises(InvalidInput, match="is not a host name"):
            parse_rules({"type": "limited", "allowed_hosts": [entry]})
