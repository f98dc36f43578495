"""The fleet's own troubles: jobs of the dead, jobs left in `doing`, long names, its tables."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import anyio
import psycopg
import pytest
from tests.at_once import at_once
from tests.fixtures_postgres import Postgres
from tests.service.dispatcher_setup import Doing, at_work, job

from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.service.jobs.dispatcher import ATTEMPTS, Job
from mainspring.service.jobs.postgres_dispatcher import STALLED_SECONDS, open_fleet


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    yield postgres.url()
    postgres.disconnect()
    postgres.execute("drop schema if exists procrastinate cascade")


def run_sql(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True, options="-c search_path=procrastinate") as db:
        return db.execute(statement.encode()).fetchall()


async def strand_job(url: str, *, since_seconds: float = 2 * STALLED_SECONDS) -> None:
    """The job `a` in the hands of a worker that died so long ago."""
    async with open_fleet(url) as dispatcher:
        await dispatcher.put(job("a"))
        await dispatcher.take()
    run_sql(
        url,
        "update procrastinate_workers set last_heartbeat = now() - "
        f"make_interval(secs => {since_seconds}) returning id",
    )


async def test_jobs_of_a_dead_worker_are_done_by_another(url: str):
    await strand_job(url)
    doing = Doing()
    async with open_fleet(url) as dispatcher, at_work(dispatcher, doing):
        await doing.until(lambda: doing.done == ["a"])
    assert run_sql(url, "select * from procrastinate_jobs") == []


async def test_a_job_of_a_dead_worker_that_was_put_again_is_done_once(url: str):
    await strand_job(url)
    doing = Doing()
    async with open_fleet(url) as dispatcher:
        await dispatcher.put(job("a"))
        await dispatcher.put(job("z"), at=clock.now() + timedelta(seconds=2))
        async with at_work(dispatcher, doing):
            await doing.until(lambda: "z" in doing.done)
    assert doing.done == ["a", "z"]
    assert run_sql(url, "select * from procrastinate_jobs") == []


async def test_an_unsettled_job_of_a_live_worker_does_not_stay_in_doing(url: str):
    """The worker lives and beats; only the sweep knows that nobody does the job."""
    doing = Doing()
    async with open_fleet(url) as dispatcher, at_work(dispatcher, doing):
        await dispatcher.put(job("a"))
        await doing.until(lambda: doing.done == ["a"])
        [(me,)] = run_sql(url, "select id from procrastinate_workers")
        run_sql(
            url,
            "insert into procrastinate_jobs"
            " (queue_name, task_name, lock, queueing_lock, args, status, worker_id) values"
            " ('acme', 'deliver', 'deliver:lost', 'deliver:lost',"
            f' \'{{"key": "lost", "tenant": "acme"}}\', \'doing\', {me}) returning id',
        )
        await doing.until(lambda: doing.done == ["a", "lost"])


async def test_a_worker_taken_for_dead_continues_under_another_number(url: str):
    go_on = anyio.Event()

    async def act(taken: Job) -> None:
        if taken.key == "slow":
            await go_on.wait()

    doing = Doing(act)
    async with open_fleet(url) as dispatcher, at_work(dispatcher, doing):
        await dispatcher.put(job("slow"))
        await doing.until(lambda: doing.begun == ["slow"])
        run_sql(url, "delete from procrastinate_workers returning id")
        await doing.until(lambda: doing.begun == ["slow", "slow"])
        go_on.set()
        await doing.until(lambda: doing.done == ["slow", "slow"])
        await dispatcher.put(job("next"))
        await doing.until(lambda: "next" in doing.done)


async def test_a_job_that_kills_its_workers_is_given_up(url: str):
    doing = Doing()
    async with open_fleet(url) as dispatcher:
        await dispatcher.put(job("a"))
        run_sql(url, f"update procrastinate_jobs set attempts = {ATTEMPTS} returning id")
        async with at_work(dispatcher, doing):
            await doing.until(lambda: bool(doing.failed))
    assert doing.begun == []
    assert "its worker died" in doing.failed[0][1]


async def test_jobs_far_in_the_future_do_not_affect_fairness(url: str):
    doing = Doing()
    async with open_fleet(url) as dispatcher:
        for number in range(5):
            later = clock.now() + timedelta(days=1 + number)
            await dispatcher.put(job(f"later {number}", tenant="big"), at=later)
        for number in range(10):
            await dispatcher.put(job(f"big {number}", tenant="big"))
        for number in range(10):
            await dispatcher.put(job(f"small {number}", tenant="small"))
        async with at_work(dispatcher, doing, concurrency=1):
            await doing.until(lambda: len(doing.done) == 20)
    assert abs([key.split()[0] for key in doing.done][:10].count("big") - 5) <= 1


async def test_keys_and_tenants_may_be_long(url: str):
    doing = Doing()
    async with open_fleet(url) as dispatcher, at_work(dispatcher, doing):
        await dispatcher.put(job("k" * 300, tenant="t" * 300))
        await doing.until(lambda: len(doing.done) == 1)


async def test_concurrent_starts_create_the_tables_once(url: str):
    async def start() -> None:
        async with open_fleet(url) as dispatcher:
            await dispatcher.put(job("a"))

    await at_once(lambda _: start(), range(5))
    assert run_sql(url, "select count(*) from procrastinate_jobs") == [(1,)]


async def test_an_unsupported_url_is_refused():
    with pytest.raises(InvalidInput):
        async with open_fleet("redis://nowhere"):
            pass


async def test_workers_survive_a_restart_of_the_server(url: str, postgres: Postgres):
    doing = Doing()
    async with open_fleet(url) as dispatcher, at_work(dispatcher, doing):
        await dispatcher.put(job("before"))
        await doing.until(lambda: doing.done == ["before"])
        await anyio.to_thread.run_sync(postgres.stop)
        await anyio.to_thread.run_sync(postgres.start)
        await dispatcher.put(job("after"))
        await doing.until(lambda: doing.done == ["before", "after"])


async def test_a_clock_that_is_ahead_does_not_delay_jobs(url: str):
    doing = Doing()

    def ahead() -> datetime:
        return clock.now() + timedelta(hours=1)

    async with open_fleet(url, clock=ahead) as dispatcher, at_work(dispatcher, doing):
        await dispatcher.put(job("a"), at=ahead() + timedelta(seconds=0.2))
        await doing.until(lambda: doing.done == ["a"])
