"""OAuth for MCP servers: what a person agrees to once is used, renewed and widened; what a hostile
authorization server tries gets it no token.
"""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.at_once import at_once
from tests.mcp.authorization import Agreeing, AuthorizingServer, MemoryGrants, agreeing_grant
from tests.mcp.loopback_server import Answer, Asked, loopback_server
from tests.mcp.peers import http_client

from mainspring.capabilities.mcp.login.oauth import ClientConfig
from mainspring.capabilities.mcp.login.oauth_device import DeviceScreen
from mainspring.capabilities.mcp.transports.server_auth import Refusal
from mainspring.capabilities.network.outbound_http import GuardedFetch
from mainspring.config import read_settings
from mainspring.core.errors import McpFailed, NetworkRefused
from mainspring.runtime.mcp_server import McpServer
from mainspring.wiring import mcp_servers


@pytest.fixture
def server() -> Generator[AuthorizingServer]:
    with loopback_server(AuthorizingServer()) as made:
        assert isinstance(made, AuthorizingServer)
        yield made


async def connect(server: AuthorizingServer, **more: object) -> list[str]:
    grant = agreeing_grant(server.mcp, **more)  # type: ignore[arg-type]
    async with http_client(server.mcp, auth=grant) as client:
        try:
            await client.connect()
            return [tool.name for tool in (await client.list_tools()).tools]
        except McpFailed as error:
            failure = error
    raise failure


async def test_a_user_authorizes_once_and_the_token_is_for_this_server_only(
    server: AuthorizingServer,
) -> None:
    store, learned = MemoryGrants(), list[str]()
    assert "write" in await connect(server, store=store, learned=learned)
    [form] = server.forms
    assert (form["resource"], form["client_id"]) == (server.mcp, "registered")
    assert store.grant is not None
    assert set(server.sent_tokens()) == {None, store.grant.access_token}
    assert {store.grant.access_token, store.grant.refresh_token} <= set(learned)
    assert store.grant.access_token not in repr(store.grant)
    await connect(server, store=store, browser=None)
    assert len(server.forms) == 1


async def test_a_token_is_refreshed_before_expiry_and_when_refused(
    server: AuthorizingServer,
) -> None:
    store = MemoryGrants()
    server.token = {"expires_in": 30}  # within the margin
    await connect(server, store=store)
    first, *later = server.forms
    assert first["grant_type"] == "authorization_code"
    sent = [form["refresh_token"].rpartition("-")[0] for form in later]
    assert sent == [f"refresh-{number + 1}" for number in range(len(later))]  # each once
    assert sent
    server.token = {}
    server.tokens = set()  # revoked, though it has not expired
    browser = Agreeing()
    await connect(server, store=store, browser=browser)
    assert server.forms[-1]["grant_type"] == "refresh_token"
    assert browser.opened == []


async def test_more_scopes_are_requested_when_the_server_names_them(
    server: AuthorizingServer,
) -> None:
    speak = server.speak

    def with_scopes(asked: Asked) -> Answer:
        if asked.json["method"] == "tools/list" and len(server.forms) == 1:
            challenge = 'Bearer error="insufficient_scope", scope="write"'
            return Answer(403, headers={"WWW-Authenticate": challenge})
        return speak(asked)

    server.speak = with_scopes
    server.resource = {"scopes_supported": ["read"]}
    browser = Agreeing()
    await connect(server, browser=browser)
    asked = [request.query["scope"] for request in server.requests if request.path == "/authorize"]
    assert asked == ["read", "read write"]


