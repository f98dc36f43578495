"""What every dispatcher promises: the embedded one on SQLite, the fleet's on PostgreSQL."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from tests.fixtures_postgres import Postgres
from tests.service.dispatcher_setup import Doing, Open, at_work, embedded_in, fleet_at, job

from mainspring.core import clock
from mainspring.core.errors import StoreUnavailable
from mainspring.service.jobs.dispatcher import ATTEMPTS, Backlog, Job


@pytest.fixture(params=["embedded", "fleet"])
async def dispatchers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Open]:
    if request.param == "embedded":
        yield embedded_in(tmp_path)
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    yield fleet_at(postgres.url())
    postgres.disconnect()
    postgres.execute("drop schema if exists procrastinate cascade")


async def test_a_job_is_done_once(dispatchers: Open):
    doing = Doing()
    async with dispatchers() as dispatcher, at_work(dispatcher, doing) as closing:
        await dispatcher.put(job("a"))
        await doing.until(lambda: doing.done == ["a"])
        await dispatcher.put(job("b"))
        await doing.until(lambda: len(doing.done) == 2)
        closing.set()
    assert doing.done == ["a", "b"]


async def test_a_job_put_before_a_worker_started_is_done(dispatchers: Open):
    doing = Doing()
    async with dispatchers() as dispatcher:
        await dispatcher.put(job("a"))
    async with dispatchers() as dispatcher, at_work(dispatcher, doing):
        await doing.until(lambda: doing.done == ["a"])


async def test_due_jobs_that_nobody_has_taken_are_counted_and_the_oldest_has_an_age(
    dispatchers: Open,
):
    doing = Doing()
    async with dispatchers() as dispatcher:
        assert await dispatcher.backlog() == Backlog(0, 0.0)
        await dispatcher.put(job("a"))
        await dispatcher.remind([job("b")])
        await dispatcher.put(job("c"), at=clock.now() + timedelta(hours=1))
        backlog = await dispatcher.backlog()
        assert backlog.jobs == 2, "one is not due yet"
        assert 0 <= backlog.oldest_seconds < 600
        async with at_work(dispatcher, doing):
            await doing.until(lambda: len(doing.done) == 2)
        assert await dispatcher.backlog() == Backlog(0, 0.0)


async def test_waiting_jobs_with_one_key_are_merged(dispatchers: Open):
    doing = Doing()
    async with dispatchers() as dispatcher:
        for _ in range(3):
            await dispatcher.put(job("a"))
        await dispatcher.remind([job("a")])
        await dispatcher.put(job("b"), at=clock.now() + timedelta(seconds=0.5))
        async with at_work(dispatcher, doing):
            await doing.until(lambda: "b" in doing.done)
    assert doing.done == ["a", "b"]


async def test_a_job_put_while_the_same_key_runs_is_done_afterwards(dispatchers: Open):
    at_once = 0
    most = 0

    async def act(taken: Job) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if len(doing.begun) == 1:
            await dispatcher.put(taken)
            await dispatcher.put(job("other"))
            await doing.until(lambda: "other" in doing.begun)
        at_once -= taken.key == "a"

    doing = Doing(act)
    async with dispatchers() as dispatcher, at_work(dispatcher, doing):
        await dispatcher.put(job("a"))
        await doing.until(lambda: doing.done.count("a") == 2)
    assert doing.begun == ["a", "other", "a"]


async def test_a_later_job_is_moved_earlier_by_one_for_now(dispatchers: Open):
    doing = Doing()
    async with dispatchers() as dispatcher, at_work(dispatcher, doing):
        await dispatcher.put(job("a"), at=clock.now() + timedelta(hours=1))
        await dispatcher.remind([job("a")])
        await dispatcher.put(job("b"))
        await doing.until(lambda: doing.done == ["b"])
        await dispatcher.put(job("a"))
        await doing.until(lambda: doing.done == ["b", "a"])


async def test_a_delayed_job_runs_at_its_time(dispatchers: Open):
    doing = Doing()
    async with dispatchers() as dispatcher, at_work(dispatcher, doing):
        at = clock.now() + timedelta(seconds=0.3)
        await dispatcher.put(job("a"), at=at)
        await dispatcher.put(job("b"), at=clock.now() + timedelta(hours=1))
        await doing.until(lambda: doing.done == ["a"])
        assert clock.now() >= at


async def test_a_cancelled_job_is_not_done(dispatchers: Open):
    doing = Doing()
    async with dispatchers() as dispatcher:
        await dispatcher.put(job("a"))
        await dispatcher.cancel("deliver", "a")
        await dispatcher.cancel("deliver", "never was")
        await dispatcher.put(job("b"))
        async with at_work(dispatcher, doing):
            await doing.until(lambda: doing.done == ["b"])


async def test_a_reminder_is_done(dispatchers: Open):
    doing = Doing()
    async with dispatchers() as dispatcher, at_work(dispatcher, doing):
        await dispatcher.remind([job("a"), job("b")])
        await doing.until(lambda: sorted(doing.done) == ["a", "b"])
        await dispatcher.remind([])


async def test_a_failing_job_is_tried_five_times_and_then_reported(dispatchers: Open):
    async def act(taken: Job) -> None:
        if taken.key == "bad":
            raise ValueError("no such place")

    doing = Doing(act)
    async with dispatchers() as dispatcher, at_work(dispatcher, doing):
        await dispatcher.put(job("bad"))
        await doing.until(lambda: bool(doing.failed))
        await dispatcher.put(job("good"))
        await doing.until(lambda: doing.done == ["good"])
    assert doing.begun.count("bad") == ATTEMPTS
    assert doing.failed == [("bad", "no such place")]


async def test_a_job_put_again_while_it_fails_is_still_done(dispatchers: Open):
    """Procrastinate's own retry would leave it in `doing` for ever."""

    async def act(taken: Job) -> None:
        if len(doing.begun) == 1:
            await dispatcher.put(taken)
            raise ValueError("once")

    doing = Doing(act)
    async with dispatchers() as dispatcher, at_work(dispatcher, doing):
        await dispatcher.put(job("a"))
        await doing.until(lambda: doing.done == ["a"])
        await dispatcher.put(job("a"))
        await doing.until(lambda: len(doing.done) == 2)


