from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from tests.api.agents_served import CUSTOM
from tests.api.sessions_served import (
    House,
    agent_id,
    environment_id,
    house,
    message,
    session,
)

from mainspring import Scripted, says
from mainspring.core.events import ThreadCreated


@pytest.fixture
async def home(tmp_path: Path) -> AsyncGenerator[House, None]:
    async with house(tmp_path, Scripted(otherwise=says("Done."))) as running:
        yield running


async def test_a_session_is_made_with_all_that_it_was_asked_for(home: House):
    async with home.client() as client:
        agent = await agent_id(client)
        environment = await environment_id(client)
        made = await client.beta.sessions.create(
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
        assert [each.type for each in made.resources] == [
            "file",
            "github_repository",
            "memory_store",
        ]
        assert made.resources[0].mount_path == "/mnt/session/uploads/file_text"
        assert made.resources[1].mount_path == "/workspace/r"
        assert made.resources[2].mount_path == "/mnt/memory/user-preferences"
        assert (made.title, made.metadata, made.vault_ids) == (
            "Rates",
            {"team": "core"},
            ["vlt_1"],
        )
        assert made.budget is not None
        assert made.budget.max_list_cost.amount == "2500"
        assert made.outcome_evaluations == []
        again = await client.beta.sessions.retrieve(made.id)
        assert again.created_at == made.created_at
        assert [notice.type for notice in home.notices] == ["session.created"]


async def test_an_agent_is_chosen_by_version_or_overridden(home: House):
    async with home.client() as client:
        agent = await agent_id(client, system="Be brief.")
        environment = await environment_id(client)
        await client.beta.agents.update(agent, version=1, system="Be long.")
        older = await client.beta.sessions.create(
            agent={"type": "agent", "id": agent, "version": 1}, environment_id=environment
        )
        assert (older.agent.version, older.agent.system) == (1, "Be brief.")
        other = await client.beta.sessions.create(
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
            await client.beta.sessions.create(
                agent={"type": "agent", "id": agent, "version": 9}, environment_id=environment
            )


async def test_a_team_comes_along_with_its_definitions(home: House):
    async with home.client() as client:
        scout = await agent_id(client, name="scout")
        lead = await agent_id(
            client, name="lead", multiagent={"type": "coordinator", "agents": [scout]}
        )
        made = await session(client, agent=lead)
        assert made.agent.multiagent is not None
        assert made.agent.multiagent.type == "coordinator"
        [member] = made.agent.multiagent.agents
        assert member.type == "agent"
        assert (member.id, member.name) == (scout, "scout")
        writer = await home.log.hold(made.id, owner="test")
        await writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="scout"))
        threads = [each async for each in client.beta.sessions.threads.list(made.id)]
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
async def test_what_a_session_refers_to_must_be_there(
    home: House, fields: dict[str, Any], words: str
):
    async with home.client() as client:
        with pytest.raises(anthropic.NotFoundError, match=words):
            await session(client, **fields)


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
async def test_bad_input_is_refused_and_nothing_is_made(
    home: House, fields: dict[str, Any], words: str
):
    async with home.client() as client:
        with pytest.raises(anthropic.BadRequestError, match=words):
            await session(client, **fields)
        assert [each async for each in client.beta.sessions.list()] == []


async def test_archived_agents_and_environments_get_no_new_sessions(home: House):
    async with home.client() as client:
        agent = await agent_id(client)
        environment = await environment_id(client)
        await client.beta.environments.archive(environment)
        with pytest.raises(anthropic.BadRequestError, match="archived"):
            await client.beta.sessions.create(agent=agent, environment_id=environment)
        await client.beta.agents.archive(agent)
        with pytest.raises(anthropic.BadRequestError, match="archived"):
            await session(client, agent=agent)


async def test_initial_events_set_it_to_work(home: House):
    async with home.client() as client:
        home.worker.is_asleep = True
        waiting = await session(client, initial_events=[message("go")])
        assert waiting.status == "running"
        home.worker.is_asleep = False
        made = await session(client, initial_events=[message("go"), message("on")])
        await home.worker.settled()
        done = await client.beta.sessions.retrieve(made.id)
        assert done.status == "idle"
        assert done.usage.output_tokens
        assert done.stats.active_seconds is not None
        assert done.usage.list_cost is not None


