from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import Served, ids, served
from tests.api.vault_api import LATER, NOTICES, oauth_auth, routes, static, variable
from tests.at_once import at_once
from tests.service.token_server import Provider, provider


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Served]:
    NOTICES.clear()
    async with served(tmp_path, routes) as running:
        yield running


@pytest.fixture
async def oauth() -> AsyncGenerator[Provider]:
    async with provider() as running:
        yield running


async def test_a_vault_is_created_read_changed_archived_and_deleted(acme: AsyncAnthropic):
    made = await acme.beta.vaults.create(display_name="Ada", metadata={"user": "1"})
    assert made.id.startswith("vlt_")
    assert await acme.beta.vaults.retrieve(made.id) == made
    changed = await acme.beta.vaults.update(
        made.id, display_name="Ada L.", metadata={"user": None, "x": "y"}
    )
    assert (changed.display_name, changed.metadata) == ("Ada L.", {"x": "y"})
    archived = await acme.beta.vaults.archive(made.id)
    assert archived.archived_at is not None
    assert await acme.beta.vaults.archive(made.id) == archived
    assert await ids(acme.beta.vaults.list()) == []
    listed = acme.beta.vaults.list(include_archived=True)
    assert [item.id async for item in listed] == [made.id]
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await acme.beta.vaults.update(made.id, display_name="x")
    gone = await acme.beta.vaults.delete(made.id)
    assert (gone.id, gone.type) == (made.id, "vault_deleted")
    with pytest.raises(anthropic.NotFoundError):
        await acme.beta.vaults.retrieve(made.id)


async def test_vaults_and_credentials_are_listed_in_pages_newest_first(acme: AsyncAnthropic):
    vaults = [(await acme.beta.vaults.create(display_name=f"v{n}")).id for n in range(5)]
    assert await ids(acme.beta.vaults.list(limit=2)) == vaults[::-1]
    credentials = acme.beta.vaults.credentials
    made = [(await credentials.create(vaults[0], auth=variable(f"KEY_{n}"))).id for n in range(5)]
    assert await ids(credentials.list(vaults[0], limit=2)) == made[::-1]
    assert await ids(credentials.list(vaults[1])) == []
    await credentials.archive(made[2], vault_id=vaults[0])
    assert made[2] not in await ids(credentials.list(vaults[0]))
    everything = credentials.list(vaults[0], include_archived=True)
    assert [item.id async for item in everything] == made[::-1]
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await credentials.list(vaults[0], page="nonsense")
    with pytest.raises(anthropic.BadRequestError, match="limit"):
        await acme.beta.vaults.list(limit=101)


async def test_credentials_are_shown_without_their_secrets(api: Served, acme: AsyncAnthropic):
    vault = await acme.beta.vaults.create(display_name="Ada")
    credentials = acme.beta.vaults.credentials
    bearer = await credentials.create(vault.id, auth=static(), display_name="Bearer")
    assert bearer.id.startswith("vcrd_")
    assert (bearer.type, bearer.vault_id) == ("vault_credential", vault.id)
    assert bearer.auth.to_dict() == {
        "type": "static_bearer",
        "mcp_server_url": "https://mcp.example.com/mcp",
    }
    oauth = await credentials.create(vault.id, auth=oauth_auth(), metadata={"a": "b"})
    assert oauth.auth.to_dict(mode="json") == {
        "type": "mcp_oauth",
        "mcp_server_url": "https://auth.example.com/mcp",
        "expires_at": "2100-01-01T00:00:00Z",
        "refresh": {
            "client_id": "client",
            "token_endpoint": "https://auth.example.com/token",
            "token_endpoint_auth": {"type": "client_secret_post"},
            "resource": None,
            "scope": "read",
        },
    }
    limited = {"type": "limited", "allowed_hosts": ["api.example.com", "*.example.org"]}
    variables = await credentials.create(vault.id, auth=variable(networking=limited))
    assert variables.auth.to_dict() == {
        "type": "environment_variable",
        "secret_name": "API_KEY",
        "networking": limited,
        "injection_location": {"header": True, "body": False},
    }
    for item in (bearer, oauth, variables):
        assert await credentials.retrieve(item.id, vault_id=vault.id) == item


