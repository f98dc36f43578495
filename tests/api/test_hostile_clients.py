"""What a hostile client tries: ids of others in bodies, forged cursors, headers that are no text,
files named a thousand times, streams that outlive their key, agents that would allow themselves.
"""

import json
from collections.abc import AsyncGenerator
from io import BytesIO
from pathlib import Path

import aiohttp
import anthropic
import anyio
import pytest
from tests.api.test_work_tokens import client_with_token, token_of
from tests.api.whole_api import MANIFEST, Answer, Whole
from tests.api.work_api import hosted, site
from yarl import URL

from mainspring.core.ids import new_id
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.run.events import StreamRoutes
from mainspring.edges.api.sse import StreamTiming
from mainspring.service.access.api_keys import CreateKey, Keys
from mainspring.service.access.principal import Principal
from mainspring.service.access.tenants import Tenants
from mainspring.service.authorization.authentication import KEY_CACHE_SECONDS, Authenticator
from mainspring.service.sessions.events.event_content import MAX_FILE_BYTES
from mainspring.service.storage.pagination import encode_cursor
from mainspring.service.webhooks.webhook_signing import signed_headers
from mainspring.testing import Scripted, says

MINE, THEIRS = "rival", "acme"
SAID = [{"type": "user.message", "content": [{"type": "text", "text": "hello"}]}]


async def in_the_cloud(api: Whole) -> dict[str, str]:
    """Mine, with an environment that takes files."""
    made = await api.make(MINE, "/v1/environments", {"name": new_id("cloud")})
    return {**api.ids[MINE], "environment_id": made["id"]}


async def post(api: Whole, path: str, body: object, **headers: str) -> Answer:
    with anyio.fail_after(60):
        return await api.ask(
            "POST", path, key=api.keys[MINE, "admin"], body=body, headers=dict(headers)
        )


async def test_a_forged_cursor_shows_only_the_tenants_own_records(api: Whole):
    for kind, id_ in (("agents", "agent_id"), ("sessions", "session_id"), ("vaults", "vault_id")):
        forged = encode_cursor(1 << 62, api.ids[THEIRS][id_], "")
        for page in (forged, encode_cursor(1 << 62, "z", "z"), encode_cursor("next", 1 << 62, "z")):
            answer = await api.ask(
                "GET", f"/v1/{kind}?page={page}&limit=100", key=api.keys[MINE, "admin"]
            )
            assert answer.status in (200, 400), answer.body
            assert api.ids[THEIRS][id_] not in answer.body


async def test_the_same_idempotency_key_in_two_tenants_is_independent(own_api: Whole):
    for tenant in (MINE, THEIRS):
        answer = await own_api.ask(
            "POST",
            f"/v1/sessions/{own_api.ids[tenant]['session_id']}/events",
            key=own_api.keys[tenant, "user"],
            body={"events": SAID},
            headers={"idempotency-key": "once"},
        )
        assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/a/b",
        "https://somebody:secret@example.com/a/b",
        "https://example.com/a/b?x=y",
        "https://exa mple.com/a/b",
        "https://example.com\\@127.0.0.1/a",
        "https://[::1]/a/b",
        "file:///etc",
        "ext::sh -c true",
        "/etc",
        "-u/etc",
    ],
)
async def test_repository_urls_are_validated_wherever_they_are_mounted(api: Whole, url: str):
    ids = await in_the_cloud(api)
    begun = {"agent": ids["agent_id"], "environment_id": ids["environment_id"]}
    resources = [{"type": "github_repository", "url": url, "mount_path": "/workspace/here"}]
    for path, asked in (
        ("/v1/sessions", begun),
        ("/v1/deployments", {**begun, "name": "d", "initial_events": SAID}),
    ):
        refused = await post(api, path, {**asked, "resources": resources})
        assert refused.status == 400, refused.body
        assert "url" in refused.json["error"]["message"]


