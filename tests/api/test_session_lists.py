from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import ids
from tests.api.sessions_api import SessionsApi, agent_id, environment_id, message, service
from tests.service.test_activity_list import counted_statements

from mainspring.harness.state.projection_cache import Projections
from mainspring.log.records import SESSION_KIND, Replace
from mainspring.testing import Scripted, says


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[SessionsApi]:
    async with service(tmp_path, Scripted(otherwise=says("Done."))) as running:
        yield running


async def test_pages_can_be_turned_in_both_directions(acme: AsyncAnthropic):
    agent, env = await agent_id(acme), await environment_id(acme)
    made = [(await acme.beta.sessions.create(agent=agent, environment_id=env)).id for _ in range(5)]
    newest = made[::-1]
    assert await ids(acme.beta.sessions.list(limit=2)) == newest
    assert await ids(acme.beta.sessions.list(limit=2, order="asc")) == made
    first = await acme.beta.sessions.list(limit=2)
    assert first.prev_page is None
    assert first.next_page is not None
    second = await acme.beta.sessions.list(limit=2, page=first.next_page)
    assert [item.id for item in second.data] == newest[2:4]
    assert second.prev_page is not None
    back = await acme.beta.sessions.list(limit=2, page=second.prev_page)
    assert [item.id for item in back.data] == newest[:2]
    assert back.prev_page is None
    assert back.next_page is not None
    forth = await acme.beta.sessions.list(limit=2, page=back.next_page)
    assert [item.id for item in forth.data] == newest[2:4]
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await acme.beta.sessions.list(page="nonsense")


async def test_lists_are_filtered(api: SessionsApi, acme: AsyncAnthropic):
    one, other = await agent_id(acme), await agent_id(acme)
    environment = await environment_id(acme)
    first = await acme.beta.sessions.create(
        agent=one,
        environment_id=environment,
        resources=[{"type": "memory_store", "memory_store_id": "memstore_1"}],
    )
    api.worker.is_asleep = True
    second = await acme.beta.sessions.create(
        agent=other, environment_id=environment, initial_events=[message("go")]
    )

    async def found(**filters: object) -> list[str]:
        asked: dict[str, Any] = filters
        return await ids(acme.beta.sessions.list(**asked))

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


async def test_a_key_of_one_agent_sees_only_its_sessions(api: SessionsApi, acme: AsyncAnthropic):
    mine, other = await agent_id(acme), await agent_id(acme)
    environment = await environment_id(acme)
    foreign = await acme.beta.sessions.create(agent=other, environment_id=environment)
    async with api.client(f"acme:user:{mine}") as scoped:
        own = await scoped.beta.sessions.create(agent=mine, environment_id=environment)
        assert await ids(scoped.beta.sessions.list()) == [own.id]
        assert await ids(scoped.beta.sessions.list(agent_id=other)) == []
        with pytest.raises(anthropic.NotFoundError):
            await scoped.beta.sessions.create(agent=other, environment_id=environment)
        with pytest.raises(anthropic.NotFoundError):
            await scoped.beta.sessions.retrieve(foreign.id)
        with pytest.raises(anthropic.NotFoundError):
            await scoped.beta.sessions.events.send(foreign.id, events=[message("hi")])


async def test_a_damaged_record_is_an_internal_error_although_it_was_cached(
    api: SessionsApi, acme: AsyncAnthropic, caplog: pytest.LogCaptureFixture
):
    agent, env = await agent_id(acme), await environment_id(acme)
    session = await acme.beta.sessions.create(agent=agent, environment_id=env)
    assert await ids(acme.beta.sessions.list()) == [session.id]
    records = api.sessions.repository.records
    row = await records.get(SESSION_KIND, session.id)
    await records.write(Replace(row=replace(row, body=b'{"secret": "damaged"}')))
    with pytest.raises(anthropic.InternalServerError, match="internal error") as refusal:
        await acme.with_options(max_retries=0).beta.sessions.list()
    assert session.id not in str(refusal.value)
    assert f"the record session {session.id} cannot be read" in caplog.text


async def test_sessions_with_another_status_are_skipped_without_reading_their_logs(tmp_path: Path):
    with counted_statements() as statements:
        async with (
            service(tmp_path, Scripted(otherwise=says("Done."))) as api,
            api.client("acme:operator") as acme,
        ):
            agent, env = await agent_id(acme), await environment_id(acme)
            for _ in range(20):
                await acme.beta.sessions.create(agent=agent, environment_id=env)
            api.sessions.projections = Projections(api.sessions.log)
            statements.clear()
            page = await acme.beta.sessions.list(statuses=["rescheduling"])
            assert (list(page.data), page.next_page) == ([], None)
            assert not any("from event" in statement for statement in statements)
            assert len(statements) < 20