async def test_secrets_and_mutable_fields_can_be_changed(acme: AsyncAnthropic):
    vault = await acme.beta.vaults.create(display_name="Ada")
    creds = acme.beta.vaults.credentials
    made = await creds.create(vault.id, auth=variable(), display_name="one")
    changed = await creds.update(
        made.id,
        vault_id=vault.id,
        display_name="two",
        metadata={"a": "b"},
        auth={
            "type": "environment_variable",
            "secret_value": "another",
            "injection_location": {"body": True},
            "networking": {"type": "limited", "allowed_hosts": ["a.org"]},
        },
    )
    assert (changed.display_name, changed.metadata) == ("two", {"a": "b"})
    told = changed.auth.to_dict()
    assert told["injection_location"] == {"header": True, "body": True}
    assert told["networking"] == {"type": "limited", "allowed_hosts": ["a.org"]}
    with pytest.raises(anthropic.BadRequestError, match="injection_location"):
        await creds.update(
            made.id,
            vault_id=vault.id,
            auth={
                "type": "environment_variable",
                "injection_location": {"header": False, "body": False},
            },
        )
    with pytest.raises(anthropic.BadRequestError, match=r"auth\.type"):
        await creds.update(made.id, vault_id=vault.id, auth={"type": "static_bearer", "token": "x"})
    oauth = await creds.create(vault.id, auth=oauth_auth())
    moment = LATER + timedelta(hours=1)
    renewed = await creds.update(
        oauth.id,
        vault_id=vault.id,
        auth={
            "type": "mcp_oauth",
            "access_token": "new",
            "expires_at": moment,
            "refresh": {
                "refresh_token": "new",
                "scope": "",
                "token_endpoint_auth": {"type": "client_secret_basic", "client_secret": "new"},
            },
        },
    )
    assert renewed.auth.type == "mcp_oauth"
    assert renewed.auth.expires_at == moment
    assert renewed.auth.refresh is not None
    assert renewed.auth.refresh.scope is None
    assert renewed.auth.refresh.token_endpoint_auth.type == "client_secret_post"
    kept = await creds.update(oauth.id, vault_id=vault.id, auth={"type": "mcp_oauth"})
    assert kept.auth == renewed.auth
    public = await creds.create(
        vault.id,
        auth={
            "type": "mcp_oauth",
            "mcp_server_url": "https://public.example.com",
            "access_token": "x",
        },
    )
    with pytest.raises(anthropic.BadRequestError, match=r"auth\.refresh"):
        await creds.update(
            public.id,
            vault_id=vault.id,
            auth={"type": "mcp_oauth", "refresh": {"refresh_token": "x"}},
        )


async def test_a_server_or_variable_has_one_active_credential_per_vault(acme: AsyncAnthropic):
    vault = await acme.beta.vaults.create(display_name="Ada")
    other = await acme.beta.vaults.create(display_name="Bob")
    credentials = acme.beta.vaults.credentials
    first = await credentials.create(vault.id, auth=static())
    await credentials.create(other.id, auth=static())
    for same in (
        static("https://MCP.example.com:443/mcp/"),
        oauth_auth(mcp_server_url="https://mcp.example.com/mcp"),
    ):
        with pytest.raises(anthropic.ConflictError):
            await credentials.create(vault.id, auth=same)
    await credentials.create(vault.id, auth=variable())
    with pytest.raises(anthropic.ConflictError):
        await credentials.create(vault.id, auth=variable())
    archived = await credentials.archive(first.id, vault_id=vault.id)
    assert archived.archived_at is not None
    assert archived.auth == first.auth
    again = await credentials.create(vault.id, auth=static())
    await credentials.delete(again.id, vault_id=vault.id)
    await credentials.create(vault.id, auth=static())
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await credentials.update(first.id, vault_id=vault.id, display_name="x")


async def test_a_vault_has_at_most_twenty_credentials_under_concurrency(acme: AsyncAnthropic):
    vault = await acme.beta.vaults.create(display_name="Ada")
    credentials = acme.beta.vaults.credentials
    created = await at_once(
        lambda n: credentials.create(vault.id, auth=variable(f"KEY_{n}")),
        range(23),
        refusal=anthropic.BadRequestError,
    )
    assert len(created) == 20
    listed = acme.beta.vaults.credentials.list(vault.id, limit=100)
    assert len([item async for item in listed]) == 20


async def test_archiving_or_deleting_a_vault_removes_its_secrets(api: Served, acme: AsyncAnthropic):
    credentials = acme.beta.vaults.credentials
    kept = await acme.beta.vaults.create(display_name="kept")
    gone = await acme.beta.vaults.create(display_name="gone")
    one = await credentials.create(kept.id, auth=static())
    two = await credentials.create(gone.id, auth=static())
    await acme.beta.vaults.archive(kept.id)
    assert await api.records.content("vault_credential", one.id) == b""
    assert (await credentials.retrieve(one.id, vault_id=kept.id)).archived_at is not None
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await credentials.create(kept.id, auth=variable())
    await acme.beta.vaults.delete(gone.id)
    with pytest.raises(anthropic.NotFoundError):
        await credentials.retrieve(two.id, vault_id=gone.id)
    with pytest.raises(anthropic.NotFoundError):
        await credentials.list(gone.id)
    told = [(item.type, item.id) for item in NOTICES if not item.type.endswith("created")]
    assert told == [
        ("vault.archived", kept.id),
        ("vault_credential.archived", one.id),
        ("vault.deleted", gone.id),
        ("vault_credential.deleted", two.id),
    ]


async def test_a_credential_is_validated_against_its_server(oauth: Provider, acme: AsyncAnthropic):
    vault = await acme.beta.vaults.create(display_name="Ada")
    credentials = acme.beta.vaults.credentials
    oauth.access_token = "an-access-token"
    made = await credentials.create(vault.id, auth=oauth_auth(oauth.url))
    good = await credentials.mcp_oauth_validate(made.id, vault_id=vault.id)
    assert (good.type, good.status) == ("vault_credential_validation", "valid")
    assert (good.credential_id, good.vault_id) == (made.id, vault.id)
    oauth.access_token = "another"
    bad = await credentials.mcp_oauth_validate(made.id, vault_id=vault.id)
    assert bad.status == "invalid"
    assert bad.refresh is not None
    assert bad.refresh.status == "failed"
    assert [item.type for item in NOTICES][-1] == "vault_credential.refresh_failed"
    other = await credentials.create(vault.id, auth=variable())
    with pytest.raises(anthropic.BadRequestError, match="mcp_oauth"):
        await credentials.mcp_oauth_validate(other.id, vault_id=vault.id)
