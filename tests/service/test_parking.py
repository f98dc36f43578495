"""Sessions whose runs keep failing: tried again, then parked with the reason, and let go again."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from pathlib import Path

import anyio
import pytest
from tests.service.worker_setup import known_session, say

from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.events import (
    BudgetReserved,
    ModelRequestStarted,
    SessionFailed,
    StatusIdle,
    StatusRunning,
    ThreadCreated,
)
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.service.jobs.dispatcher import ATTEMPTS, Backlog, FailureHandler, Job, JobHandler
from mainspring.service.jobs.worker import Worker, WorkerSettings
from mainspring.service.storage.repository import ListQuery


class ManualDispatcher:
    """A dispatcher whose jobs are done when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, datetime | None]] = []
        self.running: Job | None = None

    async def put(self, job: Job, *, at: datetime | None = None) -> None:
        self.jobs.append((job, at))

    async def remind(self, jobs: Sequence[Job]) -> None:
        current = [self.running, *(job for job, _ in self.jobs)]
        self.jobs += [(job, None) for job in jobs if job not in current]

    async def cancel(self, task: str, key: str) -> None:
        raise NotImplementedError

    async def backlog(self) -> Backlog:
        return Backlog(len(self.jobs), 0.0)

    async def work(
        self,
        handle: JobHandler,
        *,
        concurrency: int,
        closing: anyio.Event,
        on_failure: FailureHandler | None = None,
    ) -> None:
        del concurrency, closing, on_failure
        while self.jobs:
            self.running, _ = self.jobs.pop(0)
            await handle(self.running)
            self.running = None


class Scene:
    def __init__(self, log: SessionLog, session_id: str) -> None:
        self.log = log
        self.session_id = session_id
        self.by_hand = ManualDispatcher()
        self.error: Exception | None = InvalidInput("the agent has two tools called 'add'")
        self.runs = 0
        self.worker = Worker(
            self.by_hand, log, self._run, worker_settings=WorkerSettings(sweep_seconds=3600)
        )

    async def _run(self, session_id: str) -> None:
        self.runs += 1
        if self.error is not None:
            raise self.error
        async with hold_session(self.log, session_id) as writer:
            await writer.fold_inbox()

    async def wakes(self) -> int:
        """Wake it until nobody wants to any more; how often it was run."""
        begun = self.runs
        with anyio.fail_after(60):
            await self.worker.sweep()
            await self.worker.work(anyio.Event())
        return self.runs - begun

    async def events(self) -> list[Event]:
        return await self.log.read(self.session_id)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncGenerator[Scene]:
    async with open_sqlite(tmp_path / "log.db") as store:
        log = SessionLog(store)
        yield Scene(log, await known_session(log, text="hi"))


async def test_after_five_failed_wakes_a_session_is_parked_with_the_reason(scene: Scene):
    assert await scene.wakes() == ATTEMPTS
    [parked] = (await scene.worker.parking.page("acme", ListQuery())).data
    assert parked.id == scene.session_id
    assert parked.reason == "the agent has two tools called 'add'"
    assert parked.failures == ATTEMPTS
    assert parked.is_told
    assert (await scene.worker.parking.page("other", ListQuery())).data == []


async def test_parking_is_recorded_in_the_log(scene: Scene):
    await scene.wakes()
    *_, failed, idle = [event.payload for event in await scene.events()]
    assert isinstance(failed, SessionFailed)
    assert failed.error.retry_status.type == "exhausted"
    assert "two tools" in failed.error.message
    assert isinstance(idle, StatusIdle)
    assert idle.stop_reason.type == "retries_exhausted"
    assert await scene.log.store.runnable() == []


async def test_all_threads_of_a_parked_session_end(scene: Scene):
    writer = await scene.log.hold(scene.session_id, owner="test")
    await writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="scout"))
    await writer.append(StatusRunning(), ModelRequestStarted(), thread_id="sthr_2")
    await writer.release()
    await scene.wakes()
    log = await scene.events()
    own = [event.payload for event in log if event.thread_id == "sthr_2"]
    assert isinstance(own[-1], StatusIdle)
    assert isinstance(log[-1].payload, StatusIdle)
    assert log[-1].thread_id != "sthr_2"


async def test_a_parked_session_is_not_run(scene: Scene):
    await scene.wakes()
    await scene.by_hand.put(Job(task="wake", key=scene.session_id, tenant="acme"))
    assert await scene.wakes() == 0


async def test_a_new_message_unparks_the_session(scene: Scene):
    await scene.wakes()
    scene.error = None
    await say(scene.log, scene.session_id, "try again")
    assert await scene.wakes() == 1
    with pytest.raises(NotFound):
        await scene.worker.parking.get("acme", scene.session_id)


async def test_an_operator_can_unpark_a_session(scene: Scene):
    await scene.wakes()
    with pytest.raises(NotFound):
        await scene.worker.parking.unpark("other", scene.session_id)
    await scene.worker.parking.unpark("acme", scene.session_id)
    assert await scene.wakes() == ATTEMPTS, "it is tried as often as before"


async def test_a_session_whose_log_cannot_be_written_is_parked_anyway(scene: Scene):
    await say(scene.log, scene.session_id, "and this")
    store = scene.log.store
    lease = await store.acquire(scene.session_id, owner="x", seconds=0.001)
    await store.release(lease)
    scene.log.read = _unreadable
    assert await scene.wakes() == ATTEMPTS
    assert not (await scene.worker.parking.get("acme", scene.session_id)).is_told
    assert await store.runnable() == [scene.session_id]
    assert await scene.wakes() == 0, "looking finds it, and knows better"


async def _unreadable(*_given: object, **_named: object) -> list[Event]:
    raise InvalidInput("event 3 is damaged")


async def test_failures_are_counted_across_processes_and_reset_by_success(scene: Scene):
    job = Job(task="wake", key=scene.session_id, tenant="acme")
    for _ in range(ATTEMPTS - 1):
        await scene.worker.parking.failed(job, ValueError("secret"))
    again = Scene(scene.log, scene.session_id)
    again.error = None
    assert await again.wakes() == 1
    again.error = ValueError("secret")
    await say(scene.log, scene.session_id, "more")
    assert await again.wakes() == ATTEMPTS
    assert "secret" not in (await again.worker.parking.get("acme", scene.session_id)).reason


async def test_open_requests_and_calls_of_a_dead_run_are_closed(scene: Scene):
    async with hold_session(scene.log, scene.session_id) as writer:
        await writer.fold_inbox()
        await writer.append(
            StatusRunning(),
            BudgetReserved(reservation_id="rsrv_1", cost_usd="0.5"),
            ModelRequestStarted(model="m"),
        )
    await scene.by_hand.put(Job(task="wake", key=scene.session_id, tenant="acme"))
    await scene.wakes()
    kinds = [event.type for event in await scene.events()]
    assert kinds[-4:] == [
        "span.model_request_end",
        "budget.settled",
        "session.error",
        "session.status_idle",
    ]


async def test_a_run_that_leaves_its_inbox_unread_has_failed(scene: Scene):
    async def nothing(_: str) -> None:
        scene.runs += 1

    scene.worker = Worker(
        scene.by_hand, scene.log, nothing, worker_settings=WorkerSettings(sweep_seconds=3600)
    )
    assert await scene.wakes() == ATTEMPTS
    parked = await scene.worker.parking.get("acme", scene.session_id)
    assert "did not consume its inbox" in parked.reason
