"""Secrets on their way: sealed in the store, opened for a session, gone when they should be."""

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.vault_setup import Desk, bearer, variable

from mainspring.capabilities.vault.aes_seal import AesSeal
from mainspring.config import read_settings
from mainspring.core.errors import InvalidInput, NotFound, StoreCorrupt
from mainspring.log.sqlite import open_sqlite
from mainspring.service.vaults.credential_auth import server_key
from mainspring.service.vaults.session_credentials import SecretVariable
from mainspring.service.vaults.vaults import CREDENTIAL_KIND as KIND
from mainspring.wiring.user_vault import user_vault


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        yield Desk(store.records)


async def test_a_session_gets_the_credentials_of_its_vaults_and_the_first_vault_wins(desk: Desk):
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
    variables = {item.name: item for item in found if isinstance(item, SecretVariable)}
    assert {name: each.value for name, each in variables.items()} == {
        "TOKEN": "first-value",
        "OTHER": "other-value",
    }
    assert variables["TOKEN"].hosts == ("api.example.com", "*.x.org", "192.0.2.1")
    assert (variables["TOKEN"].in_headers, variables["TOKEN"].in_body) == (True, True)
    assert variables["OTHER"].hosts is None
    assert (variables["OTHER"].in_headers, variables["OTHER"].in_body) == (True, False)
    token = partial(desk.ready.token, "acme", [first, second])
    assert await token("https://mcp.example.com/mcp", None) == "first-token"
    assert await token("https://mcp.example.com/other", None) is None
    assert "value" not in repr(found).replace("_value", "")
    assert "-token" not in repr(found)


async def test_archived_deleted_and_foreign_credentials_are_not_used(desk: Desk):
    vault = await desk.vault(variable("A", "value-of-a"), variable("B", "value-of-b"))
    assert await desk.ready.usable("rival", [vault]) == []
    assert await desk.ready.usable("acme", ["vlt_unknown"]) == []
    [one, two] = [item for item in await desk.ready.usable("acme", [vault])]
    await desk.credentials.archive("acme", vault, one.credential_id)
    await desk.credentials.delete("acme", vault, two.credential_id)
    assert await desk.ready.usable("acme", [vault]) == []
    with pytest.raises(InvalidInput, match="archived"):
        await desk.credentials.unseal("acme", vault, one.credential_id)
    other = await desk.vault(variable("A", "value-of-a"))
    assert (await desk.vaults.active("acme", other)).id == other
    await desk.vaults.archive("acme", other)
    assert await desk.ready.usable("acme", [other]) == []
    with pytest.raises(InvalidInput, match="archived"):
        assert (await desk.vaults.active("acme", other)).id == other
    with pytest.raises(NotFound):
        await desk.vaults.active("rival", vault)


async def test_a_sealed_secret_opens_only_for_its_own_credential_and_tenant(desk: Desk):
    vault = await desk.vault(variable("A", "value-of-a"), variable("B", "value-of-b"))
    [one, two] = await desk.ready.usable("acme", [vault])
    stolen = await desk.records.content(KIND, one.credential_id)
    opened = await desk.credentials.unseal("acme", vault, two.credential_id)
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
def test_unsealing_returns_exactly_what_was_sealed(plain: bytes, context: str, noise: bytes):
    seal = AesSeal(bytes(32))
    sealed = seal.seal(plain, context)
    assert seal.unseal(sealed, context) == plain
    assert seal.seal(plain, context) != sealed
    for wrong in (noise, sealed[:-1], sealed + noise, bytes([sealed[0] ^ 1]) + sealed[1:]):
        with pytest.raises(StoreCorrupt):
            seal.unseal(wrong, context)


def test_the_sealing_key_is_that_of_the_vault(tmp_path: Path):
    settings = read_settings(environ={"MAINSPRING_VAULT": str(tmp_path / "vault.json")})
    sealed = user_vault(settings).open_seal().seal(b"plain", "x")
    assert user_vault(settings).open_seal().unseal(sealed, "x") == b"plain"
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
def test_equivalent_server_urls_have_the_same_key(one: str, other: str, is_same: bool):
    assert (server_key(one) == server_key(other)) == is_same