async def test_an_unavailable_store_does_not_count_as_a_failure_of_the_job(dispatchers: Open):
    async def act(_: Job) -> None:
        if len(doing.begun) == 1:
            raise StoreUnavailable("restarting")

    doing = Doing(act)
    async with dispatchers() as dispatcher, at_work(dispatcher, doing):
        await dispatcher.put(job("a"))
        await doing.until(lambda: doing.done == ["a"])
    assert doing.failed == []


async def test_two_processes_do_each_job_once(dispatchers: Open):
    one, two = Doing(), Doing()
    keys = [f"job {number}" for number in range(40)]
    async with dispatchers() as here, dispatchers() as there:
        for key in keys:
            await here.put(job(key))
        async with at_work(here, one), at_work(there, two):
            with anyio.fail_after(60):
                while len(one.done) + len(two.done) < len(keys):
                    await anyio.wait_all_tasks_blocked()
                    await anyio.sleep(0.01)
    assert sorted(one.done + two.done) == sorted(keys)


async def test_closing_finishes_running_jobs_and_takes_no_more(dispatchers: Open):
    go_on = anyio.Event()

    async def act(_: Job) -> None:
        await go_on.wait()

    doing = Doing(act)
    async with dispatchers() as dispatcher:
        closing = anyio.Event()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                await dispatcher.put(job("a"))

                async def work() -> None:
                    await dispatcher.work(doing, concurrency=4, closing=closing)

                group.start_soon(work)
                await doing.until(lambda: doing.begun == ["a"])
                closing.set()
                await dispatcher.put(job("b"))
                go_on.set()
    assert doing.done == ["a"]


async def test_a_job_cancelled_while_running_is_done_by_another_process(dispatchers: Open):
    async def hang(_: Job) -> None:
        await anyio.sleep_forever()

    hanging, doing = Doing(hang), Doing()
    async with dispatchers() as here, dispatchers() as there:
        await here.put(job("a"))
        async with at_work(here, hanging):
            await hanging.until(lambda: hanging.begun == ["a"])
        async with at_work(there, doing):
            await doing.until(lambda: doing.done == ["a"])


async def test_a_tenant_with_many_jobs_does_not_delay_one_with_few(dispatchers: Open):
    doing = Doing()
    async with dispatchers() as dispatcher:
        for number in range(60):
            await dispatcher.put(job(f"big {number}", tenant="big"))
        await dispatcher.put(job("small", tenant="small"))
        async with at_work(dispatcher, doing, concurrency=1):
            await doing.until(lambda: len(doing.done) == 61)
    assert doing.done.index("small") <= 2


async def test_a_tenant_that_always_has_one_job_does_not_starve_one_with_many(dispatchers: Open):
    async def act(taken: Job) -> None:
        if taken.tenant == "steady" and len(doing.begun) < 60:
            await dispatcher.put(job(f"steady {len(doing.begun)}", tenant="steady"))

    doing = Doing(act)
    async with dispatchers() as dispatcher:
        for number in range(20):
            await dispatcher.put(job(f"big {number}", tenant="big"))
        await dispatcher.put(job("steady", tenant="steady"))
        async with at_work(dispatcher, doing, concurrency=1):
            await doing.until(lambda: len([key for key in doing.done if "big" in key]) == 20)
    assert max(index for index, key in enumerate(doing.done) if "big" in key) <= 45


async def test_a_tenant_runs_at_most_its_share_of_jobs(dispatchers: Open):
    go_on = anyio.Event()
    busy: list[str] = []
    most = 0

    async def act(taken: Job) -> None:
        nonlocal most
        if taken.tenant == "big":
            busy.append(taken.key)
            most = max(most, len(busy))
            await go_on.wait()
            busy.remove(taken.key)

    doing = Doing(act)
    async with dispatchers(tenant_limit=2) as dispatcher:
        for number in range(6):
            await dispatcher.put(job(f"big {number}", tenant="big"))
        await dispatcher.put(job("small", tenant="small"))
        async with at_work(dispatcher, doing, concurrency=5):
            await doing.until(lambda: "small" in doing.done and len(busy) == 2)
            go_on.set()
            await doing.until(lambda: len(doing.done) == 7)
    assert most == 2