async def test_title_metadata_budget_and_tools_are_changed_and_the_log_is_told(home: House):
    async with home.client() as client:
        made = await session(
            client,
            metadata={"a": "1", "b": "2"},
            budget={"type": "limit", "max_list_cost": {"amount": "100", "currency": "USD"}},
        )
        changed = await client.beta.sessions.update(
            made.id,
            title="Named",
            metadata={"a": None, "c": "3"},
            budget={"type": "limit", "max_list_cost": {"amount": "300", "currency": "USD"}},
            agent={"tools": [], "mcp_servers": []},
        )
        assert (changed.title, changed.metadata) == ("Named", {"b": "2", "c": "3"})
        assert changed.agent.tools == []
        await home.worker.settled()
        [told] = [
            each
            async for each in client.beta.sessions.events.list(made.id, types=["session.updated"])
        ]
        assert told.type == "session.updated"
        assert (told.title, told.metadata) == ("Named", {"b": "2", "c": "3"})
        assert told.agent is not None
        assert told.budget is not None
        removed = await client.beta.sessions.update(made.id, budget=None)
        assert removed.budget is None
        with pytest.raises(anthropic.BadRequestError, match="budget_create_only"):
            await client.beta.sessions.update(
                made.id,
                budget={"type": "limit", "max_list_cost": {"amount": "9", "currency": "USD"}},
            )
        with pytest.raises(anthropic.BadRequestError, match="vault_ids"):
            await client.beta.sessions.update(made.id, vault_ids=["vlt_1"])
        with pytest.raises(anthropic.BadRequestError, match="mcp_servers"):
            await client.beta.sessions.update(
                made.id, agent={"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}
            )


async def test_a_running_session_is_not_archived_deleted_or_given_other_tools(tmp_path: Path):
    slow = Scripted(says("Never."), otherwise=says("Stopped."), latency_seconds=60)
    async with house(tmp_path, slow) as home, home.client() as client:
        made = await session(client, initial_events=[message("go")])
        await home.until(made.id, "span.model_request_start")
        assert (await client.beta.sessions.retrieve(made.id)).status == "running"
        with pytest.raises(anthropic.ConflictError, match="interrupt"):
            await client.beta.sessions.archive(made.id)
        with pytest.raises(anthropic.ConflictError, match="interrupt"):
            await client.beta.sessions.delete(made.id)
        with pytest.raises(anthropic.ConflictError, match="interrupt"):
            await client.beta.sessions.update(made.id, agent={"tools": [CUSTOM]})  # pyright: ignore[reportArgumentType]
        await client.beta.sessions.events.send(made.id, events=[{"type": "user.interrupt"}])
        await home.worker.settled()
        archived = await client.beta.sessions.archive(made.id)
        assert archived.archived_at is not None
        assert archived.status == "terminated"


async def test_an_archived_session_takes_no_events_and_a_deleted_one_is_gone(home: House):
    async with home.client() as client:
        made = await session(client)
        archived = await client.beta.sessions.archive(made.id)
        assert (await client.beta.sessions.archive(made.id)).archived_at == archived.archived_at
        with pytest.raises(anthropic.BadRequestError, match="archived"):
            await client.beta.sessions.events.send(made.id, events=[message("hi")])
        with pytest.raises(anthropic.BadRequestError):
            await client.beta.sessions.update(made.id, title="x")
        assert [each async for each in client.beta.sessions.list()] == []
        [listed] = [each async for each in client.beta.sessions.list(include_archived=True)]
        assert listed.id == made.id
        gone = await client.beta.sessions.delete(made.id)
        assert (gone.id, gone.type) == (made.id, "session_deleted")
        with pytest.raises(anthropic.NotFoundError):
            await client.beta.sessions.retrieve(made.id)
        with pytest.raises(anthropic.NotFoundError):
            await client.beta.sessions.delete(made.id)
        assert [notice.type for notice in home.notices] == [
            "session.created",
            "session.archived",
            "session.deleted",
        ]


async def test_pages_are_turned_both_ways(home: House):
    async with home.client() as client:
        agent, environment = await agent_id(client), await environment_id(client)
        made = [
            (await client.beta.sessions.create(agent=agent, environment_id=environment)).id
            for _ in range(5)
        ]
        newest = made[::-1]
        assert [each.id async for each in client.beta.sessions.list(limit=2)] == newest
        assert [each.id async for each in client.beta.sessions.list(limit=2, order="asc")] == made
        first = await client.beta.sessions.list(limit=2)
        assert first.prev_page is None
        assert first.next_page is not None
        second = await client.beta.sessions.list(limit=2, page=first.next_page)
        assert [each.id for each in second.data] == newest[2:4]
        assert second.prev_page is not None
        back = await client.beta.sessions.list(limit=2, page=second.prev_page)
        assert [each.id for each in back.data] == newest[:2]
        assert back.prev_page is None
        assert back.next_page is not None
        forth = await client.beta.sessions.list(limit=2, page=back.next_page)
        assert [each.id for each in forth.data] == newest[2:4]
        with pytest.raises(anthropic.BadRequestError, match="page"):
            await client.beta.sessions.list(page="nonsense")


async def test_lists_are_filtered(home: House):
    async with home.client() as client:
        one, other = await agent_id(client), await agent_id(client)
        environment = await environment_id(client)
        first = await client.beta.sessions.create(
            agent=one,
            environment_id=environment,
            resources=[{"type": "memory_store", "memory_store_id": "memstore_1"}],
        )
        home.worker.is_asleep = True
        second = await client.beta.sessions.create(
            agent=other, environment_id=environment, initial_events=[message("go")]
        )

        async def found(**filters: object) -> list[str]:
            asked: dict[str, Any] = filters
            return [each.id async for each in client.beta.sessions.list(**asked)]

        assert await found(agent_id=one) == [first.id]
        assert await found(agent_id=one, agent_version=2) == []
        assert await found(memory_store_id="memstore_1") == [first.id]
        assert await found(statuses=["running"]) == [second.id]
        assert await found(statuses=["running", "idle"]) == [second.id, first.id]
        assert await found(deployment_id="depl_1") == []
        assert await found(created_at_gt=first.created_at) == [second.id]
        assert await found(created_at_gte=second.created_at) == [second.id]
        assert await found(created_at_lt=second.created_at) == [first.id]
        assert await found(created_at_lte=first.created_at) == [first.id]
        assert await found(statuses=["running", "idle"], limit=1) == [second.id, first.id]


async def test_a_key_of_one_agent_sees_and_makes_only_its_sessions(home: House):
    async with home.client() as client:
        mine, other = await agent_id(client), await agent_id(client)
        environment = await environment_id(client)
        foreign = await client.beta.sessions.create(agent=other, environment_id=environment)
        async with home.client(f"acme:user:{mine}") as scoped:
            own = await scoped.beta.sessions.create(agent=mine, environment_id=environment)
            assert [each.id async for each in scoped.beta.sessions.list()] == [own.id]
            assert [each.id async for each in scoped.beta.sessions.list(agent_id=other)] == []
            with pytest.raises(anthropic.NotFoundError):
                await scoped.beta.sessions.create(agent=other, environment_id=environment)
            with pytest.raises(anthropic.NotFoundError):
                await scoped.beta.sessions.retrieve(foreign.id)
            with pytest.raises(anthropic.NotFoundError):
                await scoped.beta.sessions.events.send(foreign.id, events=[message("hi")])


async def test_a_viewer_may_only_look(home: House):
    async with home.client() as client, home.client("acme:viewer") as viewer:
        made = await session(client)
        assert (await viewer.beta.sessions.retrieve(made.id)).id == made.id
        with pytest.raises(anthropic.PermissionDeniedError):
            await viewer.beta.sessions.events.send(made.id, events=[message("hi")])
        with pytest.raises(anthropic.PermissionDeniedError):
            await viewer.beta.sessions.archive(made.id)


async def test_another_tenant_finds_nothing_anywhere(home: House):
    async with home.client() as client, home.client("rival:admin") as rival:
        made = await session(client, resources=[{"type": "file", "file_id": "file_text"}])
        [resource] = [each async for each in client.beta.sessions.resources.list(made.id)]
        assert resource.type == "file"
        [thread] = [each async for each in client.beta.sessions.threads.list(made.id)]
        theirs = rival.beta.sessions
        tries = [
            lambda: theirs.retrieve(made.id),
            lambda: theirs.update(made.id, title="mine"),
            lambda: theirs.archive(made.id),
            lambda: theirs.delete(made.id),
            lambda: theirs.events.send(made.id, events=[message("hi")]),
            lambda: theirs.events.list(made.id),
            lambda: theirs.threads.list(made.id),
            lambda: theirs.threads.retrieve(thread.id, session_id=made.id),
            lambda: theirs.threads.archive(thread.id, session_id=made.id),
            lambda: theirs.threads.events.list(thread.id, session_id=made.id),
            lambda: theirs.resources.list(made.id),
            lambda: theirs.resources.add(made.id, type="file", file_id="file_text"),
            lambda: theirs.resources.retrieve(resource.id, session_id=made.id),
            lambda: theirs.resources.delete(resource.id, session_id=made.id),
            lambda: theirs.resources.update(
                resource.id,
                session_id=made.id,
                authorization_token="t",
            ),
        ]
        for attempt in tries:
            with pytest.raises(anthropic.NotFoundError):
                await attempt()
        assert [each async for each in theirs.list()] == []
