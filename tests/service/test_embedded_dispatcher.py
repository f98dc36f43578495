"""The embedded dispatcher's own: what a dead process held, and what only memory knows."""

from datetime import datetime, timedelta
from pathlib import Path

from tests.service.dispatcher_setup import Doing, at_work, job

from mainspring.core import clock
from mainspring.log.sqlite import open_sqlite
from mainspring.service.jobs.dispatcher import ATTEMPTS
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.jobs.job_records import HOLD_SECONDS


def later() -> datetime:
    return clock.now() + timedelta(seconds=2 * HOLD_SECONDS)


async def test_jobs_of_a_dead_process_are_done_by_another(tmp_path: Path):
    doing = Doing()
    async with open_sqlite(tmp_path / "jobs.db") as store:
        dead = EmbeddedDispatcher(store.records)
        await dead.put(job("a"))
        assert await dead.take() is not None
        alive = EmbeddedDispatcher(store.records, clock=later)
        async with at_work(alive, doing):
            await doing.until(lambda: doing.done == ["a"])


async def test_a_job_that_kills_its_processes_is_given_up(tmp_path: Path):
    doing = Doing()
    moment = clock.now()

    def now() -> datetime:
        return moment

    async with open_sqlite(tmp_path / "jobs.db") as store:
        await EmbeddedDispatcher(store.records).put(job("a"), at=moment)
        for _ in range(ATTEMPTS):
            moment += timedelta(seconds=2 * HOLD_SECONDS)
            dying = EmbeddedDispatcher(store.records, clock=now)
            await dying.poll()
            assert await dying.take() is not None
        moment += timedelta(seconds=2 * HOLD_SECONDS)
        async with at_work(EmbeddedDispatcher(store.records, clock=now), doing):
            await doing.until(lambda: bool(doing.failed))
    assert doing.begun == []


async def test_a_slow_process_does_not_end_the_job_of_its_successor(tmp_path: Path):
    async with open_sqlite(tmp_path / "jobs.db") as store:
        slow = EmbeddedDispatcher(store.records)
        await slow.put(job("a"))
        taken = await slow.take()
        assert taken is not None
        other = EmbeddedDispatcher(store.records, clock=later)
        await other.poll()
        assert await other.take() is not None
        await slow.finish(taken)
        third = EmbeddedDispatcher(store.records)
        await third.poll()
        assert await third.take() is None, "the other still does it"


async def test_a_reminder_is_not_stored(tmp_path: Path):
    doing = Doing()
    async with open_sqlite(tmp_path / "jobs.db") as store:
        dispatcher = EmbeddedDispatcher(store.records)
        await dispatcher.remind([job("a")])
        again = EmbeddedDispatcher(store.records)
        await again.poll()
        assert await again.take() is None
        async with at_work(dispatcher, doing):
            await doing.until(lambda: doing.done == ["a"])
