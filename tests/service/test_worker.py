"""A worker on SQLite: what it finds to do, whom it leaves alone, how it closes."""

from pathlib import Path

import anyio
from tests.service.worker_setup import AGENT, at_work, say, shop

from mainspring.core.errors import LeaseHeld, StoreUnavailable
from mainspring.log.session_lease import hold_session
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.jobs.worker import WorkerSettings
from mainspring.testing import Scripted, says


def wake(session_id: str) -> Job:
    return Job(task="wake", key=session_id, tenant="acme")


async def test_a_reminder_runs_the_session(tmp_path: Path):
    pace = WorkerSettings(sweep_seconds=3600)
    model = Scripted(otherwise=says("hello"))
    async with shop(tmp_path, model, pace=pace) as at, at_work(at.worker):
        session_id = await at.session("hi")
        await at.dispatcher.remind([wake(session_id)])
        await at.until(session_id, "session.status_idle")


async def test_a_message_without_a_wake_is_found_by_the_sweep(tmp_path: Path):
    async with shop(tmp_path, Scripted(otherwise=says("hello"))) as at:
        sessions = [await at.session(f"hi {number}") for number in range(5)]
        async with at_work(at.worker):
            for session_id in sessions:
                await at.until(session_id, "session.status_idle")


async def test_sessions_not_created_by_the_service_are_left_alone(tmp_path: Path):
    async with shop(tmp_path, Scripted(otherwise=says("hello"))) as at:
        foreign = await at.runtime.start(AGENT, "from the command line")
        session_id = await at.session("hi")
        async with at_work(at.worker):
            await at.until(session_id, "session.status_idle")
            await at.worker.sweep()
        assert await at.kinds(foreign.id) == ["session.created"]


async def test_a_message_that_arrives_as_the_run_ends_is_answered(tmp_path: Path):
    async def run(session_id: str) -> None:
        session = await at.runtime.resume(AGENT, session_id)
        await session.run()
        if len(model.requests) == 1:
            await say(at.log, session_id, "one more thing")

    model = Scripted(otherwise=says("hello"))
    pace = WorkerSettings(sweep_seconds=3600)
    async with shop(tmp_path, model, run=run, pace=pace) as at, at_work(at.worker):
        session_id = await at.session("hi")
        watch = at.log.store.watch(session_id)
        await at.dispatcher.remind([wake(session_id)])
        with anyio.fail_after(60):
            while (await at.kinds(session_id)).count("session.status_idle") < 2:
                await watch.wait()


async def test_a_session_held_elsewhere_is_run_after_its_release(tmp_path: Path):
    tried = anyio.Event()

    async def run(session_id: str) -> None:
        session = await at.runtime.resume(AGENT, session_id)
        try:
            await session.run()
        except LeaseHeld:
            tried.set()
            raise

    async with shop(tmp_path, Scripted(otherwise=says("hello")), run=run) as at:
        session_id = await at.session("hi")
        async with at_work(at.worker):
            async with hold_session(at.log, session_id):
                await at.dispatcher.put(wake(session_id))
                with anyio.fail_after(60):
                    await tried.wait()
            await at.until(session_id, "session.status_idle")
        [failures] = await at.log.store.records.tally([(f"failed_wakes/{session_id}/", 0)])
        assert failures == 0


async def test_a_run_that_was_cut_off_is_found_by_the_next_worker(tmp_path: Path):
    begun = anyio.Event()

    async def hang(session_id: str) -> None:
        async with hold_session(at.log, session_id):
            begun.set()
            await anyio.sleep_forever()

    pace = WorkerSettings(drain_seconds=0, sweep_seconds=0.05)
    async with shop(tmp_path, Scripted(), run=hang, pace=pace) as at:
        session_id = await at.session("hi")
        with anyio.fail_after(60):
            async with at_work(at.worker) as closing:
                await begun.wait()
                closing.set()
        assert await at.log.store.runnable() == [session_id]
    async with shop(tmp_path, Scripted(says("hello"))) as at, at_work(at.worker):
        await at.until(session_id, "session.status_idle")


async def test_a_closing_worker_lets_a_run_finish(tmp_path: Path):
    begun, go_on = anyio.Event(), anyio.Event()

    async def run(session_id: str) -> None:
        begun.set()
        await go_on.wait()
        await (await at.runtime.resume(AGENT, session_id)).run()

    async with shop(tmp_path, Scripted(says("hello")), run=run) as at:
        session_id = await at.session("hi")
        closing = anyio.Event()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(at.worker.work, closing)
                await begun.wait()
                closing.set()
                go_on.set()
        assert (await at.kinds(session_id))[-1] == "session.status_idle"


async def test_other_tasks_go_to_their_registered_handler(tmp_path: Path):
    done: list[str] = []
    is_done = anyio.Event()

    async def deliver(job: Job) -> None:
        done.append(job.key)
        is_done.set()

    async with shop(tmp_path, Scripted()) as at:
        at.worker.register("deliver", deliver)
        async with at_work(at.worker):
            await at.dispatcher.put(Job(task="deliver", key="whd_1", tenant="acme"))
            with anyio.fail_after(60):
                await is_done.wait()
    assert done == ["whd_1"]


async def test_an_unavailable_store_does_not_count_as_a_failure_of_the_session(tmp_path: Path):
    runs: list[str] = []

    async def run(session_id: str) -> None:
        runs.append(session_id)
        if len(runs) == 1:
            raise StoreUnavailable("restarting")
        await (await at.runtime.resume(AGENT, session_id)).run()

    async with shop(tmp_path, Scripted(says("hello")), run=run) as at:
        session_id = await at.session("hi")
        async with at_work(at.worker):
            await at.until(session_id, "session.status_idle")
        [failures] = await at.log.store.records.tally([(f"failed_wakes/{session_id}/", 0)])
        assert failures == 0


async def test_the_wake_of_a_deleted_session_is_not_an_error(tmp_path: Path):
    async with shop(tmp_path, Scripted(says("hello"))) as at:
        session_id = await at.session("hi")
        async with at_work(at.worker):
            await at.dispatcher.put(wake("sesn_gone"))
            await at.until(session_id, "session.status_idle")