HOSTILE: dict[str, tuple[str, dict[str, object], str]] = {
    "another issuer in its metadata": ("metadata", {"issuer": "https://evil.example"}, "issuer"),
    "no PKCE": ("metadata", {"code_challenge_methods_supported": ["plain"]}, "PKCE"),
    "a token endpoint without TLS": (
        "metadata",
        {"token_endpoint": "http://evil.example/t"},
        "https",
    ),
    "an authorize page of another scheme": (
        "metadata",
        {"authorization_endpoint": "file:///etc/passwd"},
        "https",
    ),
    "another resource": ("resource", {"resource": "https://bank.example/mcp"}, "another resource"),
    "a mix-up by iss": ("callback", {"iss": "https://evil.example"}, "iss"),
    "a missing iss": ("callback", {"iss": None}, "iss"),
    "another state": ("callback", {"state": "forged"}, "state"),
    "no code": ("callback", {"code": None}, "code"),
    "a replayed code": ("callback", {"code": "used-before"}, "invalid_grant"),
    "an error with markup": ("callback", {"error": "access_denied"}, "access_denied"),
    "no token": ("token", {"access_token": ""}, "bearer"),
    "another kind of token": ("token", {"token_type": "mac"}, "bearer"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_authorization_server_receives_no_token(
    server: AuthorizingServer, name: str
) -> None:
    field, fields, why = HOSTILE[name]
    setattr(server, field, fields)
    store = MemoryGrants()
    with pytest.raises(McpFailed, match=why):
        await connect(server, store=store)
    assert store.grant is None
    assert set(server.sent_tokens()) == {None}


async def test_foreign_redirecting_and_invalid_metadata_are_refused(
    server: AuthorizingServer,
) -> None:
    path = "/.well-known/oauth-authorization-server"
    for answer, why in (
        (Answer(302, headers={"Location": f"{server.url}/elsewhere"}), "redirects"),
        (Answer(body=b"x" * 1_000_000), "not in the expected format"),
        (Answer(body=["nonsense"]), "not in the expected format"),
        (Answer(404), "no authorization server"),
    ):
        server.routes[path] = lambda _, answer=answer: answer
        with pytest.raises(McpFailed, match=why):
            await connect(server)
    server.challenge = 'Bearer resource_metadata="https://evil.example/metadata"'
    with pytest.raises(McpFailed, match="another host"):
        await connect(server)


async def test_metadata_of_a_public_server_cannot_point_to_private_addresses(
    tmp_path: Path,
) -> None:
    fetch = GuardedFetch("https://1.1.1.1/mcp")
    for url in ("https://127.0.0.1/x", "https://169.254.169.254/x", "https://[::1]/x"):
        with pytest.raises(NetworkRefused):
            await fetch(url, {})


async def test_a_configured_client_id_or_metadata_document_is_used(
    server: AuthorizingServer,
) -> None:
    await connect(server, config=ClientConfig(client_id="mine"))
    assert server.forms[-1]["client_id"] == "mine"
    server.tokens = set()
    server.metadata = {"client_id_metadata_document_supported": True}
    document = "https://client.example/metadata.json"
    await connect(server, config=ClientConfig(client_metadata_url=document))
    assert server.forms[-1]["client_id"] == document
    assert "/register" not in [request.path for request in server.requests]


async def test_grants_are_stored_in_the_vault_and_refreshed_once_by_many(
    server: AuthorizingServer, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environ = {"MAINSPRING_VAULT": str(home / "vault.json")}
    settings = replace(read_settings(environ=environ, folder=tmp_path), home=str(home))
    named = McpServer(name="books", transport="http", url=server.mcp)
    assert await mcp_servers.log_in(settings, named, Agreeing())
    store = mcp_servers.stored_grants(settings, named)
    grant = await store.load()
    assert grant is not None
    vault = Path(settings.vault).read_bytes()
    assert grant.access_token.encode() not in vault

    server.tokens = set()

    async def use(_: int) -> list[str]:
        auth = mcp_servers.server_auth(settings, named, lambda _: None)
        async with http_client(server.mcp, auth=auth) as client:
            await client.connect()
            return [tool.name for tool in (await client.list_tools()).tools]

    assert len(await at_once(use, range(4))) == 4
    assert [form["grant_type"] for form in server.forms].count("refresh_token") == 1
    assert await store.remove()
    auth = mcp_servers.server_auth(settings, named, lambda _: None)
    assert await auth.headers() == {}
    with pytest.raises(McpFailed, match="mainspring mcp auth books"):
        await auth.renew(Refusal(401, ""))


async def test_a_user_enters_a_device_code_on_another_machine(server: AuthorizingServer) -> None:
    server.device_errors = ["authorization_pending", "authorization_pending"]
    said, store = list[str](), MemoryGrants()
    screen = DeviceScreen(said.append, min_seconds=0.01)
    assert "write" in await connect(server, store=store, browser=screen)
    assert said == [f"Open {server.url}/enter in any browser and enter the code WDJB-MJHT"]
    asked, *polls = server.forms
    assert (asked["client_id"], asked["resource"]) == ("registered", server.mcp)
    assert [form["device_code"] for form in polls] == ["device-1"] * 3
    assert store.grant is not None
    assert store.grant.refresh_token is not None


@pytest.mark.parametrize(
    ("device", "errors", "metadata", "why"),
    [
        ({}, ["access_denied"], {}, "access_denied"),
        ({}, ["expired_token"], {}, "expired_token"),
        (
            {"expires_in": 0.05},
            ["authorization_pending"] * 99,
            {},
            "nobody approved the login within",
        ),
        ({"verification_uri": "javascript:alert(1)"}, [], {}, "not https"),
        ({"verification_uri": "http://evil.example/enter"}, [], {}, "not https"),
        (
            {},
            [],
            {"device_authorization_endpoint": None},
            "does not support device codes: use --paste",
        ),
        ({}, [], {"device_authorization_endpoint": "http://evil.example/d"}, "not https"),
    ],
)
async def test_an_unconfirmed_device_code_gives_no_token(
    server: AuthorizingServer,
    device: dict[str, object],
    errors: list[str],
    metadata: dict[str, object],
    why: str,
) -> None:
    server.device, server.device_errors, server.metadata = device, errors, metadata
    store = MemoryGrants()
    with pytest.raises(McpFailed, match=why):
        await connect(server, store=store, browser=DeviceScreen(lambda _: None, min_seconds=0.01))
    assert store.grant is None
