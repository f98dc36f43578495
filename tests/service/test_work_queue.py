from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.at_once import at_once

from mainspring.core.errors import HeartbeatRefused, InvalidInput, NotFound, StaleVersion
from mainspring.log.records import Records
from mainspring.log.sqlite import open_sqlite
from mainspring.service.resources.environments import (
    CreateEnvironment,
    Environments,
    SelfHostedConfig,
)
from mainspring.service.self_hosted.work_item import (
    NO_HEARTBEAT,
    HeartbeatParams,
    LeaseTimes,
    PollParams,
    StoredWorkItem,
    WorkItem,
    acknowledge,
    apply_heartbeat,
    mark_polled,
    mark_stopped,
    new_work_item,
    next_work_item,
    request_stop,
)
from mainspring.service.self_hosted.work_queue import RETENTION, WorkQueue
from mainspring.service.storage.repository import ListQuery

FIRST = HeartbeatParams(expected_last_heartbeat=NO_HEARTBEAT)
MOMENT = datetime(2026, 11, 16, 12, tzinfo=UTC)


@dataclass
class QueueSetup:
    """A queue with a clock that is set by hand."""

    records: Records
    env: str = ""
    now: datetime = MOMENT
    wanted: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.queue = self.another()

    def another(self) -> WorkQueue:
        """As another process has it."""

        async def is_wanted(_tenant: str, session_id: str) -> bool:
            return session_id in self.wanted

        return WorkQueue(
            self.records,
            Environments(self.records),
            needs_worker=is_wanted,
            issue_token=lambda tenant, work: f"{tenant}'s {work.id}",
            clock=lambda: self.now,
        )

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def offer(self, session_id: str = "sesn_1") -> None:
        await self.queue.offer("acme", self.env, session_id)

    async def poll(self, asked: PollParams | None = None) -> WorkItem | None:
        return await self.queue.poll("acme", self.env, asked or PollParams())

    async def taken(self) -> WorkItem:
        """Polled and acknowledged."""
        work = await self.poll()
        assert work is not None
        return await self.queue.acknowledge("acme", self.env, work.id)

    async def beat(self, work: WorkItem, asked: HeartbeatParams = FIRST) -> str:
        return (await self.queue.heartbeat("acme", self.env, work.id, asked)).last_heartbeat

    async def all(self) -> list[WorkItem]:
        listing = ListQuery(parent=self.env, include_archived=True, is_ascending=True)
        return list((await self.queue.page("acme", self.env, listing)).data)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncGenerator[QueueSetup]:
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        yield await queue_setup(store.records)


async def queue_setup(records: Records) -> QueueSetup:
    made = await Environments(records).create(
        "acme", CreateEnvironment(name="theirs", config=SelfHostedConfig())
    )
    return QueueSetup(records, made.id)


async def test_a_session_has_one_work_item_however_often_it_is_offered(here: QueueSetup):
    await here.offer()
    await here.offer()
    await here.another().offer("acme", here.env, "sesn_1")
    work = await here.poll()
    assert work is not None
    assert (work.state, work.data.id, work.id[:5]) == ("queued", "sesn_1", "work_")
    assert work.secret == f"acme's {work.id}"
    assert [item.secret for item in await here.all()] == [None]
    await here.offer()
    assert await here.poll() is None
    assert len(await here.all()) == 1


async def test_concurrent_polls_get_different_items(records: Records):
    here = await queue_setup(records)
    for index in range(5):
        await here.offer(f"sesn_{index}")
    polled = await at_once(lambda _: here.another().poll("acme", here.env, PollParams()), range(12))
    handed = [work.id for work in polled if work is not None]
    assert sorted(handed) == sorted(work.id for work in await here.all())
    here.later(5)
    again = await here.poll()
    assert again is not None
    await here.queue.acknowledge("acme", here.env, again.id)
    here.wanted.add(again.data.id)
    await here.queue.stop("acme", here.env, again.id, force=True)
    assert len(await here.all()) == 6


async def test_a_blocking_poll_gets_an_item_that_arrives(here: QueueSetup):
    got: list[WorkItem | None] = []

    async def ask() -> None:
        got.append(await here.poll(PollParams(block_ms=999)))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            await here.offer()
            while not got:
                await anyio.lowlevel.checkpoint()
            await here.offer("sesn_2")
    assert sorted(work.data.id for work in got if work) == ["sesn_1", "sesn_2"]


