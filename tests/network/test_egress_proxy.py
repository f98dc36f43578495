"""What gets out of a sandbox, where to, and with which secrets."""

import gzip
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from tests.network.internet import LOOPBACK, SECRET, SESSION, Internet, internet, ok
from tests.vault.encoded import SINGLE

from mainspring.capabilities.network.rules import EgressRule


async def test_a_placeholder_becomes_the_secret_only_in_headers_for_its_host(net: Internet):
    reply = await net.get("api.test", "/repos?page=2", f"Authorization: Bearer {net.placeholder}")
    assert (reply.status, reply.body) == (200, b"hello")
    assert f"Authorization: Bearer {SECRET}".encode() in net.secure.asked[0]
    [fact] = net.audit
    assert (fact.host, fact.decision, fact.rule) == ("api.test", "allow", "api.test")
    assert (fact.method, fact.path, fact.status) == ("GET", "/repos", 200)
    assert fact.credential == "TOKEN"


async def test_a_placeholder_in_basic_auth_becomes_the_secret(net: Internet):
    login = b64encode(f"me:{net.placeholder}".encode()).decode()
    await net.get("api.test", "/", f"authorization: basic {login}")
    assert b64encode(f"me:{SECRET}".encode()) in net.secure.asked[0]


async def test_a_placeholder_for_another_host_is_not_replaced(net: Internet):
    await net.get("other.test", "/", f"X-Key: {net.placeholder}")
    assert f"X-Key: {net.placeholder}".encode() in net.secure.asked[0]
    assert net.audit[0].credential is None


async def test_a_placeholder_in_the_url_or_body_is_not_replaced(net: Internet):
    body = net.placeholder.encode()
    path = f"/{net.placeholder}?key={net.placeholder}"
    await net.get("api.test", path, method="POST", body=body)
    [asked] = net.secure.asked
    assert asked.count(body) == 3
    assert SECRET.encode() not in asked
    assert net.audit[0].path == f"/{net.placeholder}"


async def test_plain_http_is_forwarded_if_a_rule_allows_it_and_without_secrets(net: Internet):
    for host in ("other.test", "api.test"):
        target = f"http://{host}:{net.plain.port}/x?q=1"
        lines = (f"GET {target} HTTP/1.1", f"Host: {host}:{net.plain.port}")
        key = f"X-Key: {net.placeholder}"
        said = await net.raw("\r\n".join((*lines, key, "Connection: close", "", "")).encode())
        assert said.startswith(b"HTTP/1.1 200" if host == "other.test" else b"HTTP/1.1 403")
    [asked] = net.plain.asked
    assert asked.startswith(b"GET /x?q=1 HTTP/1.1\r\n")
    assert net.placeholder.encode() in asked
    assert [fact.decision for fact in net.audit] == ["allow", "deny"]


async def test_an_unlisted_host_is_refused_before_connecting(net: Internet):
    assert await net.is_refused("evil.test")
    [fact] = net.audit
    assert (fact.host, fact.decision, fact.method) == ("evil.test", "deny", "CONNECT")
    assert net.secure.asked == []


async def test_a_wildcard_matches_subdomains_but_not_the_domain(net: Internet):
    assert (await net.get("a.wide.test")).status == 200
    for name in ("wide.test", "notwide.test", "a.wide.test.evil.test"):
        assert await net.is_refused(name)


async def test_only_the_ports_of_a_rule_can_be_reached(net: Internet):
    assert await net.is_refused("api.test", 22)


@pytest.mark.parametrize(
    "literal",
    ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]"],
)
async def test_an_ip_address_is_not_accepted_as_a_host(literal: str):
    async with internet(EgressRule(host="*", addresses=LOOPBACK)) as net:
        assert await net.is_refused(literal)
        assert [fact.decision for fact in net.audit] == ["deny"]


async def test_methods_and_paths_of_a_rule_are_enforced():
    rule = EgressRule(
        host="api.test", methods=frozenset(("GET",)), paths=("/repos/*/x",), addresses=LOOPBACK
    )
    async with internet(rule) as net:
        assert (await net.get("api.test", "/repos/me/x?y=/")).status == 200
        assert (await net.get("api.test", "/repos/me/x", method="POST")).status == 403
        for path in ("/repos/a/b/x", "/other", "/repos/../x", "/repos/%2e%2e/x", "/repos/a%2fb/x"):
            assert (await net.get("api.test", path)).status == 403, path
        assert [fact.decision for fact in net.audit] == ["allow", *["deny"] * 6]


