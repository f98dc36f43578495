"""`/v1/mainspring/keys`."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from tests.api.guarded_api import Guarded, add_record, guarded

from mainspring.core import clock
from mainspring.service.access.api_keys import CreateKey

KEYS = "/v1/mainspring/keys"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Guarded]:
    async with guarded(tmp_path) as running:
        yield running


async def test_an_administrator_creates_lists_and_revokes_keys_shown_once(api: Guarded):
    async with api.http(api.root) as http:
        made = await http.post(KEYS, json={"name": "ci", "role": "operator"})
        assert made.status_code == 200, made.text
        key = made.json()
        assert key["key"].startswith("msk_")
        listed = await http.get(KEYS)
        assert [item["name"] for item in listed.json()["data"]] == ["ci", "first administrator"]
        assert key["key"] not in listed.text
        assert "digest" not in listed.text
        assert "key" not in (await http.get(f"{KEYS}/{key['id']}")).json()
        async with api.http(key["key"]) as other:
            assert (await other.get("/v1/environments")).status_code == 200
            assert (await other.get(KEYS)).status_code == 403
        revoked = (await http.post(f"{KEYS}/{key['id']}/revoke")).json()
        assert revoked["revoked_at"] is not None
        assert (await http.post(f"{KEYS}/{key['id']}/revoke")).json() == revoked
        assert len((await http.get(KEYS)).json()["data"]) == 1
        assert len((await http.get(KEYS, params={"include_revoked": "true"})).json()["data"]) == 2


async def test_no_key_can_create_a_more_powerful_one(api: Guarded):
    limited = await api.key(CreateKey(name="l", role="admin", requests_per_minute=100))
    poor = await api.key(CreateKey(name="p", role="admin", daily_budget_usd=Decimal(1)))
    worker = await api.key(CreateKey(name="w", environment_id="env_1"))
    agents = await api.key(CreateKey(name="a", role="admin", agent_id="agent_1"))
    lent = await api.key(CreateKey(name="b", role="admin", lent_to="agent_1"))
    operator = await api.key(CreateKey(name="o", role="operator"))
    soon = clock.now() + timedelta(hours=1)
    brief = await api.key(CreateKey(name="e", role="admin", expires_at=soon))
    for key in (limited, poor, worker, agents, lent, operator, brief):
        async with api.http(key.key) as http:
            refused = await http.post(KEYS, json={"name": "more", "role": "viewer"})
            assert refused.status_code == 403, key.name
    async with api.http(api.root, **{"x-mainspring-agent": "agent_1"}) as http:
        assert (await http.post(KEYS, json={"name": "more"})).status_code == 403
        assert (await http.post(f"{KEYS}/{operator.id}/revoke")).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "x" * 257},
        {"name": "x", "role": "god"},
        {"name": "x", "tenant_id": "rival"},
        {"name": "x", "expires_at": "2020-01-01T00:00:00Z"},
        {"name": "x", "expires_at": "2990-01-01T00:00:00"},
        {"name": "x", "requests_per_minute": 0},
        {"name": "x", "daily_budget_usd": "-1"},
        {"name": "x", "daily_budget_usd": "NaN"},
        {"name": "x", "daily_budget_usd": "many"},
        {"name": "x", "environment_id": "env_1", "role": "admin"},
        {"name": "x", "environment_id": "env_1", "agent_id": "agent_1"},
    ],
    ids=str,
)
async def test_invalid_keys_are_refused(api: Guarded, body: dict[str, object]):
    await add_record(api.records, "environment", "env_1")
    await add_record(api.records, "agent", "agent_1")
    async with api.http(api.root) as http:
        assert (await http.post(KEYS, json=body)).status_code == 400
