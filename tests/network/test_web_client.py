"""Pages for tools: the rules and the addresses of the proxy, and caps."""

import gzip
import ssl
from collections.abc import Sequence

import pytest
from tests.network.internet import LOOPBACK, PUBLIC, Internet, at_home, ok

from mainspring.capabilities.network.addresses import Resolver
from mainspring.capabilities.network.rules import ALL_HOSTS, EgressRule, EgressRules
from mainspring.capabilities.network.web_client import WebFetch
from mainspring.core.errors import NetworkRefused


def web_fetch_for(net: Internet, *rules: EgressRule, resolver: Resolver = at_home) -> WebFetch:
    ports = frozenset((net.secure.port, net.plain.port))
    usual = (EgressRule(host="api.test", ports=ports, addresses=LOOPBACK),)
    trust = ssl.create_default_context(cadata=PUBLIC.certificate.decode())
    return WebFetch(
        EgressRules(rules or usual), net.audit.append, resolver=resolver, trust=trust, seconds=10
    )


async def test_a_page_is_fetched(net: Internet):
    net.secure.pieces = [ok(b"<p>hi</p>", b"Content-Type: text/html; charset=utf-8")]
    url = f"https://api.test:{net.secure.port}/a?b=c"
    page = await web_fetch_for(net)(url, max_bytes=1000)
    assert (page.url, page.status, page.media_type) == (url, 200, "text/html")
    assert (page.content, page.is_cut) == (b"<p>hi</p>", False)
    [fact] = net.audit
    assert (fact.host, fact.decision, fact.path, fact.status) == ("api.test", "allow", "/a", 200)


async def test_a_page_is_cut_at_the_size_limit_even_if_compressed(net: Internet):
    net.secure.pieces = [ok(gzip.compress(b"x" * 1_000_000), b"Content-Encoding: gzip")]
    page = await web_fetch_for(net)(f"https://api.test:{net.secure.port}/", max_bytes=1000)
    assert (page.content, page.is_cut) == (b"x" * 1000, True)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.test/",
        "http://api.test/",
        "https://api.test:22/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://2130706433/",
        "https://me:pw@api.test/",
        "file:///etc/passwd",
        "ftp://api.test/",
        "api.test",
        "https://api.test:x/",
        "https://[::1/",
        "https://a b/",
        "https:///x",
        "",
    ],
)
async def test_a_url_that_is_not_allowed_is_not_fetched(url: str, net: Internet):
    with pytest.raises(NetworkRefused):
        await web_fetch_for(net)(url, max_bytes=1000)
    assert net.secure.asked == []


async def test_a_private_address_is_not_fetched_even_if_every_host_is_allowed(net: Internet):
    fetch = web_fetch_for(net, *ALL_HOSTS.rules)
    with pytest.raises(NetworkRefused, match="no public address"):
        await fetch("https://api.test/", max_bytes=1000)
    assert [fact.decision for fact in net.audit] == ["deny"]


async def test_the_checked_address_is_the_one_that_is_connected(net: Internet):
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    async def rebinding(_: str) -> Sequence[str]:
        return answers.pop(0)

    fetch = web_fetch_for(net, resolver=rebinding)
    assert (await fetch(f"https://api.test:{net.secure.port}/", max_bytes=10)).status == 200
    assert len(answers) == 1


def redirect(target: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: {target}\r\n\r\n".encode()


async def test_a_redirect_within_the_host_is_followed_under_the_rules(net: Internet):
    async def answer(asked: bytes) -> Sequence[bytes]:
        return [redirect("/b") if b"GET /a " in asked else ok(b"here")]

    net.secure.answer = answer
    page = await web_fetch_for(net)(f"https://api.test:{net.secure.port}/a", max_bytes=10)
    assert (page.url, page.content) == (f"https://api.test:{net.secure.port}/b", b"here")
    rule = EgressRule(
        host="api.test", ports=frozenset((net.secure.port,)), addresses=LOOPBACK, paths=("/a",)
    )
    with pytest.raises(NetworkRefused):
        await web_fetch_for(net, rule)(f"https://api.test:{net.secure.port}/a", max_bytes=10)


@pytest.mark.parametrize(
    "target", ["https://evil.test/x", "http://169.254.169.254/", "//evil.test/"]
)
async def test_a_redirect_to_another_host_is_reported_and_not_followed(target: str, net: Internet):
    net.secure.pieces = [redirect(target)]
    page = await web_fetch_for(net)(f"https://api.test:{net.secure.port}/", max_bytes=1000)
    assert page.status == 302
    assert target.lstrip("/").encode() in page.content
    assert len(net.secure.asked) == 1


async def test_the_number_of_redirects_is_limited(net: Internet):
    net.secure.pieces = [redirect("/")]
    with pytest.raises(NetworkRefused, match="redirects more than"):
        await web_fetch_for(net)(f"https://api.test:{net.secure.port}/", max_bytes=1000)


async def test_a_redirect_to_plain_http_is_not_followed(net: Internet):
    net.secure.pieces = [redirect(f"http://api.test:{net.plain.port}/")]
    with pytest.raises(NetworkRefused):
        await web_fetch_for(net)(f"https://api.test:{net.secure.port}/", max_bytes=1000)
    assert net.plain.asked == []


async def test_an_untrusted_certificate_is_named_as_the_reason(net: Internet):
    fetch = WebFetch(
        EgressRules(
            (EgressRule(host="api.test", ports=frozenset((net.secure.port,)), addresses=LOOPBACK),)
        ),
        net.audit.append,
        resolver=at_home,
    )
    with pytest.raises(NetworkRefused, match="certificate"):
        await fetch(f"https://api.test:{net.secure.port}/", max_bytes=10)
