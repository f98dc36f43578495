"""Secrets on their way: sealed in the store, opened for a session, exchanged when they expire."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Literal

import anyio
import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.service.token_server import Provider, provider

from mainspring.config import read_settings
from mainspring.core.errors import InvalidInput, NetworkRefused, NotFound, StoreCorrupt
from mainspring.log.records import Records
from mainspring.log.sqlite import open_sqlite
from mainspring.service.credential import KIND
from mainspring.service.credential_auth import (
    NewAuth,
    NewEnvironmentVariable,
    NewMcpOauth,
    NewStaticBearer,
    Secrets,
    server_key,
)
from mainspring.service.credentials import CreateCredential, Credentials
from mainspring.service.notice import Notice
from mainspring.service.refreshing import Refresher
from mainspring.service.token_endpoint import Post, Reply, shown
from mainspring.service.usable import Bearer, UsableCredentials, Variable, bearer_for
from mainspring.service.validating import Validator
from mainspring.service.vaults import CreateVault, Vaults
from mainspring.wiring.asking import Asker, Greeting
from mainspring.wiring.seals import AesSeal, open_seal

LOOPBACK = (ip_network("127.0.0.0/8"),)
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
Method = Literal["none", "client_secret_basic", "client_secret_post"]


@dataclass
class Time:
    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Desk:
    """Everything about vaults, over one real store."""

    records: Records
    time: Time = field(default_factory=Time)
    notices: list[Notice] = field(default_factory=list[Notice])

    def __post_init__(self) -> None:
        self.asker = Asker(allowed=LOOPBACK, seconds=5)
        self.vaults = Vaults(self.records, notify=self.notify, clock=self.time)
        self.credentials = Credentials(
            self.records, AesSeal(bytes(32)), self.vaults, notify=self.notify, clock=self.time
        )
        self.refresher = Refresher(
            self.credentials, self.asker, notify=self.notify, clock=self.time
        )
        self.ready = UsableCredentials(
            self.records, self.credentials, self.refresher, clock=self.time
        )

    async def notify(self, notice: Notice) -> None:
        self.notices.append(notice)

    def failures(self) -> list[Notice]:
        return [each for each in self.notices if each.type == "vault_credential.refresh_failed"]

    async def vault(self, *auths: NewAuth) -> str:
        vault = await self.vaults.create("acme", CreateVault(display_name="Ada"))
        for auth in auths:
            await self.credentials.create("acme", vault.id, CreateCredential(auth=auth))
        return vault.id

    async def token(self, vault_id: str) -> Bearer:
        [usable] = await self.ready.usable("acme", [vault_id])
        assert isinstance(usable, Bearer)
        return usable


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk, None]:
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        yield Desk(store.records)


@pytest.fixture
async def oauth() -> AsyncGenerator[Provider, None]:
    async with provider() as running:
        yield running


def oauth_of(oauth: Provider, method: Method = "none", **changes: object) -> NewAuth:
    secret = {} if method == "none" else {"client_secret": oauth.client_secret}
    wire = {
        "type": "mcp_oauth",
        "access_token": oauth.access_token,
        "mcp_server_url": f"{oauth.url}/mcp",
        "expires_at": NOW + timedelta(hours=1),
        "refresh": {
            "client_id": "client/1",
            "refresh_token": oauth.refresh_token,
            "token_endpoint": f"{oauth.url}/token",
            "token_endpoint_auth": {"type": method, **secret},
            "scope": "read write",
        },
        **changes,
    }
    return msgspec.convert(wire, NewMcpOauth)


def bearer(url: str, token: str) -> NewStaticBearer:
    return NewStaticBearer(mcp_server_url=url, token=token)


def variable(name: str, value: str, **wire: object) -> NewAuth:
    given = {"secret_name": name, "secret_value": value, "networking": {"type": "unrestricted"}}
    return msgspec.convert(
        {"type": "environment_variable", **given, **wire}, NewEnvironmentVariable
    )


async def test_a_session_gets_what_its_vaults_have_and_the_first_vault_wins(desk: Desk):
    limited = {"type": "limited", "allowed_hosts": ["api.Example.com", "*.x.org", "192.0.2.1"]}
    first = await desk.vault(
        variable("TOKEN", "first-value", networking=limited, injection_location={"body": True}),
        bearer("https://mcp.example.com/mcp", "first-token"),
    )
    second = await desk.vault(
        variable("TOKEN", "second-value"),
        variable("OTHER", "other-value"),
        bearer("https://MCP.example.com:443/mcp/", "second-token"),
    )
    found = await desk.ready.usable("acme", [first, second])
    variables = {each.name: each for each in found if isinstance(each, Variable)}
    assert {name: each.value for name, each in variables.items()} == {
        "TOKEN": "first-value",
        "OTHER": "other-value",
    }
    assert variables["TOKEN"].hosts == ("api.example.com", "*.x.org", "192.0.2.1")
    assert (variables["TOKEN"].in_headers, variables["TOKEN"].in_body) == (True, True)
    assert variables["OTHER"].hosts is None
    assert (variables["OTHER"].in_headers, variables["OTHER"].in_body) == (True, False)
    token = bearer_for("https://mcp.example.com/mcp", found)
    assert token is not None
    assert token.token == "first-token"
    assert bearer_for("https://mcp.example.com/other", found) is None
    assert "value" not in repr(found).replace("_value", "")
    assert "-token" not in repr(found)


async def test_what_is_archived_deleted_or_foreign_is_not_used(desk: Desk):
    vault = await desk.vault(variable("A", "value-of-a"), variable("B", "value-of-b"))
    assert await desk.ready.usable("rival", [vault]) == []
    assert await desk.ready.usable("acme", ["vlt_unknown"]) == []
    [one, two] = [each for each in await desk.ready.usable("acme", [vault])]
    await desk.credentials.archive("acme", vault, one.credential_id)
    await desk.credentials.delete("acme", vault, two.credential_id)
    assert await desk.ready.usable("acme", [vault]) == []
    with pytest.raises(InvalidInput, match="archived"):
        await desk.credentials.opened("acme", vault, one.credential_id)
    other = await desk.vault(variable("A", "value-of-a"))
    assert (await desk.vaults.active("acme", other)).id == other
    await desk.vaults.archive("acme", other)
    assert await desk.ready.usable("acme", [other]) == []
    with pytest.raises(InvalidInput, match="archived"):
        assert (await desk.vaults.active("acme", other)).id == other
    with pytest.raises(NotFound):
        await desk.vaults.active("rival", vault)


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_an_expired_token_is_exchanged_for_a_new_one(
    desk: Desk, oauth: Provider, method: Method
):
    oauth.client_secret = None if method == "none" else "the client's secret: 100%"
    vault = await desk.vault(oauth_of(oauth, method))
    assert (await desk.token(vault)).token == "access-token-number-0"
    desk.time.now += timedelta(minutes=59, seconds=30)
    fresh = await desk.token(vault)
    assert fresh.token == oauth.access_token == "access-token-number-1"
    assert fresh.expires_at == desk.time.now + timedelta(hours=1)
    [asked] = oauth.asked
    assert asked["grant_type"] == "refresh_token"
    assert asked["scope"] == "read write"
    assert ("client_id" in asked) == (method != "client_secret_basic")
    assert asked.get("basic_id") == ("client/1" if method == "client_secret_basic" else None)
    assert (await desk.token(vault)).token == fresh.token
    desk.time.now += timedelta(hours=2)
    assert (await desk.token(vault)).token == "access-token-number-2"
    assert desk.failures() == []


async def test_many_who_ask_at_once_make_one_exchange(desk: Desk, oauth: Provider):
    vault = await desk.vault(oauth_of(oauth))
    desk.time.now += timedelta(hours=2)
    tokens: list[str] = []

    async def ask() -> None:
        tokens.append((await desk.token(vault)).token)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(ask)
    assert tokens == ["access-token-number-1"] * 10
    assert len(oauth.asked) == 1


async def test_another_process_that_was_faster_is_no_failure(desk: Desk, oauth: Provider):
    vault = await desk.vault(oauth_of(oauth))
    [usable] = await desk.ready.usable("acme", [vault])
    stale = await desk.credentials.opened("acme", vault, usable.credential_id)
    desk.time.now += timedelta(hours=2)

    async def overtaken(post: Post) -> Reply:
        await desk.refresher.refresh(stale)
        return await desk.asker(post)

    slow = Refresher(desk.credentials, overtaken, notify=desk.notify, clock=desk.time)
    exchange = await slow.refresh(stale)
    assert exchange.outcome == "succeeded"
    assert exchange.opened.secrets.value == oauth.access_token
    assert desk.failures() == []


async def test_a_change_during_an_exchange_loses_neither(desk: Desk, oauth: Provider):
    vault = await desk.vault(oauth_of(oauth))
    [usable] = await desk.ready.usable("acme", [vault])
    opened = await desk.credentials.opened("acme", vault, usable.credential_id)

    async def renamed_meanwhile(post: Post) -> Reply:
        reply = await desk.asker(post)
        named = msgspec.structs.replace(opened.credential, display_name="Slack")
        await desk.credentials.keep(opened, named, opened.secrets)
        return reply

    slow = Refresher(desk.credentials, renamed_meanwhile, clock=desk.time)
    exchange = await slow.refresh(opened)
    assert exchange.opened.credential.display_name == "Slack"
    assert exchange.opened.secrets.refresh_token == oauth.refresh_token


async def test_a_refused_refresh_token_is_told_once_and_not_sent_again(desk: Desk, oauth: Provider):
    vault = await desk.vault(oauth_of(oauth))
    oauth.refresh_token = "revoked"
    desk.time.now += timedelta(hours=2)
    assert (await desk.token(vault)).token == "access-token-number-0"
    assert (await desk.token(vault)).token == "access-token-number-0"
    assert len(oauth.asked) == 1
    [notice] = desk.failures()
    assert (notice.tenant, notice.vault_id) == ("acme", vault)


async def test_a_passing_failure_is_tried_again_and_nobody_is_told(desk: Desk, oauth: Provider):
    vault = await desk.vault(oauth_of(oauth))
    desk.time.now += timedelta(hours=2)
    oauth.answers += [web.Response(status=503), web.Response(status=429)]
    for _ in range(2):
        assert (await desk.token(vault)).token == "access-token-number-0"
    assert (await desk.token(vault)).token == "access-token-number-3"
    assert desk.failures() == []


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
async def test_what_is_no_grant_changes_nothing(
    desk: Desk, oauth: Provider, answer: dict[str, object]
):
    vault = await desk.vault(oauth_of(oauth))
    desk.time.now += timedelta(hours=2)
    oauth.answers.append(web.Response(**answer))  # pyright: ignore[reportArgumentType]
    assert (await desk.token(vault)).token == "access-token-number-0"
    assert len(desk.failures()) == 1


async def test_a_credential_says_whether_it_works(desk: Desk, oauth: Provider):
    vault = await desk.vault(oauth_of(oauth))
    [usable] = await desk.ready.usable("acme", [vault])
    validator = Validator(
        desk.credentials, probe=Greeting(desk.asker), refresher=desk.refresher, clock=desk.time
    )

    async def asked(with_: Validator = validator):
        return await with_.validate("acme", vault, usable.credential_id)

    good = await asked()
    assert (good.status, good.mcp_probe, good.refresh) == ("valid", None, None)
    assert good.has_refresh_token
    assert (await asked(Validator(desk.credentials))).status == "unknown"

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


async def test_a_server_that_does_not_answer_leaves_it_open(desk: Desk, oauth: Provider):
    away = await desk.vault(oauth_of(oauth, mcp_server_url="http://127.0.0.1:9/mcp"))
    plain = await desk.vault(oauth_of(oauth, refresh=None))
    validator = Validator(desk.credentials, probe=Greeting(desk.asker), refresher=desk.refresher)
    [usable] = await desk.ready.usable("acme", [away])
    open_ = await validator.validate("acme", away, usable.credential_id)
    assert open_.status == "unknown"
    assert open_.mcp_probe is not None
    assert open_.mcp_probe.http_response is None
    oauth.access_token = "another"
    [usable] = await desk.ready.usable("acme", [plain])
    gone = await validator.validate("acme", plain, usable.credential_id)
    assert (gone.status, gone.has_refresh_token) == ("invalid", False)
    assert gone.refresh is not None
    assert gone.refresh.status == "no_refresh_token"


async def test_servers_inside_the_operators_network_are_not_asked(oauth: Provider):
    asker = Asker()
    with pytest.raises(NetworkRefused):
        await asker(Post(url=f"{oauth.url}/token", headers=(), body=b""))
    assert oauth.asked == []


async def test_a_sealed_secret_opens_for_its_own_credential_and_tenant_only(desk: Desk):
    vault = await desk.vault(variable("A", "value-of-a"), variable("B", "value-of-b"))
    [one, two] = await desk.ready.usable("acme", [vault])
    stolen = await desk.records.content(KIND, one.credential_id)
    opened = await desk.credentials.opened("acme", vault, two.credential_id)
    seal = AesSeal(bytes(32))
    context = msgspec.json.encode(("vault credential", "acme", one.credential_id)).decode()
    assert b"value-of-a" in seal.unseal(stolen, context)
    for other in (two.credential_id, ""):
        wrong = msgspec.json.encode(("vault credential", "acme", other)).decode()
        with pytest.raises(StoreCorrupt):
            seal.unseal(stolen, wrong)
    with pytest.raises(StoreCorrupt):
        AesSeal(b"1" * 32).unseal(stolen, context)
    assert opened.secrets.value == "value-of-b"


@given(st.binary(max_size=64), st.text(max_size=20), st.binary(min_size=1, max_size=40))
def test_a_seal_gives_back_what_was_sealed_and_nothing_else(
    plain: bytes, context: str, noise: bytes
):
    seal = AesSeal(bytes(32))
    sealed = seal.seal(plain, context)
    assert seal.unseal(sealed, context) == plain
    assert seal.seal(plain, context) != sealed
    for wrong in (noise, sealed[:-1], sealed + noise, bytes([sealed[0] ^ 1]) + sealed[1:]):
        with pytest.raises(StoreCorrupt):
            seal.unseal(wrong, context)


def test_the_key_is_the_vaults(tmp_path: Path):
    settings = read_settings(environ={"MAINSPRING_VAULT": str(tmp_path / "vault.json")})
    sealed = open_seal(settings).seal(b"plain", "x")
    assert open_seal(settings).unseal(sealed, "x") == b"plain"
    assert (tmp_path / "vault.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("https://a.org/mcp", "HTTPS://A.org:443/mcp/", True),
        ("http://a.org", "http://a.org:80/", True),
        ("https://a.org/mcp", "https://a.org/MCP", False),
        ("https://a.org/mcp", "http://a.org/mcp", False),
        ("https://a.org/mcp", "https://a.org:8443/mcp", False),
        ("https://a.org/mcp", "https://a.org/mcp?team=1", False),
    ],
)
def test_a_server_is_the_same_however_its_url_is_written(one: str, other: str, is_same: bool):
    assert (server_key(one) == server_key(other)) == is_same


def test_a_told_answer_has_no_secret_in_any_common_writing():
    secrets = Secrets(value='a "quoted" token', refresh_token="p%d/ +x", client_secret="third-one")
    body = (
        'a \\"quoted\\" token a "quoted" token p%25d%2F%20%2Bx p%25d%2F+%2Bx third-one' + "x" * 9999
    )
    told = shown(Reply(status=400, content_type="text/plain", body=body.encode()), secrets)
    assert told.body_truncated
    for secret in ("quoted", "p%25d", "third-one"):
        assert secret not in told.body
    assert "third-one" not in repr(secrets)