async def test_an_unacknowledged_item_is_handed_out_again(here: QueueSetup):
    await here.offer()
    first = await here.poll()
    assert first is not None
    here.later(2)
    assert await here.poll() is None
    assert await here.poll(PollParams(reclaim_older_than_ms=3000)) is None
    again = await here.poll(PollParams(reclaim_older_than_ms=2000))
    assert again is not None
    assert again.id == first.id
    here.later(5)
    assert await here.poll(PollParams(reclaim_older_than_ms=60_000)) is None
    assert await here.poll() is not None
    taken = await here.queue.acknowledge("acme", here.env, first.id)
    assert (taken.state, taken.acknowledged_at) == ("starting", here.now)
    with pytest.raises(StaleVersion):  # the slow one comes too late
        await here.queue.acknowledge("acme", here.env, first.id)


async def test_a_lease_with_heartbeats_is_kept(here: QueueSetup):
    await here.offer()
    work = await here.taken()
    last = await here.beat(work)
    for _ in range(5):
        here.later(45)
        last = await here.beat(work, HeartbeatParams(expected_last_heartbeat=last))
        assert await here.poll() is None
    kept = await here.queue.get("acme", here.env, work.id)
    assert (kept.state, kept.started_at) == ("active", MOMENT)
    assert kept.latest_heartbeat_at == here.now


async def test_a_silent_worker_loses_its_item_to_the_next(here: QueueSetup):
    await here.offer()
    work = await here.taken()
    last = await here.beat(work)
    here.later(61)
    again = await here.taken()
    assert again.id == work.id
    with pytest.raises(HeartbeatRefused) as refused:
        await here.beat(work, HeartbeatParams(expected_last_heartbeat=last))
    assert (refused.value.state, refused.value.last_heartbeat) == ("starting", None)
    await here.beat(again)
    with pytest.raises(HeartbeatRefused):
        await here.beat(again)  # claimed is claimed
    with pytest.raises(HeartbeatRefused):
        await here.beat(work, HeartbeatParams(expected_last_heartbeat=last))


async def test_a_worker_that_never_starts_loses_its_item(here: QueueSetup):
    await here.offer()
    await here.taken()
    here.later(LeaseTimes().start_seconds - 1)
    assert await here.poll() is None
    here.later(1)
    assert await here.poll() is not None


async def test_a_stop_request_is_reported_by_the_heartbeat(here: QueueSetup):
    await here.offer()
    work = await here.taken()
    last = await here.beat(work)
    asked = await here.queue.stop("acme", here.env, work.id)
    assert (asked.state, asked.stop_requested_at) == ("stopping", MOMENT)
    told = await here.queue.heartbeat(
        "acme", here.env, work.id, HeartbeatParams(expected_last_heartbeat="whatever")
    )
    assert (told.state, told.lease_extended, told.last_heartbeat) == ("stopping", False, last)
    over = await here.queue.stop("acme", here.env, work.id, force=True)
    assert (over.state, over.stopped_at) == ("stopped", MOMENT)
    with pytest.raises(StaleVersion):
        await here.queue.stop("acme", here.env, work.id, force=True)
    assert await here.poll() is None
    await here.offer()
    assert len(await here.all()) == 2


async def test_a_stopping_item_of_a_dead_worker_stops_after_its_lease(here: QueueSetup):
    await here.offer()
    work = await here.taken()
    await here.beat(work)
    await here.queue.stop("acme", here.env, work.id)
    here.later(61)
    assert await here.poll() is None
    assert (await here.queue.get("acme", here.env, work.id)).state == "stopped"


async def test_an_item_without_a_worker_stops_at_once(here: QueueSetup):
    await here.offer()
    [work] = await here.all()
    assert (await here.queue.stop("acme", here.env, work.id)).state == "stopped"


async def test_an_unfinished_session_gets_another_item_with_growing_delays(here: QueueSetup):
    here.wanted.add("sesn_1")
    await here.offer()
    for wait in (0, 0, 2, 4):
        here.later(wait - 1)
        assert wait == 0 or await here.poll() is None
        here.later(1)
        work = await here.taken()
        await here.queue.stop("acme", here.env, work.id, force=True)
    here.later(8)
    work = await here.taken()
    here.later(40)  # this one has worked: the next may begin at once
    await here.queue.stop("acme", here.env, work.id, force=True)
    assert await here.poll() is not None


