"""Who sent what: a worker sends the results of its calls and nothing else, and every event that
came from outside says who sent it, in the log, in what is exported, and in the API."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
from anthropic import AsyncAnthropic
from tests.api.test_work_tokens import client_with_token, token_of
from tests.api.whole_api import Whole, whole
from tests.api.work_api import Site, hosted, site

from mainspring.core.sender import Origin, Sender
from mainspring.log.verify import verify
from mainspring.service.access.api_keys import CreateKey, Keys
from mainspring.service.access.audit import Audit
from mainspring.service.access.principal import Principal
from mainspring.service.resources.agent_multiagent import AgentReference
from mainspring.service.schedules.session_starter import ServiceSessionStarter, SessionStartRequest
from mainspring.service.storage.repository import ListQuery
from mainspring.testing import Scripted, calls, says

TEXT: list[Any] = [{"type": "text", "text": "x"}]
NOT_A_WORKERS: list[Any] = [
    {"type": "user.message", "content": TEXT},
    {"type": "user.interrupt"},
    {"type": "user.tool_confirmation", "tool_use_id": "sevt_1", "result": "allow"},
    {"type": "user.define_outcome", "description": "d", "rubric": {"type": "text", "content": "r"}},
    {"type": "system.message", "content": TEXT},
]
BOSS = Principal(tenant="acme", key_id="cli", role="admin", name="olga")


async def senders(here: Site, session_id: str) -> dict[str, Sender | None]:
    return {event.type: event.sender for event in await here.log.read(session_id)}


async def check_refused(client: AsyncAnthropic, session_id: str, *events: Any) -> None:  # noqa: ANN401 (any event)
    with pytest.raises(anthropic.PermissionDeniedError, match="a worker may send only results"):
        await client.beta.sessions.events.send(session_id, events=events)


async def test_a_worker_can_send_only_results_of_its_calls(tmp_path: Path):
    model = Scripted(calls("bash", command="ls"), otherwise=says("Done."))
    async with site(tmp_path, model) as here, here.client() as admin:
        made = await hosted(admin, "go")
        await here.until(made.id, "session.status_idle")
        [call] = [e for e in await here.log.read(made.id) if e.type == "agent.tool_use"]
        result: Any = {"type": "user.tool_result", "tool_use_id": call.id, "content": TEXT}
        work_id, token = await token_of(admin, made.environment_id)
        key = await here.environment_key(made.environment_id)
        before = await here.log.read(made.id)
        async with client_with_token(here, token) as with_token, here.client(key) as with_key:
            for client in (with_token, with_key):
                for event in NOT_A_WORKERS:
                    await check_refused(client, made.id, event)
                    await check_refused(
                        client, made.id, result, event
                    )  # nor behind one that it may
            assert await here.log.read(made.id) == before
            assert await here.log.store.pending(made.id) == []
            await with_token.beta.sessions.events.send(made.id, events=[result])
        await here.until_done(made.id)
        sent = await senders(here, made.id)
        assert sent["user.tool_result"] == Sender(
            kind="worker", id=work_id, on_behalf_of=(made.environment_id,)
        )
        said = sent["user.message"]
        assert said is not None
        assert said.kind == "person"
        assert said == sent["session.created"]
        assert sent["agent.message"] is None  # the session's own
        assert (await verify(here.log, made.id)).ok


async def test_the_idempotency_key_of_a_checked_request_admits_no_other_request(tmp_path: Path):
    """Many at once: some find that the key was accepted, before what it was accepted for is in."""
    checked: Any = {"type": "user.interrupt"}
    other: Any = {"type": "user.tool_result", "tool_use_id": "sevt_not_asked", "content": TEXT}
    async with site(tmp_path, Scripted(says("Done."))) as here, here.client() as client:
        made = await hosted(client, "go")
        await here.until(made.id, "session.status_idle")
        taken: set[str] = set()

        async def send(event: Any, key: str) -> None:  # noqa: ANN401 (any event)
            with suppress(anthropic.BadRequestError):
                await client.beta.sessions.events.send(
                    made.id, events=[event], extra_headers={"idempotency-key": key}
                )
                taken.add(event["type"])

        for number in range(20):
            async with anyio.create_task_group() as group:
                for event in (checked, other, other, other, other, other):
                    group.start_soon(send, event, str(number))
        assert taken == {"user.interrupt"}


async def test_a_worker_cannot_reference_files_outside_its_session(api: Whole):
    ids = api.ids["acme"]
    keys = Keys(api.service.infrastructure.store.records)
    asked = CreateKey(name="w", role="user", environment_id=ids["environment_id"])
    key = (await keys.create(BOSS, asked)).key
    listed = await api.ask("GET", "/v1/sessions", key=api.keys["acme", "admin"])
    [id_] = [i["id"] for i in listed.json["data"] if i["environment_id"] == ids["environment_id"]]
    source = {"type": "file", "file_id": ids["file_id"]}
    shown = {"type": "document", "source": source}
    for event in (
        {"type": "user.tool_result", "tool_use_id": "x", "content": [shown]},
        {"type": "user.custom_tool_result", "custom_tool_use_id": "x", "content": [shown]},
    ):
        path = f"/v1/sessions/{id_}/events"
        answer = await api.ask("POST", path, key=key, body={"events": [event]})
        assert answer.status == 404, answer.body
        assert ids["file_id"] in answer.body


async def test_every_event_and_session_records_its_sender_and_origin(api: Whole):
    ids = api.ids["acme"]
    admin = api.keys["acme", "admin"]
    body = {"agent": ids["agent_id"], "environment_id": ids["environment_id"]}
    agents = {"x-mainspring-agent": "agent_x"}
    made = await api.ask("POST", "/v1/sessions", key=admin, body=body)
    path = f"/v1/sessions/{made.json['id']}"
    event = {"events": [{"type": "user.interrupt"}]}
    sent = await api.ask("POST", f"{path}/events", key=admin, body=event, headers=agents)
    assert sent.status == 200, sent.body
    assert "sender" not in sent.body  # the official shape stays as it is
    [waiting] = await api.service.infrastructure.store.pending(made.json["id"])
    assert waiting.sender is not None
    assert '"kind":"agent","id":"agent_x","on_behalf_of":["key_' in waiting.sender
    listed = (await api.ask("GET", f"{path}/senders", key=admin)).json["data"]
    [created] = listed
    assert (created["event_type"], created["sender"]["kind"]) == ("session.created", "person")
    assert created["sender"]["id"].startswith("key_")

    sessions = api.service.sessions.sessions
    order = SessionStartRequest(
        key="k",
        agent=AgentReference(id=ids["agent_id"], version=1),
        environment_id=ids["environment_id"],
        origin=Origin(type="trigger", id="trg_1"),
    )
    ordered = await ServiceSessionStarter(sessions, api.service.sessions.event_sender).start(
        "acme", order
    )
    [first] = await api.service.infrastructure.log.read(ordered)
    assert first.sender == Sender(kind="system", id="trg_1")
    assert b'"origin":{"type":"trigger","id":"trg_1"}' in first.body
    for origin, is_there in (("trigger", True), ("api", False)):
        found = await api.ask("GET", f"/v1/sessions?origin={origin}&limit=100", key=admin)
        assert (ordered in {item["id"] for item in found.json["data"]}) is is_there
        assert (made.json["id"] in {item["id"] for item in found.json["data"]}) is not is_there


async def test_events_sent_by_a_worker_and_its_refusals_are_audited(tmp_path: Path):
    from_worker = "post /v1/sessions/{session_id}/events"
    async with whole(tmp_path, is_audited=True) as api:
        ids = api.ids["acme"]
        records = api.service.infrastructure.store.records
        asked = CreateKey(name="w", role="user", environment_id=ids["environment_id"])
        made = await Keys(records).create(BOSS, asked)
        listed = await api.ask("GET", "/v1/sessions", key=api.keys["acme", "admin"])
        [session_id] = [
            i["id"] for i in listed.json["data"] if i["environment_id"] == ids["environment_id"]
        ]
        event = {"events": [{"type": "user.interrupt"}]}
        path = f"/v1/sessions/{session_id}/events"
        assert (await api.ask("POST", path, key=made.key, body=event)).status == 403
        with anyio.fail_after(60):
            page = await Audit(records).page("acme", ListQuery(limit=100))
        [entry] = [item for item in page.data if item.operation == from_worker]
        assert (entry.actor, entry.key_id, entry.status) == ("worker", made.id, 403)
