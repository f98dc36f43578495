"""Keys at the real door, over HTTP and with the official client."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anthropic
import anyio
import pytest
from tests.api.guarded_api import Guarded, add_record, guarded

from mainspring.service.access.api_keys import CreateKey

PATH = "/v1/environments"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Guarded]:
    async with guarded(tmp_path) as running:
        yield running


async def test_a_wrong_key_and_a_missing_role_are_explained(api: Guarded):
    viewer = await api.key(CreateKey(name="v", role="viewer"))
    async with api.client("msk_wrong") as wrong, api.client(viewer.key) as low:
        with pytest.raises(anthropic.AuthenticationError, match="no such API key"):
            await wrong.beta.environments.list()
        with pytest.raises(anthropic.PermissionDeniedError, match="needs the role operator"):
            await low.beta.environments.create(name="ci")


async def test_rate_limit_headers_count_down_and_429_has_retry_after(api: Guarded):
    slow = await api.key(CreateKey(name="s", role="viewer", requests_per_minute=1))
    async with api.http(slow.key) as http:
        answers = [await http.get(PATH) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429]
        left = [answer.headers["anthropic-ratelimit-requests-remaining"] for answer in answers]
        assert left == ["4", "3", "2", "1", "0", "0"]
        assert 0 < int(answers[-1].headers["retry-after"]) <= 60
        assert answers[-1].json()["error"]["type"] == "rate_limit_error"
    async with api.client(slow.key) as client:
        with pytest.raises(anthropic.RateLimitError):
            await client.beta.environments.list()


@pytest.mark.parametrize(
    "headers",
    [
        [("X-API-KEY", "{key}")],
        [("x-Api-kEy", "{key}")],
        [("AUTHORIZATION", "bEARER {key}")],
        [("x-api-key", "{key}"), ("authorization", "Bearer {key}")],
    ],
)
async def test_case_of_header_names_does_not_matter(api: Guarded, headers: list[tuple[str, str]]):
    given = [(name, value.format(key=api.root)) for name, value in headers]
    async with api.http() as http:
        assert (await http.get(PATH, headers=given)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("x-api-key", "{key}"), ("authorization", "Bearer other")],
        [("authorization", "Basic {key}")],
        [("x_api_key", "{key}")],
        [("x-api-key", "x" * 7000)],
    ],
)
async def test_malformed_authentication_headers_are_refused(
    api: Guarded, headers: list[tuple[str, str]]
):
    given = [(name, value.format(key=api.root)) for name, value in headers]
    async with api.http() as http:
        answer = await http.get(PATH, headers=given)
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"
    assert api.root not in answer.text


@pytest.mark.parametrize(
    "sent",
    [
        b"x-api-key: " + "ключ".encode(),
        b"x-api-key: \xff\xfe\xfd",
        b"x-api-key: " + b"k" * 100_000,
        b"x-api-key: a\x00b",
        b"x-api-key: {key}\r\n  folded",
        b"x-api-key : {key}",
        b"Authorization: Bearer \xe2\x80\x8b{key}",
        b"x-api-key: {key}\r\nX-Api-Key: {key}",
        b"x-api-key: {key}\r\nX-Api-Key: msk_other",
        b"authorization: Bearer {key}\r\nAuthorization: Bearer {key}",
    ],
    ids=range(10),
)
async def test_malformed_header_bytes_are_never_authenticated(api: Guarded, sent: bytes):
    host, _, port = api.url.removeprefix("http://").partition(":")
    line = sent.replace(b"{key}", api.root.encode())
    with anyio.fail_after(60):
        async with await anyio.connect_tcp(host, int(port)) as stream:
            request = b"GET /v1/environments HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            try:
                await stream.send(request + line + b"\r\n\r\n")
                answer = await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return  # the door was not even opened
    assert answer.split(b" ")[1] in (b"400", b"401")


async def test_the_administrator_of_the_platform_manages_tenants(api: Guarded):
    async with api.http(api.root) as root:
        body = {"id": "acme", "daily_budget_usd": "12.50", "agent_daily_budgets_usd": {"*": "1"}}
        made = await root.post("/v1/mainspring/tenants", json=body)
        assert made.status_code == 200, made.text
        assert made.json()["daily_budget_usd"] == "12.50"
        assert (await root.post("/v1/mainspring/tenants", json=body)).status_code == 409
        changed = await root.post("/v1/mainspring/tenants/acme", json={"daily_budget_usd": None})
        assert changed.json()["daily_budget_usd"] is None
        listed = (await root.get("/v1/mainspring/tenants")).json()["data"]
        assert [item["id"] for item in listed] == ["acme", "default"]
        for bad in ({"id": "Acme"}, {"id": "../x"}, {"id": ""}, {"id": "a", "surprise": 1}):
            assert (await root.post("/v1/mainspring/tenants", json=bad)).status_code == 400
        endless = await root.post(
            "/v1/mainspring/tenants/acme", json={"daily_budget_usd": "Infinity"}
        )
        assert endless.status_code == 400
        own = await root.post("/v1/mainspring/tenants/default/disable")
        assert own.status_code == 400


async def test_a_disabled_tenant_is_refused_until_it_is_enabled(api: Guarded):
    acme = await api.tenant("acme")
    async with api.http(api.root) as root, api.http(acme.key) as http:
        disabled = await root.post("/v1/mainspring/tenants/acme/disable")
        assert disabled.json()["disabled_at"] is not None
        assert (await http.get(PATH)).status_code == 403
        enabled = await root.post("/v1/mainspring/tenants/acme/enable")
        assert enabled.json()["disabled_at"] is None


async def test_agents_are_halted_and_only_people_can_resume_them(api: Guarded):
    lent = await api.key(CreateKey(name="l", role="operator", lent_to="agent_1"))
    async with api.http(api.root) as root, api.http(lent.key) as agent:
        missing = await root.post("/v1/mainspring/halts", json={"agent_id": "agent_1"})
        assert (missing.status_code, (await root.get("/v1/mainspring/halts")).json()["data"]) == (
            404,
            [],
        )
        await add_record(api.records, "agent", "agent_1")
        halted = await root.post("/v1/mainspring/halts", json={"agent_id": "agent_1"})
        assert halted.json()["agent_id"] == "agent_1"
        assert (await agent.get(PATH)).status_code == 403
        resumed = await agent.post("/v1/mainspring/halts/resume", json={"agent_id": "agent_1"})
        assert resumed.status_code == 403
        listed = await root.get("/v1/mainspring/halts")
        assert [item["id"] for item in listed.json()["data"]] == ["halt_default.agent_1"]
        resumed = await root.post("/v1/mainspring/halts/resume", json={"agent_id": "agent_1"})
        assert resumed.status_code == 200
        assert (await root.get("/v1/mainspring/halts")).json()["data"] == []
