import resource
import signal
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.api.operator_api import operated
from tests.fixtures_postgres import Postgres

from mainspring.core import clock
from mainspring.core.errors import StoreUnavailable
from mainspring.log.migrate import SchemaStatus
from mainspring.log.postgres import open_postgres
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite, schema_status
from mainspring.log.task_groups import run_in_background
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.jobs.worker import Worker
from mainspring.service.telemetry.health import (
    Health,
    LoopHeartbeat,
    check_migrations,
    check_not_draining,
    check_store,
)


async def fine() -> None:
    pass


async def test_a_process_is_alive_regardless_of_its_store(tmp_path: Path):
    async def away() -> str | None:
        raise StoreUnavailable("away")

    async with operated(tmp_path, {"store": away}) as api:
        for answer in (await api.get("/healthz"), await api.get_inside("/healthz")):
            assert (answer.status, answer.json()) == (200, {"status": "ok"})


async def test_the_service_is_ready_when_every_check_passes(tmp_path: Path):
    async with operated(tmp_path, {"store": fine, "worker": fine}) as api:
        for answer in (await api.get("/readyz"), await api.get_inside("/readyz")):
            assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
            assert answer.json() == {
                "status": "ready",
                "checks": {"store": {"ok": True}, "worker": {"ok": True}},
            }


async def test_failed_checks_are_named_without_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def away() -> str | None:
        raise StoreUnavailable("postgresql://db.internal: password authentication failed")

    async def slow() -> str | None:
        await anyio.sleep_forever()

    async with operated(tmp_path, {"store": away, "migrations": slow, "worker": fine}) as api:
        answer = await api.get("/readyz")
    assert answer.status == 503
    assert answer.json() == {
        "status": "not_ready",
        "checks": {
            "store": {
                "ok": False,
                "reason": "StoreUnavailable; the log of the process has the details",
            },
            "migrations": {"ok": False, "reason": "no answer in 0.2 s"},
            "worker": {"ok": True},
        },
    }
    assert "db.internal" in caplog.text


async def test_readiness_checks_the_store_and_its_schema(tmp_path: Path):
    path = tmp_path / "mainspring.db"

    async def looked() -> SchemaStatus:
        return await anyio.to_thread.run_sync(schema_status, path)

    async with open_sqlite(path) as store:
        health = Health(
            {"store": check_store(store, clock.now), "migrations": check_migrations(looked)}
        )
        assert (await health.ready()).is_ready


async def test_an_old_schema_is_not_ready_and_a_newer_one_is_accepted():
    async def too_old() -> SchemaStatus:
        return SchemaStatus(3, 5)

    async def newer() -> SchemaStatus:
        return SchemaStatus(6, 5)

    reason = await check_migrations(too_old)()
    assert reason == "the tables have version 3, and this version needs 5: run mainspring migrate"
    assert await check_migrations(newer)() is None


async def test_the_schema_check_is_cached():
    asked, now = 0, 0.0

    async def looked() -> SchemaStatus:
        nonlocal asked
        asked += 1
        return SchemaStatus(5, 5)

    check = check_migrations(looked, monotonic=lambda: now)
    for moment in (0.0, 10.0, 29.0, 31.0):
        now = moment
        assert await check() is None
    assert asked == 2


async def test_a_draining_process_is_not_ready():
    closing = anyio.Event()
    check = check_not_draining(closing)
    assert await check() is None
    closing.set()
    assert "draining" in (await check() or "")


async def test_a_stalled_event_loop_is_detected():
    now = 0.0
    pulse = LoopHeartbeat(seconds=30, monotonic=lambda: now)
    now = 29.0
    assert await pulse.check() is None
    pulse.beat()
    now = 58.0
    assert await pulse.check() is None
    now = 60.0
    assert await pulse.check() == "silent for 31 s"


async def test_a_worker_updates_its_heartbeat(tmp_path: Path):
    felt, closing = anyio.Event(), anyio.Event()

    async def run(_session_id: str) -> None:
        pass

    async with open_sqlite(tmp_path / "mainspring.db") as store:
        dispatcher = EmbeddedDispatcher(store.records)
        worker = Worker(dispatcher, SessionLog(store), run, beat=felt.set)
        with anyio.fail_after(60):
            async with run_in_background(lambda: worker.work(closing)):
                await felt.wait()


async def test_the_service_is_not_ready_while_postgresql_is_down(
    postgres: Postgres, postgres_url: str
):
    async with open_postgres(postgres_url) as store:
        health = Health({"store": check_store(store, clock.now)})
        assert (await health.ready()).is_ready
        await anyio.to_thread.run_sync(postgres.stop)
        try:
            with anyio.fail_after(60):
                found = await health.ready()
        finally:
            await anyio.to_thread.run_sync(postgres.start)
        assert not found.is_ready
        with anyio.fail_after(60):
            while not (await health.ready()).is_ready:
                await anyio.lowlevel.checkpoint()


async def test_the_service_is_not_ready_on_a_full_disk(tmp_path: Path):
    """It can still be read: only a write shows it."""
    path = tmp_path / "mainspring.db"
    async with open_sqlite(path) as store:
        health = Health({"store": check_store(store, clock.now)})
        assert (await health.ready()).is_ready
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            size = Path(f"{path}-wal").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
            found = await health.ready()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        assert not found.is_ready
        assert "store" in found.checks
        assert (await health.ready()).is_ready
