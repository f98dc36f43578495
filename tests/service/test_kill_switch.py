"""The kill switch."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.service.fixed_clock import Time, person

from mainspring.core.errors import Forbidden, NotFound
from mainspring.log.records import Records
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.kill_switch import ALL_TENANTS, HALT_CACHE_SECONDS, CreateHalt, Halts


@pytest.fixture
async def records(tmp_path: Path) -> AsyncGenerator[Records]:
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        yield store.records


async def test_an_agent_a_tenant_or_everything_is_halted_and_resumed(records: Records):
    halts = Halts(records)
    await halts.halt("acme", person(), CreateHalt(agent_id="a1", reason="it deletes things"))
    why = await halts.why_stopped("acme", "a1")
    assert why == "the agent a1 was stopped by olga: it deletes things"
    assert not await halts.is_stopped("acme", "a2")
    assert not await halts.is_stopped("acme")
    assert not await halts.is_stopped("rival", "a1")
    await halts.halt("acme", person(), CreateHalt())
    assert await halts.is_stopped("acme", "a2")
    assert not await halts.is_stopped("rival", "a1")
    await halts.halt(ALL_TENANTS, person(), CreateHalt())
    assert await halts.is_stopped("rival", "a1")
    assert len(await halts.of("rival")) == 1
    await halts.resume(ALL_TENANTS, person())
    await halts.resume("acme", person())
    assert await halts.is_stopped("acme", "a1")
    await halts.resume("acme", person(), "a1")
    assert await halts.everything() == []
    with pytest.raises(NotFound):
        await halts.resume("acme", person(), "a1")


async def test_a_tenant_named_all_is_an_ordinary_tenant(records: Records):
    halts = Halts(records)
    await halts.halt("all", person("all"), CreateHalt())
    assert await halts.is_stopped("all")
    assert not await halts.is_stopped("acme")


async def test_a_halt_takes_effect_in_other_processes_within_seconds(records: Records):
    time = Time()
    here, there = Halts(records), Halts(records, monotonic=time.monotonic)
    assert not await there.is_stopped("acme")
    await here.halt("acme", person(), CreateHalt())
    time.pass_(HALT_CACHE_SECONDS)
    assert await there.is_stopped("acme")


async def test_an_agent_can_halt_itself_but_not_resume_itself(records: Records):
    halts = Halts(records)
    agent = replace(person(), acting_agent="a1")
    await halts.halt("acme", agent, CreateHalt(agent_id="a1"))
    with pytest.raises(Forbidden):
        await halts.resume("acme", agent, "a1")
