"""The kill switch against a tenant that makes many of them."""

from pathlib import Path

from tests.service.fixed_clock import person

from mainspring.core import clock
from mainspring.log.records import Put, RecordRow
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.kill_switch import ALL_TENANTS, CreateHalt, Halts


async def test_a_halt_applies_regardless_of_halts_of_other_tenants(tmp_path: Path):
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        halts = Halts(store.records)
        await halts.halt("acme", person(), CreateHalt(agent_id="a1"))
        await halts.halt(ALL_TENANTS, person(), CreateHalt())
        template = await halts.halt("rival", person("rival"), CreateHalt(agent_id="b"))
        now = round(clock.now().timestamp() * 1e6)
        await store.records.write(
            *(
                Put(
                    row=RecordRow(
                        tenant="rival",
                        kind="halt",
                        id=f"{template.id}{number}",
                        created=now + number,
                        updated=now,
                        body=b"{}",
                    )
                )
                for number in range(10_001)
            )
        )
        assert await Halts(store.records).is_stopped("third", "c")
        await halts.resume(ALL_TENANTS, person())
        later = Halts(store.records)
        assert await later.is_stopped("acme", "a1")
        assert not await later.is_stopped("acme", "a2")
        assert [item.agent_id for item in await later.of("acme")] == ["a1"]
