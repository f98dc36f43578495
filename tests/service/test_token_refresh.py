"""Access tokens that expire, against a real token endpoint and MCP server on loopback."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import anyio
import msgspec
import pytest
from aiohttp import web
from tests.at_once import at_once
from tests.service.token_server import Provider, provider
from tests.service.vault_setup import Desk, Method, oauth_of

from mainspring.capabilities.network.outbound_http import OutboundHttpClient
from mainspring.core.errors import NetworkRefused
from mainspring.core.ports import HttpPost, HttpReply
from mainspring.log.sqlite import open_sqlite
from mainspring.service.vaults.credential_auth import Secrets
from mainspring.service.vaults.credential_validation import CredentialValidator, McpInitializeProbe
from mainspring.service.vaults.credentials import UpdateCredential
from mainspring.service.vaults.token_refresh import Refresher, redacted_response


@pytest.fixture
async def context(tmp_path: Path) -> AsyncGenerator[Desk]:
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        yield Desk(store.records)


@pytest.fixture
async def oauth() -> AsyncGenerator[Provider]:
    async with provider() as running:
        yield running


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_an_expired_token_is_refreshed(context: Desk, oauth: Provider, method: Method):
    oauth.client_secret = None if method == "none" else "the client's secret: 100%"
    vault = await context.vault(oauth_of(oauth, method))
    assert (await context.token(vault)).token == "access-token-number-0"
    context.time.now += timedelta(minutes=59, seconds=30)
    fresh = await context.token(vault)
    assert fresh.token == oauth.access_token == "access-token-number-1"
    assert fresh.expires_at == context.time.now + timedelta(hours=1)
    [asked] = oauth.asked
    assert (asked["grant_type"], asked["scope"]) == ("refresh_token", "read write")
    assert ("client_id" in asked) == (method != "client_secret_basic")
    assert asked.get("basic_id") == ("client/1" if method == "client_secret_basic" else None)
    assert (await context.token(vault)).token == fresh.token
    context.time.now += timedelta(hours=2)
    assert (await context.token(vault)).token == "access-token-number-2"
    assert context.failures() == []


async def test_concurrent_requests_make_one_refresh(context: Desk, oauth: Provider):
    vault = await context.vault(oauth_of(oauth))
    context.time.now += timedelta(hours=2)
    tokens = await at_once(lambda _: context.token(vault), range(10))
    assert [item.token for item in tokens] == ["access-token-number-1"] * 10
    assert len(oauth.asked) == 1


async def test_concurrent_processes_make_one_refresh(context: Desk, oauth: Provider):
    vault = await context.vault(oauth_of(oauth))
    [usable] = await context.ready.usable("acme", [vault])
    stale = await context.credentials.unseal("acme", vault, usable.credential_id)

    async def ask(_: int) -> str:  # with locks of its own, as another process has
        other = Refresher(
            context.credentials, context.http_client, notify=context.notify, clock=context.time
        )
        return (await other.refresh(stale)).unsealed.secrets.value

    assert await at_once(ask, range(5)) == ["access-token-number-1"] * 5
    assert len(oauth.asked) == 1


async def test_a_refresh_whose_process_died_is_taken_over(context: Desk, oauth: Provider):
    vault = await context.vault(oauth_of(oauth))
    [usable] = await context.ready.usable("acme", [vault])
    opened = await context.credentials.unseal("acme", vault, usable.credential_id)
    await context.credentials.claim(opened, context.time.now + timedelta(seconds=30))
    context.time.now += timedelta(hours=2)
    with anyio.fail_after(60):
        assert (await context.token(vault)).token == "access-token-number-1"


async def test_a_concurrent_update_and_a_refresh_are_both_kept(context: Desk, oauth: Provider):
    vault = await context.vault(oauth_of(oauth))
    [usable] = await context.ready.usable("acme", [vault])
    opened = await context.credentials.unseal("acme", vault, usable.credential_id)

    async def renamed_meanwhile(post: HttpPost) -> HttpReply:
        reply = await context.http_client(post)
        asked = UpdateCredential(display_name="Slack")
        await context.credentials.update("acme", vault, usable.credential_id, asked)
        return reply

    slow = Refresher(context.credentials, renamed_meanwhile, clock=context.time)
    exchange = await slow.refresh(opened)
    assert exchange.unsealed.credential.display_name == "Slack"
    assert exchange.unsealed.secrets.refresh_token == oauth.refresh_token


async def test_a_refused_refresh_token_is_not_sent_again(context: Desk, oauth: Provider):
    vault = await context.vault(oauth_of(oauth))
    oauth.refresh_token = "revoked"
    context.time.now += timedelta(hours=2)
    assert (await context.token(vault)).token == "access-token-number-0"
    assert (await context.token(vault)).token == "access-token-number-0"
    assert len(oauth.asked) == 1
    [notice] = context.failures()
    assert (notice.tenant, notice.vault_id) == ("acme", vault)


async def test_a_temporary_failure_is_retried_without_a_notification(
    context: Desk, oauth: Provider
):
    vault = await context.vault(oauth_of(oauth))
    context.time.now += timedelta(hours=2)
    oauth.answers += [web.Response(status=503), web.Response(status=429)]
    for _ in range(2):
        assert (await context.token(vault)).token == "access-token-number-0"
    assert (await context.token(vault)).token == "access-token-number-3"
    assert context.failures() == []


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "no JSON"},
        {"text": '{"ok": false}'},
        {"text": '{"access_token": ""}'},
        {"text": '{"access_token": 1}'},
        {"text": "{}", "status": 302, "headers": {"location": "/token"}},
        {"body": b"\xff\xfe"},
    ],
)
async def test_an_invalid_token_response_keeps_the_old_token_and_notifies(
    context: Desk, oauth: Provider, answer: dict[str, object]
):
    vault = await context.vault(oauth_of(oauth))
    context.time.now += timedelta(hours=2)
    oauth.answers.append(web.Response(**answer))  # pyright: ignore[reportArgumentType]
    assert (await context.token(vault)).token == "access-token-number-0"
    assert len(context.failures()) == 1


async def test_validation_reports_whether_a_credential_works(context: Desk, oauth: Provider):
    vault = await context.vault(oauth_of(oauth))
    [usable] = await context.ready.usable("acme", [vault])
    validator = CredentialValidator(
        context.credentials,
        probe=McpInitializeProbe(context.http_client),
        refresher=context.refresher,
        clock=context.time,
    )

    async def asked(with_: CredentialValidator = validator):
        return await with_.validate("acme", vault, usable.credential_id)

    good = await asked()
    assert (good.status, good.mcp_probe, good.refresh) == ("valid", None, None)
    assert good.has_refresh_token
    assert (await asked(CredentialValidator(context.credentials))).status == "unknown"

    oauth.access_token = "another"
    renewed = await asked()
    assert (renewed.status, renewed.mcp_probe) == ("valid", None)
    assert renewed.refresh is not None
    assert renewed.refresh.status == "succeeded"

    oauth.access_token = "another"
    oauth.answers.append(web.Response(status=503, text="later"))
    later = await asked()
    assert later.status == "unknown"
    assert later.refresh is not None
    assert later.refresh.http_response is not None
    assert later.refresh.http_response.status_code == 503

    oauth.refresh_token = "another"
    bad = await asked()
    assert bad.status == "invalid"
    assert bad.mcp_probe is not None
    assert bad.mcp_probe.method == "initialize"
    assert bad.mcp_probe.http_response is not None
    assert bad.mcp_probe.http_response.status_code == 401
    assert bad.refresh is not None
    assert bad.refresh.status == "failed"
    told = msgspec.json.encode(bad).decode()
    assert "-token-number-" not in told
    assert told.count("[redacted]") == 2


async def test_validation_without_a_server_response_is_unknown(context: Desk, oauth: Provider):
    away = await context.vault(oauth_of(oauth, mcp_server_url="http://127.0.0.1:9/mcp"))
    plain = await context.vault(oauth_of(oauth, refresh=None))
    validator = CredentialValidator(
        context.credentials,
        probe=McpInitializeProbe(context.http_client),
        refresher=context.refresher,
    )
    [usable] = await context.ready.usable("acme", [away])
    open_ = await validator.validate("acme", away, usable.credential_id)
    assert open_.status == "unknown"
    assert open_.mcp_probe is not None
    assert open_.mcp_probe.http_response is None
    oauth.access_token = "another"
    [usable] = await context.ready.usable("acme", [plain])
    gone = await validator.validate("acme", plain, usable.credential_id)
    assert (gone.status, gone.has_refresh_token) == ("invalid", False)
    assert gone.refresh is not None
    assert gone.refresh.status == "no_refresh_token"


async def test_servers_inside_the_operators_network_are_not_contacted(oauth: Provider):
    http_client = OutboundHttpClient()
    with pytest.raises(NetworkRefused):
        await http_client(HttpPost(url=f"{oauth.url}/token", headers=(), body=b""))
    assert oauth.asked == []


def test_a_reported_response_contains_no_secret_in_any_common_encoding():
    secrets = Secrets(value='a "quoted" token', refresh_token="p%d/ +x", client_secret="third-one")
    body = (
        'a \\"quoted\\" token a "quoted" token p%25d%2F%20%2Bx p%25d%2F+%2Bx third-one' + "x" * 9999
    )
    told = redacted_response(
        HttpReply(status=400, content_type="text/plain", body=body.encode()), secrets
    )
    assert told.body_truncated
    for secret in ("quoted", "p%25d", "third-one"):
        assert secret not in told.body
    assert "third-one" not in repr(secrets)
