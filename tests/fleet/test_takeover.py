"""Workers that are killed, stopped, drained, and a database that restarts under them."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random

import anyio
import pytest
from msgspec.structs import replace
from tests.fixtures_postgres import Postgres
from tests.fleet.fleet import fleet
from tests.fleet.worker_main import Order

PLACES = ("same_machine", "other_machine")


@pytest.fixture
def on_postgres(postgres: Postgres, postgres_url: str, tmp_path: Path) -> Iterator[Order]:
    yield Order(url=postgres_url, folder=str(tmp_path))
    postgres.disconnect()
    postgres.execute("drop schema if exists procrastinate cascade")


@pytest.mark.slow  # tests/service_e2e/test_workers.py is the short one
@pytest.mark.parametrize("place", PLACES)
async def test_sessions_of_a_killed_worker_are_taken_over(on_postgres: Order, place: str):
    order = replace(
        on_postgres, is_blind=place == "other_machine", steps=6, latency_seconds=0.3, concurrency=4
    )
    async with fleet(order) as made:
        await made.submit(12)
        for worker in (made.start(), made.start()):
            await made.kill_during_a_run(worker)
            made.start()
        await made.completed(seconds=60)
        await made.check()
        assert len(await made.takeovers()) >= 4


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("place", PLACES)
async def test_200_sessions_survive_a_minute_of_kills(on_postgres: Order, place: str):
    order = replace(on_postgres, is_blind=place == "other_machine", steps=8, latency_seconds=0.4)
    async with fleet(order) as made:
        await made.submit(200)
        for _ in range(2):
            await made.busy(made.start())
        await made.kill_often(Random(5), every_seconds=2, seconds=60)
        await made.completed(seconds=180)
        await made.check()
        assert await made.takeovers()  # `bench/run.py takeover` says how long they take


async def test_sessions_on_sqlite_survive_the_death_of_the_only_process(tmp_path: Path):
    order = Order(url=str(tmp_path / "log.db"), folder=str(tmp_path), steps=5)
    async with fleet(replace(order, latency_seconds=0.2)) as made:
        await made.submit(8)
        for _ in range(2):
            worker = made.start()
            await made.busy(worker)
            await made.kill(worker)
        made.start()
        await made.completed(seconds=60)
        await made.check()


async def test_a_draining_worker_hands_its_sessions_over_at_once(on_postgres: Order):
    async with fleet(replace(on_postgres, steps=8, latency_seconds=0.3, is_blind=True)) as made:
        await made.submit(6)
        worker = made.start()
        await made.busy(worker, sessions=6)
        other = made.start()
        await made.end(worker, signal.SIGTERM)
        await made.busy(other, sessions=6)
        await made.completed(seconds=60)
        await made.check()


async def test_a_stopped_worker_is_replaced_and_its_writes_are_fenced(on_postgres: Order):
    order = replace(on_postgres, steps=8, latency_seconds=0.3, is_gentle=True)
    async with fleet(order) as made:
        await made.submit(6)
        zombie = made.start()
        await made.busy(zombie, sessions=6)
        os.kill(zombie, signal.SIGSTOP)
        other = made.start()
        await made.completed(seconds=60)
        os.kill(zombie, signal.SIGCONT)
        await made.end(other, signal.SIGTERM)
        await made.submit(3)  # it has been taken for dead, and works on
        await made.completed(seconds=60)
        await made.check()


@pytest.mark.slow  # tests/service_e2e/test_service_crashes.py is the short one
async def test_sessions_survive_a_restart_of_the_database(on_postgres: Order, postgres: Postgres):
    order = replace(on_postgres, steps=8, latency_seconds=0.3, concurrency=6)
    async with fleet(order) as made:
        await made.submit(12)
        for worker in (made.start(), made.start()):
            await made.busy(worker, sessions=2)
        await anyio.to_thread.run_sync(postgres.stop)
        await anyio.to_thread.run_sync(postgres.start)
        await made.completed(seconds=60)
        await made.check()
