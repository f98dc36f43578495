"""`/v1/mainspring/audit`: every control action, and every refusal, with who and whence."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anthropic
import pytest
from tests.api.guarded_api import Guarded, guarded

from mainspring.service.access.api_keys import CreateKey
from mainspring.service.storage.repository import ListQuery

AUDIT = "/v1/mainspring/audit"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Guarded]:
    async with guarded(tmp_path) as running:
        yield running


async def test_actions_are_audited_before_the_response_without_their_content(api: Guarded):
    async with api.client(api.root) as client, api.http(api.root) as http:
        made = await client.beta.environments.create(
            name="confidential-name", metadata={"secret": "hunter2"}
        )
        [entry] = (await http.get(AUDIT)).json()["data"]
        assert entry["operation"] == "post /v1/environments"
        assert (entry["status"], entry["actor"]) == (200, "human")
        assert (entry["made"], entry["key_name"]) == (made.id, "first administrator")
        assert (entry["address"], entry["request_id"]) == ("127.0.0.1", made._request_id)
        await client.beta.environments.update(made.id, name="x")
        await client.beta.environments.retrieve(made.id)
        answer = await http.get(AUDIT)
        assert [item["seq"] for item in answer.json()["data"]] == [2, 1]
        assert answer.json()["data"][0]["targets"] == {"environment_id": made.id}
        assert "confidential" not in answer.text
        assert "hunter2" not in answer.text
        assert api.root not in answer.text


async def test_refusals_and_actions_of_agents_are_audited(api: Guarded):
    viewer = await api.key(CreateKey(name="v", role="viewer"))
    lent = await api.key(CreateKey(name="l", role="operator", lent_to="agent_1"))
    async with api.client(viewer.key) as low, api.client(lent.key) as agent:
        with pytest.raises(anthropic.PermissionDeniedError):
            await low.beta.environments.create(name="ci")
        await agent.beta.environments.create(name="ci")
        with pytest.raises(anthropic.NotFoundError):
            await agent.beta.environments.delete("env_of_somebody_else")
    async with api.http(viewer.key) as http:
        assert (await http.get(AUDIT)).status_code == 403
    async with api.http(api.root) as http:
        entries = (await http.get(AUDIT)).json()["data"][::-1]
        filtered = (await http.get(AUDIT, params={"key_id": lent.id})).json()["data"]
    told = [(entry["key_name"], entry["actor"], entry["status"]) for entry in entries]
    assert told == [
        ("v", "human", 403),
        ("l", "agent", 200),
        ("l", "agent", 404),
        ("v", "human", 403),
    ]
    assert entries[1]["agent_id"] == "agent_1"
    assert len(filtered) == 2
    async with api.http("msk_nobody") as http:
        assert (await http.get(AUDIT)).status_code == 401
    [stranger] = (await api.audit.page("", ListQuery())).data
    assert (stranger.actor, stranger.status, stranger.tenant_id) == ("nobody", 401, "")


async def test_each_tenant_reads_and_verifies_its_own_audit_log(api: Guarded):
    acme = await api.tenant("acme")
    async with api.client(acme.key) as client:
        for number in range(5):
            await client.beta.environments.create(name=f"e{number}")
    async with api.http(acme.key) as mine, api.http(api.root) as root:
        page = (await mine.get(AUDIT, params={"limit": "2"})).json()
        assert [item["seq"] for item in page["data"]] == [5, 4]
        more = await mine.get(AUDIT, params={"limit": "2", "page": page["next_page"]})
        assert [item["seq"] for item in more.json()["data"]] == [3, 2]
        assert (await root.get(AUDIT)).json()["data"] == []
        verified = (await mine.get(f"{AUDIT}/verify")).json()
        assert (verified["entries"], verified["problems"]) == (5, [])
        head = {"head": verified["head"]}
        assert (await mine.get(f"{AUDIT}/verify", params=head)).json()["problems"] == []
        foreign = await mine.get(f"{AUDIT}/verify", params={"head": "f" * 64})
        assert foreign.json()["problems"] != []
        since = {"created_at[gte]": page["data"][0]["time"]}
        assert len((await mine.get(AUDIT, params=since)).json()["data"]) == 1
        naive = await mine.get(AUDIT, params={"created_at[gte]": "2026-01-01T00:00:00"})
        assert naive.status_code == 400