async def test_the_item_of_an_ended_session_is_withdrawn(here: QueueSetup):
    await here.offer()
    await here.queue.withdraw("acme", here.env, "sesn_1")
    assert await here.poll() is None
    await here.queue.withdraw("acme", here.env, "sesn_1")
    await here.offer("sesn_2")
    work = await here.taken()
    await here.beat(work)
    await here.queue.withdraw("acme", here.env, "sesn_2")
    assert (await here.queue.get("acme", here.env, work.id)).state == "stopping"


async def test_stats_report_waiting_items_and_polling_workers(here: QueueSetup):
    for index in range(4):
        await here.offer(f"sesn_{index}")
        here.later(1)
    await here.taken()
    await here.queue.poll("acme", here.env, PollParams(), worker_id="one")
    await here.queue.poll("acme", here.env, PollParams(), worker_id="two")
    await here.another().poll("acme", here.env, PollParams(), worker_id="two")
    stats = await here.queue.stats("acme", here.env)
    assert (stats.depth, stats.pending, stats.workers_polling) == (0, 3, 2)
    assert stats.oldest_queued_at == MOMENT + timedelta(seconds=1)
    here.later(31)
    await here.queue.poll("acme", here.env, PollParams(), worker_id="three")
    assert (await here.queue.stats("acme", here.env)).workers_polling == 1


async def test_items_stopped_long_ago_are_deleted(here: QueueSetup):
    await here.offer()
    work = await here.taken()
    await here.queue.stop("acme", here.env, work.id, force=True)
    await here.offer("sesn_2")
    here.now += RETENTION
    await here.queue.delete_expired()
    assert [item.data.id for item in await here.all()] == ["sesn_2"]


async def test_items_belong_to_their_environment_and_tenant(here: QueueSetup):
    await here.offer()
    [work] = await here.all()
    environments = Environments(here.records)
    other = await environments.create(
        "acme", CreateEnvironment(name="other", config=SelfHostedConfig())
    )
    cloud = await environments.create("acme", CreateEnvironment(name="cloud"))
    assert await here.queue.poll("acme", other.id, PollParams()) is None
    with pytest.raises(NotFound):
        await here.queue.get("acme", other.id, work.id)
    with pytest.raises(NotFound):
        await here.queue.get("evil", here.env, work.id)
    with pytest.raises(NotFound):
        await here.queue.poll("evil", here.env, PollParams())
    with pytest.raises(InvalidInput, match="self_hosted"):
        await here.queue.poll("acme", cloud.id, PollParams())


ACTS = st.lists(
    st.sampled_from(["poll", "ack", "beat", "stop", "force", "next"]).flatmap(
        lambda act: st.tuples(st.just(act), st.integers(0, 200))
    ),
    max_size=20,
)


@given(ACTS)
def test_an_item_is_always_free_held_or_stopped(acts: list[tuple[str, int]]):
    held, now = new_work_item("work_1", "env_1", "sesn_1", MOMENT), MOMENT
    for act, seconds in acts:
        now += timedelta(seconds=seconds)
        try:
            held = _apply_act(held, act, now)
        except (StaleVersion, HeartbeatRefused):
            continue
        is_over = held.work.state == "stopped"
        assert is_over == (held.free_at is None) == (held.work.stopped_at is not None)
        assert (held.polled_at is None) or held.work.state == "queued"
        assert (held.work.latest_heartbeat_at is None) or held.work.state != "queued"


def _apply_act(held: StoredWorkItem, act: str, now: datetime) -> StoredWorkItem:
    match act:
        case "poll":
            is_free = held.is_free(now, timedelta(seconds=5)) and held.work.state != "stopping"
            return mark_polled(held, now) if is_free else held
        case "ack":
            return acknowledge(held, now, LeaseTimes())
        case "beat":
            return apply_heartbeat(held, now, HeartbeatParams(), LeaseTimes())
        case "stop":
            return request_stop(held, now)
        case "force":
            return mark_stopped(held, now)
        case _:
            return next_work_item(held, "work_2", now) if held.work.state == "stopped" else held
