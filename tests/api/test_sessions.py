from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.pagination import AsyncBidirectionalPageCursor
from anthropic.types.beta import BetaManagedAgentsSession
from anthropic.types.beta.sessions import (
    BetaManagedAgentsSendSessionEvents,
    BetaManagedAgentsSessionThread,
)
from tests.api.agents_api import CUSTOM
from tests.api.api_server import collect
from tests.api.sessions_api import SessionsApi, agent_id, environment_id, message, service, session

from mainspring.core.events import ThreadCreated
from mainspring.testing import Scripted, says


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[SessionsApi]:
    async with service(tmp_path, Scripted(otherwise=says("Done."))) as running:
        yield running


async def test_a_session_is_created_with_all_requested_fields(
    api: SessionsApi, acme: AsyncAnthropic
):
    agent = await agent_id(acme)
    environment = await environment_id(acme)
    made = await acme.beta.sessions.create(
        agent=agent,
        environment_id=environment,
        title="Rates",
        metadata={"team": "core"},
        vault_ids=["vlt_1"],
        budget={"type": "limit", "max_list_cost": {"amount": "2500", "currency": "USD"}},
        resources=[
            {"type": "file", "file_id": "file_text"},
            {"type": "github_repository", "url": "https://github.com/o/r.git"},
            {"type": "memory_store", "memory_store_id": "memstore_1"},
        ],
    )
    assert (made.id[:5], made.type, made.status) == ("sesn_", "session", "idle")
    assert (made.agent.id, made.agent.version, made.agent.name) == (agent, 1, "helper")
    assert [r.type for r in made.resources] == ["file", "github_repository", "memory_store"]
    assert made.resources[0].mount_path == "/mnt/session/uploads/file_text"
    assert made.resources[1].mount_path == "/workspace/r"
    assert made.resources[2].mount_path == "/mnt/memory/user-preferences"
    assert (made.title, made.metadata, made.vault_ids) == ("Rates", {"team": "core"}, ["vlt_1"])
    assert made.budget is not None
    assert (made.budget.max_list_cost.amount, made.outcome_evaluations) == ("2500", [])
    assert (await acme.beta.sessions.retrieve(made.id)).created_at == made.created_at
    assert [notice.type for notice in api.notices] == ["session.created"]


async def test_an_agent_is_chosen_by_version_or_overridden(acme: AsyncAnthropic):
    agent = await agent_id(acme, system="Be brief.")
    environment = await environment_id(acme)
    await acme.beta.agents.update(agent, version=1, system="Be long.")
    older = await acme.beta.sessions.create(
        agent={"type": "agent", "id": agent, "version": 1}, environment_id=environment
    )
    assert (older.agent.version, older.agent.system) == (1, "Be brief.")
    other = await acme.beta.sessions.create(
        agent={
            "type": "agent_with_overrides",
            "id": agent,
            "system": None,
            "tools": [],
            "model": {"id": "claude-haiku-5", "effort": "low"},
        },
        environment_id=environment,
    )
    assert (other.agent.version, other.agent.system, other.agent.tools) == (2, None, [])
    assert other.agent.model.id == "claude-haiku-5"
    with pytest.raises(anthropic.NotFoundError):
        await acme.beta.sessions.create(
            agent={"type": "agent", "id": agent, "version": 9}, environment_id=environment
        )


async def test_a_coordinators_session_includes_the_definitions_of_its_agents(
    api: SessionsApi, acme: AsyncAnthropic
):
    scout = await agent_id(acme, name="scout")
    lead = await agent_id(acme, name="lead", multiagent={"type": "coordinator", "agents": [scout]})
    made = await session(acme, agent=lead)
    assert made.agent.multiagent is not None
    assert made.agent.multiagent.type == "coordinator"
    [member] = made.agent.multiagent.agents
    assert member.type == "agent"
    assert (member.id, member.name) == (scout, "scout")
    writer = await api.log.hold(made.id, owner="test")
    await writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="scout"))
    threads = await collect(acme.beta.sessions.threads.list(made.id))
    assert threads[1].agent.type == "agent"
    assert threads[1].agent.id == scout


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"agent": "agent_nowhere"}, "agent_nowhere"),
        ({"environment_id": "env_nowhere"}, "env_nowhere"),
        ({"vault_ids": ["vlt_2"]}, "vlt_2"),
        ({"resources": [{"type": "file", "file_id": "file_x"}]}, "file_x"),
        ({"resources": [{"type": "memory_store", "memory_store_id": "m"}]}, "memory store m"),
    ],
)
async def test_unknown_ids_are_refused(fields: dict[str, Any], words: str, acme: AsyncAnthropic):
    with pytest.raises(anthropic.NotFoundError, match=words):
        await session(acme, **fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"initial_events": [message("x")] * 51}, "initial_events"),
        ({"initial_events": [{"type": "user.interrupt"}]}, "initial_events"),
        (
            {"budget": {"type": "limit", "max_list_cost": {"amount": "1.5", "currency": "USD"}}},
            "amo",
        ),
        (
            {"resources": [{"type": "file", "file_id": "file_text", "mount_path": "../etc"}]},
            "mount_path",
        ),
        ({"resources": [{"type": "file", "file_id": "file_text"}] * 2}, "mount_path"),
        ({"resources": [{"type": "github_repository", "url": "https://t:x@a.org/o/r"}]}, "secret"),
    ],
)
async def test_an_invalid_request_creates_no_session(
    fields: dict[str, Any], words: str, acme: AsyncAnthropic
):
    with pytest.raises(anthropic.BadRequestError, match=words):
        await session(acme, **fields)
    assert await collect(acme.beta.sessions.list()) == []