async def test_a_server_with_an_untrusted_certificate_is_not_called():
    async with internet(trust=SESSION) as net:
        reply = await net.get("api.test", "/", f"X-Key: {net.placeholder}")
        assert reply.status == 502
        assert b"certificate" in reply.body
        assert net.secure.asked == []


async def test_a_certificate_of_another_host_is_not_trusted():
    async with internet(EgressRule(host="imposter.test", addresses=LOOPBACK)) as net:
        assert (await net.get("imposter.test")).status == 502
        assert net.secure.asked == []


async def test_a_tunnel_carries_several_requests(net: Internet):
    async with net.tunnel("api.test") as inner:
        for number in range(3):
            host = f"Host: api.test:{net.secure.port}"
            await inner.send(f"GET /{number} HTTP/1.1\r\n{host}\r\n\r\n".encode())
            said = b""
            while not said.endswith(b"0\r\n\r\n"):
                said += await inner.receive()
            assert b"hell" in said
        with anyio.fail_after(60):
            while len(net.audit) < 3:
                await anyio.lowlevel.checkpoint()
        assert [fact.path for fact in net.audit] == ["/0", "/1", "/2"]


async def test_chunked_bodies_and_expect_continue_are_supported(net: Internet):
    async with net.tunnel("api.test") as inner:
        host = f"Host: api.test:{net.secure.port}"
        lines = ("PUT / HTTP/1.1", host, "Transfer-Encoding: chunked", "Expect: 100-continue")
        await inner.send("\r\n".join((*lines, "", "")).encode())
        assert await inner.receive() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await inner.send(b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n")
        assert (await inner.receive()).startswith(b"HTTP/1.1 200")
        assert net.secure.asked[0].endswith(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert b"Expect" not in net.secure.asked[0]


def in_chunks(body: bytes, size: int) -> list[bytes]:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return [head, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]


VALUE = SECRET.encode()
SAID = f"your token is {SECRET}, is it not?".encode()
ECHOES: dict[str, Sequence[bytes]] = {
    "as it is": [ok(SAID)],
    "one byte a chunk": in_chunks(SAID, 1),
    "seven bytes a chunk": in_chunks(SAID, 7),
    "until the end": [b"HTTP/1.1 200 OK\r\n\r\n", SAID[:30], SAID[30:]],
    "packed": [ok(gzip.compress(SAID), b"Content-Encoding: gzip")],
    "packed, in chunks": [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        *in_chunks(gzip.compress(SAID), 5)[1:],
    ],
    "in base64": [ok(b"auth: " + b64encode(b"me:" + SECRET.encode()))],
    "in hexadecimal": [ok(SECRET.encode().hex().encode())],
    "in a URL": [ok(b"gh%22real%2Fsecret%2Bvalue%3D123")],
    "in JSON": [ok(b'{"token":"gh\\"real/secret+value=123"}')],
    "in a header": [ok(b"", b"X-Token: " + SECRET.encode())],
    "in a redirect": [
        ok(b"", b"Location: https://x.test/?t=" + SINGLE["percent, all of it"](VALUE))
    ],
    "in a cookie": [ok(b"", b"Set-Cookie: t=" + SINGLE["base64"](VALUE) + b"; HttpOnly")],
    "in a trailer": [*in_chunks(SAID, 9)[:-1], b"0\r\nX-Token: " + VALUE + b"\r\n\r\n"],
    **{
        f"{name}, three bytes a chunk": in_chunks(b"[" + encode(VALUE) + b"]", 3)
        for name, encode in SINGLE.items()
        if name not in ("upper case", "backwards")
    },
}


@pytest.mark.parametrize("pieces", ECHOES.values(), ids=ECHOES)
async def test_an_echoed_secret_is_replaced_by_its_placeholder(
    pieces: Sequence[bytes], net: Internet
):
    net.secure.pieces = pieces
    reply = await net.get("api.test", "/", f"X-Key: {net.placeholder}")
    whole = reply.raw + reply.body
    assert reply.status == 200
    assert net.placeholder.encode() in whole.replace(b"\r\n", b"")
    for form in (SECRET.encode(), b64encode(SECRET.encode())[:-4], SECRET.encode().hex().encode()):
        assert form not in whole
    assert b"secret" not in whole.lower()


async def test_range_requests_are_neither_forwarded_nor_answered():
    async with internet() as net:
        net.secure.pieces = [ok(SAID)]
        reply = await net.get("api.test", "/", "Range: bytes=0-20", "If-Range: x", "x-ms-range: 1")
        assert net.placeholder.encode() in reply.body
        assert b"range" not in net.secure.asked[0].lower()
        net.secure.pieces = [SAID[:20].join((b"HTTP/1.1 206 P\r\nContent-Length: 20\r\n\r\n", b""))]
        assert (await net.get("api.test")).status == 502
    async with internet(credentials=()) as net:  # with nothing to hide, it is
        await net.get("api.test", "/", "Range: bytes=0-20")
        assert b"Range: bytes=0-20" in net.secure.asked[0]


async def test_a_secret_in_a_header_name_is_not_passed_on(net: Internet):
    net.secure.pieces = [ok(b"", b"X-" + VALUE.hex().encode() + b": 1", b"X-Other: 2")]
    reply = await net.get("api.test")
    assert VALUE.hex().encode() not in reply.raw
    assert reply.headers[b"x-other"] == b"2"


async def test_a_response_in_an_unsupported_encoding_is_not_passed_on():
    async with internet() as net:
        net.secure.pieces = [ok(b"\x0b\x02\x80", b"Content-Encoding: br")]
        assert (await net.get("api.test")).status == 502
    async with internet(credentials=()) as net:  # with nothing to hide, it is
        net.secure.pieces = [ok(b"\x0b\x02\x80", b"Content-Encoding: br")]
        reply = await net.get("api.test")
        assert (reply.body, reply.headers[b"content-encoding"]) == (b"\x0b\x02\x80", b"br")
        assert reply.headers[b"content-length"] == b"3"


async def test_head_requests_and_empty_responses_pass(net: Internet):
    net.secure.pieces = [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"]
    reply = await net.get("api.test", method="HEAD")
    assert (reply.status, reply.headers[b"content-length"], reply.body) == (200, b"5", b"")
    net.secure.pieces = [b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"]
    reply = await net.get("api.test", method="DELETE")
    assert (reply.status, reply.body) == (204, b"")


async def test_a_response_before_the_end_of_the_request_is_passed_on(net: Internet):
    async def refuse(_: bytes) -> Sequence[bytes]:
        return [b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n"]

    net.secure.answer = refuse
    assert (await net.get("api.test", method="PUT", body=b"x" * 200_000)).status == 413


async def test_an_unused_tunnel_is_audited(net: Internet):
    async with net.tunnel("api.test"):
        pass
    with anyio.fail_after(60):
        while not net.audit:
            await anyio.lowlevel.checkpoint()
    assert [(fact.method, fact.decision) for fact in net.audit] == [("CONNECT", "allow")]


CLIENT = """
import os, urllib.request
request = urllib.request.Request(os.environ["URL"], headers={"X-Key": os.environ["TOKEN"]})
print(urllib.request.urlopen(request).read().decode())
"""


async def test_an_ordinary_program_needs_only_the_environment_variables(
    tmp_path: Path, net: Internet
):
    net.secure.pieces = [ok(f"you sent {SECRET}".encode())]
    bundle = tmp_path / "bundle.pem"
    net.proxy.certificate_authority.write_bundle(bundle)
    env = net.proxy.environment(
        ["TOKEN", "UNKNOWN"], address=f"127.0.0.1:{net.port}", bundle=bundle
    )
    url = f"https://api.test:{net.secure.port}/"
    with anyio.fail_after(60):
        ran = await anyio.run_process([sys.executable, "-I", "-c", CLIENT], env={**env, "URL": url})
    assert ran.stdout.decode().strip() == f"you sent {net.placeholder}"
    assert f"X-Key: {SECRET}".encode() in net.secure.asked[0]
    assert SECRET not in str(env)
    assert "UNKNOWN" not in env
    assert bundle.read_bytes().count(b"BEGIN CERTIFICATE") > 1
    assert b"PRIVATE KEY" not in bundle.read_bytes()
