from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from tests.api.sessions_api import (
    House,
    agent_id,
    environment_id,
    message,
    service,
    session,
)

from mainspring import Scripted, says


@pytest.fixture
async def home(tmp_path: Path) -> AsyncGenerator[House, None]:
    async with service(tmp_path, Scripted(otherwise=says("Done."))) as running:
        yield running


async def test_pages_are_turned_both_ways(home: House):
    async with home.client() as client:
        agent, environment = await agent_id(client), await environment_id(client)
        made = [
            (await client.beta.sessions.create(agent=agent, environment_id=environment)).id
            for _ in range(5)
        ]
        newest = made[::-1]
        assert [item.id async for item in client.beta.sessions.list(limit=2)] == newest
        assert [item.id async for item in client.beta.sessions.list(limit=2, order="asc")] == made
        first = await client.beta.sessions.list(limit=2)
        assert first.prev_page is None
        assert first.next_page is not None
        second = await client.beta.sessions.list(limit=2, page=first.next_page)
        assert [item.id for item in second.data] == newest[2:4]
        assert second.prev_page is not None
        back = await client.beta.sessions.list(limit=2, page=second.prev_page)
        assert [item.id for item in back.data] == newest[:2]
        assert back.prev_page is None
        assert back.next_page is not None
        forth = await client.beta.sessions.list(limit=2, page=back.next_page)
        assert [item.id for item in forth.data] == newest[2:4]
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
            return [item.id async for item in client.beta.sessions.list(**asked)]

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
            assert [item.id async for item in scoped.beta.sessions.list()] == [own.id]
            assert [item.id async for item in scoped.beta.sessions.list(agent_id=other)] == []
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
        [resource] = [item async for item in client.beta.sessions.resources.list(made.id)]
        assert resource.type == "file"
        [thread] = [item async for item in client.beta.sessions.threads.list(made.id)]
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
        assert [their async for their in theirs.list()] == []