async def test_archived_agents_and_environments_accept_no_new_sessions(acme: AsyncAnthropic):
    agent = await agent_id(acme)
    environment = await environment_id(acme)
    await acme.beta.environments.archive(environment)
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await acme.beta.sessions.create(agent=agent, environment_id=environment)
    await acme.beta.agents.archive(agent)
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await session(acme, agent=agent)


async def test_initial_events_start_the_session(api: SessionsApi, acme: AsyncAnthropic):
    api.worker.is_asleep = True
    assert (await session(acme, initial_events=[message("go")])).status == "running"
    api.worker.is_asleep = False
    made = await session(acme, initial_events=[message("go"), message("on")])
    await api.worker.settled()
    done = await acme.beta.sessions.retrieve(made.id)
    assert done.status == "idle"
    assert done.usage.output_tokens
    assert done.stats.active_seconds is not None
    assert done.usage.list_cost is not None


async def test_changes_of_a_session_are_logged_and_validated(
    api: SessionsApi, acme: AsyncAnthropic
):
    made = await session(
        acme,
        metadata={"a": "1", "b": "2"},
        budget={"type": "limit", "max_list_cost": {"amount": "100", "currency": "USD"}},
    )
    changed = await acme.beta.sessions.update(
        made.id,
        title="Named",
        metadata={"a": None, "c": "3"},
        budget={"type": "limit", "max_list_cost": {"amount": "300", "currency": "USD"}},
        agent={"tools": [], "mcp_servers": []},
    )
    assert (changed.title, changed.metadata) == ("Named", {"b": "2", "c": "3"})
    assert changed.agent.tools == []
    await api.worker.settled()
    [told] = await collect(acme.beta.sessions.events.list(made.id, types=["session.updated"]))
    assert told.type == "session.updated"
    assert (told.title, told.metadata) == ("Named", {"b": "2", "c": "3"})
    assert told.agent is not None
    assert told.budget is not None
    assert (await acme.beta.sessions.update(made.id, budget=None)).budget is None
    with pytest.raises(anthropic.BadRequestError, match="budget_create_only"):
        await acme.beta.sessions.update(
            made.id, budget={"type": "limit", "max_list_cost": {"amount": "9", "currency": "USD"}}
        )
    with pytest.raises(anthropic.BadRequestError, match="vault_ids"):
        await acme.beta.sessions.update(made.id, vault_ids=["vlt_1"])
    with pytest.raises(anthropic.BadRequestError, match="mcp_servers"):
        await acme.beta.sessions.update(
            made.id, agent={"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}
        )


async def test_a_budget_requires_models_with_a_price(acme: AsyncAnthropic):
    free = await agent_id(acme, model="free-model")
    lead = await agent_id(acme, multiagent={"type": "coordinator", "agents": [free]})
    environment = await environment_id(acme)
    for agent in (free, lead):
        with pytest.raises(anthropic.BadRequestError, match="model_not_budgetable"):
            await acme.beta.sessions.create(
                agent=agent,
                environment_id=environment,
                budget={"type": "limit", "max_list_cost": {"amount": "1", "currency": "USD"}},
            )


async def test_a_running_session_cannot_be_archived_deleted_or_retooled(tmp_path: Path):
    slow = Scripted(says("Never."), otherwise=says("Stopped."), latency_seconds=60)
    async with service(tmp_path, slow) as api, api.client() as client:
        made = await session(client, initial_events=[message("go")])
        await api.until(made.id, "span.model_request_start")
        assert (await client.beta.sessions.retrieve(made.id)).status == "running"
        with pytest.raises(anthropic.ConflictError, match="interrupt"):
            await client.beta.sessions.archive(made.id)
        with pytest.raises(anthropic.ConflictError, match="interrupt"):
            await client.beta.sessions.delete(made.id)
        with pytest.raises(anthropic.ConflictError, match="interrupt"):
            await client.beta.sessions.update(made.id, agent={"tools": [CUSTOM]})  # pyright: ignore[reportArgumentType]
        await client.beta.sessions.events.send(made.id, events=[{"type": "user.interrupt"}])
        await api.worker.settled()
        archived = await client.beta.sessions.archive(made.id)
        assert archived.archived_at is not None
        assert archived.status == "terminated"


async def test_an_archived_session_accepts_no_events(api: SessionsApi, acme: AsyncAnthropic):
    made = await session(acme)
    archived = await acme.beta.sessions.archive(made.id)
    assert (await acme.beta.sessions.archive(made.id)).archived_at == archived.archived_at
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await acme.beta.sessions.events.send(made.id, events=[message("hi")])
    with pytest.raises(anthropic.BadRequestError):
        await acme.beta.sessions.update(made.id, title="x")
    assert await collect(acme.beta.sessions.list()) == []
    [listed] = await collect(acme.beta.sessions.list(include_archived=True))
    assert listed.id == made.id
    gone = await acme.beta.sessions.delete(made.id)
    assert (gone.id, gone.type) == (made.id, "session_deleted")
    with pytest.raises(anthropic.NotFoundError):
        await acme.beta.sessions.retrieve(made.id)
    with pytest.raises(anthropic.NotFoundError):
        await acme.beta.sessions.delete(made.id)
    assert [notice.type for notice in api.notices] == [
        "session.created",
        "session.archived",
        "session.deleted",
    ]


async def test_a_fork_diverges_and_prevents_deletion_of_its_parent(
    api: SessionsApi, acme: AsyncAnthropic, rival: AsyncAnthropic
):
    made = await session(acme, title="First", initial_events=[message("go")])
    await api.worker.settled()
    path = f"/v1/sessions/{made.id}/fork"
    fork = await acme.post(path, body={"at": 2}, cast_to=BetaManagedAgentsSession)
    assert (fork.title, fork.status, fork.agent) == ("First", "idle", made.agent)
    await acme.beta.sessions.events.send(fork.id, events=[message("another way")])
    await api.worker.settled()
    shown = [event.type async for event in acme.beta.sessions.events.list(fork.id)]
    assert shown.count("user.message") == 2
    backwards = acme.beta.sessions.events.list(fork.id, order="desc", limit=2)
    assert [backward.type async for backward in backwards] == shown[::-1]
    with pytest.raises(anthropic.ConflictError, match=fork.id):
        await acme.beta.sessions.delete(made.id)
    with pytest.raises(anthropic.BadRequestError, match="cannot fork"):
        await acme.post(path, body={"at": 999}, cast_to=BetaManagedAgentsSession)
    with pytest.raises(anthropic.NotFoundError):
        await rival.post(path, body={}, cast_to=BetaManagedAgentsSession)
    await acme.beta.sessions.delete(fork.id)
    await acme.beta.sessions.delete(made.id)


async def test_responses_have_the_types_of_the_sdk(api: SessionsApi, acme: AsyncAnthropic):
    made = await session(
        acme,
        initial_events=[message("go")],
        resources=[
            {
                "type": "github_repository",
                "url": "https://github.com/o/r",
                "checkout": {"type": "commit", "sha": "a" * 40},
            },
            {"type": "file", "file_id": "file_text"},
            {"type": "memory_store", "memory_store_id": "memstore_1"},
        ],
    )
    await api.worker.settled()
    raw = acme.beta.sessions.with_raw_response
    shown = await (await raw.retrieve(made.id)).text()
    BetaManagedAgentsSession.model_validate_json(shown, strict=True)
    listed = await (await raw.list()).text()
    AsyncBidirectionalPageCursor[BetaManagedAgentsSession].model_validate_json(listed)
    threads = acme.beta.sessions.threads.with_raw_response
    [main] = await collect(acme.beta.sessions.threads.list(made.id))
    thread = await (await threads.retrieve(main.id, session_id=made.id)).text()
    BetaManagedAgentsSessionThread.model_validate_json(thread, strict=True)
    events = acme.beta.sessions.events.with_raw_response
    sent = await (await events.send(made.id, events=[message("more")])).text()
    BetaManagedAgentsSendSessionEvents.model_validate_json(sent, strict=True)