async def test_a_file_referenced_a_thousand_times_is_refused_by_total_size(api: Whole):
    form = aiohttp.FormData()
    form.add_field("file", BytesIO(bytes(MAX_FILE_BYTES // 4)), filename="big.pdf")
    uploaded = await api.make(MINE, "/v1/files", form)
    block = {"type": "document", "source": {"type": "file", "file_id": uploaded["id"]}}
    ids = api.ids[MINE]
    begun = {"agent": ids["agent_id"], "environment_id": ids["environment_id"]}
    often = [{"type": "user.message", "content": [block] * 50}] * 20
    for path, asked in (
        (f"/v1/sessions/{ids['session_id']}/events", {"events": often}),
        ("/v1/sessions", {**begun, "initial_events": often}),
    ):
        refused = await post(api, path, asked)
        assert refused.status == 400, refused.body
        assert "may have at most" in refused.json["error"]["message"]


async def send_raw(url: str, request: bytes) -> bytes:
    """The first line of what is answered to these bytes."""
    at = URL(url)
    assert at.host is not None
    assert at.port is not None
    with anyio.fail_after(60):
        async with await anyio.connect_tcp(at.host, at.port) as stream:
            await stream.send(request)
            return (await stream.receive()).partition(b"\r\n")[0]


@pytest.mark.parametrize(
    "name", ["idempotency-key", "webhook-id", "webhook-timestamp", "expect", "last-event-id"]
)
async def test_a_header_that_is_not_text_causes_no_server_error(api: Whole, name: str):
    ids, key = api.ids[MINE], api.keys[MINE, "user"]
    body = json.dumps({"events": SAID}).encode()
    for path in (
        f"/v1/sessions/{ids['session_id']}/events",
        f"/v1/mainspring/triggers/{ids['trigger_id']}/fire",
        "/v1/mainspring/triggers/trg_none/fire",
    ):
        head = f"POST {path} HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\n"
        sent = f"{head}content-length: {len(body)}\r\n{name}: ".encode() + b"\xff\xfe\xed\xa0\x80"
        status = await send_raw(api.url, sent + b"\r\n\r\n" + body)
        assert status.split()[1] in (b"200", b"400", b"401"), (path, status)


async def test_every_response_forbids_caching_and_sniffing(api: Whole):
    for path in ("/v1/agents", "/nowhere", "/%0a"):
        answer = await api.ask("GET", path, key=api.keys[MINE, "viewer"])
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-type"].startswith("application/json")
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("how", ["revoked", "disabled"])
async def test_a_stream_ends_when_the_right_to_read_it_ends(own_api: Whole, how: str):
    """Even if nothing happens in the session."""
    passed = 0.0
    records = own_api.service.infrastructure.store.records
    talk = own_api.service.sessions
    door = Authenticator(records, monotonic=lambda: passed)
    routes = StreamRoutes(
        talk.event_streams, talk.sessions.record, StreamTiming(heartbeat_seconds=0.05)
    )
    maker = Principal(tenant=MINE, key_id="cli", role="admin", name="olga")
    key = await Keys(records).create(maker, CreateKey(name="reader", role="viewer"))
    path = f"/v1/sessions/{own_api.ids[MINE]['session_id']}/events/stream"
    with anyio.fail_after(60):
        async with (
            http_server(Api(routes_of(routes), access_control=door).application()) as url,
            aiohttp.ClientSession(url, headers={"x-api-key": key.key}) as http,
            http.get(path) as response,
        ):
            assert response.status == 200
            assert await response.content.readline() == b"event: ping\n"
            if how == "revoked":
                await Keys(records).revoke(MINE, key.id)
            else:
                await Tenants(records).disable(MINE)
            passed += KEY_CACHE_SECONDS
            told = (await response.read()).decode()
    assert f"{how}" in told.rpartition("event: error")[2]


async def test_an_open_stream_uses_up_no_rate_limit(own_api: Whole):
    records, talk = own_api.service.infrastructure.store.records, own_api.service.sessions
    routes = StreamRoutes(
        talk.event_streams, talk.sessions.record, StreamTiming(heartbeat_seconds=0.01)
    )
    maker = Principal(tenant=MINE, key_id="cli", role="admin", name="olga")
    asked = CreateKey(name="reader", role="viewer", requests_per_minute=1)
    key = await Keys(records).create(maker, asked)
    path = f"/v1/sessions/{own_api.ids[MINE]['session_id']}/events/stream"
    with anyio.fail_after(60):
        async with (
            http_server(
                Api(routes_of(routes), access_control=Authenticator(records)).application()
            ) as url,
            aiohttp.ClientSession(url, headers={"x-api-key": key.key}) as http,
            http.get(path) as response,
        ):
            for _ in range(20):  # a bucket holds five
                assert await response.content.readuntil(b"\n\n") == (
                    b'event: ping\ndata: {"type":"ping"}\n\n'
                )


async def test_an_agent_cannot_widen_its_own_permissions(own_api: Whole):
    ids = own_api.ids[MINE]
    bold = [
        {
            "type": "agent_toolset_20260401",
            "default_config": {"permission_policy": {"type": "always_allow"}},
        }
    ]
    overridden = {"type": "agent_with_overrides", "id": ids["agent_id"], "tools": bold}
    session = f"/v1/sessions/{ids['session_id']}"
    for path, asked in (
        (session, {"agent": {"tools": bold}}),
        (session, {"budget": None}),
        ("/v1/sessions", {"agent": overridden, "environment_id": ids["environment_id"]}),
    ):
        refused = await post(own_api, path, asked, **{"x-mainspring-agent": ids["agent_id"]})
        assert refused.status == 403, (path, asked, refused.body)
        assert (await post(own_api, path, asked)).status == 200
    titled = await post(
        own_api, session, {"title": "mine"}, **{"x-mainspring-agent": ids["agent_id"]}
    )
    assert titled.status == 200


async def test_a_key_that_may_not_approve_cannot_remove_the_need_for_approval(own_api: Whole):
    ids = own_api.ids[MINE]
    policy = {"role": "operator", "agent_id": ids["agent_id"]}
    assert (await post(own_api, "/v1/mainspring/approvals/policy", policy)).status == 200
    bold: list[object] = [{"type": "agent_toolset_20260401"}]
    overridden = {"type": "agent_with_overrides", "id": ids["agent_id"], "tools": bold}
    for path, asked in (
        (f"/v1/sessions/{ids['session_id']}", {"agent": {"tools": bold}}),
        ("/v1/sessions", {"agent": overridden, "environment_id": ids["environment_id"]}),
    ):
        told = [
            await own_api.ask("POST", path, key=own_api.keys[MINE, role], body=asked, headers={})
            for role in ("user", "operator")
        ]
        assert [item.status for item in told] == [403, 200], (path, told)


async def test_nothing_starts_in_a_disabled_tenant(own_api: Whole):
    ids, records = own_api.ids[MINE], own_api.service.infrastructure.store.records
    made = await own_api.make(
        MINE,
        "/v1/mainspring/triggers",
        {
            "agent": ids["agent_id"],
            "environment_id": ids["environment_id"],
            "name": "issues",
            "scheme": {"type": "standard_webhooks"},
            "message": "x",
        },
    )
    await Tenants(records).disable(MINE)
    now = own_api.service.sessions.sessions.clock()
    headers = signed_headers("msg_1", b"{}", secrets=[made["secret"]], now=now)
    with anyio.fail_after(60):
        fired = f"/v1/mainspring/triggers/{made['id']}/fire"
        async with own_api.http.post(fired, data=b"{}", headers=headers) as response:
            assert response.status == 401
    assert await own_api.service.access.halts.is_stopped(MINE, ids["agent_id"])
    assert not await own_api.service.access.halts.is_stopped(THEIRS, ids["agent_id"])
    run = await own_api.service.schedules.deployment_runner.run_now(MINE, ids["deployment_id"])
    assert run.error is not None
    assert run.error.type == "organization_disabled_error"
    await Tenants(records).enable(MINE)
    with anyio.fail_after(60):
        async with own_api.http.post(fired, data=b"{}", headers=headers) as response:
            assert response.status == 200


async def test_stalled_uploads_do_not_block_other_tenants(api: Whole):
    """Nor does one tenant have more of them in memory than it may."""

    async def dripping() -> AsyncGenerator[bytes]:
        yield b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        await anyio.sleep_forever()

    async def drip() -> None:
        headers = {
            "x-api-key": api.keys[THEIRS, "user"],
            "content-type": "multipart/form-data; boundary=x",
        }
        await api.http.post("/v1/files", data=dripping(), headers=headers)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(30):
                group.start_soon(drip)
            for _ in range(10):
                form = aiohttp.FormData()
                form.add_field("file", b"mine", filename="mine.txt")
                assert (await post(api, "/v1/files", form)).status == 200
            group.cancel_scope.cancel()


async def test_the_token_of_a_work_item_reads_only_the_skills_of_its_session(tmp_path: Path):
    async with site(tmp_path, Scripted(otherwise=says("Hi."))) as here, here.client() as admin:
        files = [("pdf-forms/SKILL.md", MANIFEST)]
        skill = await admin.beta.skills.create(files=files)
        current = {"type": "custom", "skill_id": skill.id, "version": "latest"}
        without, having = await hosted(admin, "go"), await hosted(admin, "go", skills=[current])
        for session, is_let_in in ((without, False), (having, True)):
            _, token = await token_of(admin, session.environment_id)
            async with client_with_token(here, token) as client:
                asked = client.beta.skills.versions.retrieve("latest", skill_id=skill.id)
                if is_let_in:
                    assert (await asked).skill_id == skill.id
                else:
                    with pytest.raises(anthropic.NotFoundError):
                        await asked
