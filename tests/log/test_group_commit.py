"""Many writers, one commit: order is kept, nobody is lost, a job that fails fails alone."""

from collections.abc import Awaitable, Callable, Sequence

import anyio
import pytest
from tests.at_once import at_once
from tests.log.sample_sessions import asks, says, texts
from tests.senders import TESTER

from mainspring.core.errors import LeaseHeld, SessionNotFound
from mainspring.log.group_commit import GroupCommit
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem


class Disk:
    """Commits when told to, and remembers what went out together."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.begun = anyio.Event()
        self.may_finish = anyio.Event()

    async def commit(self, jobs: Sequence[str]) -> None:
        self.batches.append(list(jobs))
        self.begun.set()
        await self.may_finish.wait()


async def let_tasks_run() -> None:
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def test_writes_during_a_commit_are_committed_together_in_order():
    disk = Disk()
    group = GroupCommit(disk.commit)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(group.run, "first")
            await disk.begun.wait()
            for n in range(5):
                tasks.start_soon(group.run, f"{n}")
            await let_tasks_run()
            disk.may_finish.set()
    assert disk.batches == [["first"], ["0", "1", "2", "3", "4"]]


async def test_a_lone_writer_is_committed_at_once_and_alone():
    disk = Disk()
    disk.may_finish.set()
    group = GroupCommit(disk.commit)
    with anyio.fail_after(60):
        await group.run("a")
        await group.run("b")
    assert disk.batches == [["a"], ["b"]]


async def test_a_batch_has_a_maximum_size_and_the_rest_follows():
    disk = Disk()
    group = GroupCommit(disk.commit, max_jobs=3)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for n in range(8):
                tasks.start_soon(group.run, f"{n}")
            await let_tasks_run()
            disk.may_finish.set()
    assert disk.batches == [["0", "1", "2"], ["3", "4", "5"], ["6", "7"]]


@pytest.mark.parametrize("cancelled", ["leader", "next leader", "follower", "all"])
async def test_a_cancelled_caller_neither_loses_its_job_nor_blocks_the_others(cancelled: str):
    disk = Disk()
    group = GroupCommit(disk.commit, max_jobs=2)
    names = ["leader", "with leader", "next leader", "follower", "last"]
    scopes = {name: anyio.CancelScope() for name in names}

    async def run(name: str) -> None:
        with scopes[name]:
            await group.run(name)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(run, name)
            await disk.begun.wait()
            for name in names if cancelled == "all" else [cancelled]:
                scopes[name].cancel()
            await let_tasks_run()
            disk.may_finish.set()
        await group.run("afterwards")
    assert [job for batch in disk.batches for job in batch] == [*names, "afterwards"]


async def test_a_failed_commit_raises_in_its_leader_and_the_next_one_continues():
    class Broken(Exception):
        pass

    batches: list[list[str]] = []

    async def commit(jobs: Sequence[str]) -> None:
        batches.append(list(jobs))
        if "bad" in jobs:
            raise Broken

    group = GroupCommit(commit)
    with anyio.fail_after(60):
        with pytest.raises(Broken):
            await group.run("bad")
        await group.run("good")
    assert batches == [["bad"], ["good"]]


async def test_sessions_written_concurrently_each_keep_their_order(log: SessionLog):
    ids = [(await log.create()).id for _ in range(20)]

    async def talk(session_id: str) -> None:
        writer = await log.hold(session_id, owner="teller")
        for n in range(10):
            await writer.append(says(f"{n}"))

    await at_once(talk, ids)
    for session_id in ids:
        assert texts(await log.read(session_id)) == [f"{n}" for n in range(10)]


async def test_rejected_or_broken_jobs_fail_alone(log: SessionLog):
    """Also one that breaks in a way nobody foresaw: here, a number that SQLite cannot hold."""
    session = await log.create()
    held = await log.create()
    await log.hold(held.id, owner="somebody else")
    writer = await log.hold(session.id, owner="teller")
    broken = InboxItem(
        sender=None,
        event_id="e",
        client_id="c",
        thread_id="t",
        time=2**70,
        version=1,
        type="x",
        body="{}",
    )
    jobs: dict[str, Callable[[], Awaitable[object]]] = {
        "one": lambda: log.submit(session.id, asks("one"), sender=TESTER),
        "unknown": lambda: log.store.acquire("sesn_no", owner="me", seconds=1),
        "broken": lambda: log.store.submit(session.id, broken),
        "two": lambda: log.submit(session.id, asks("two"), sender=TESTER),
        "held": lambda: log.store.acquire(held.id, owner="me", seconds=1),
        "append": lambda: writer.append(says("kept")),
        "three": lambda: log.submit(session.id, asks("three"), sender=TESTER),
    }
    failures: dict[str, type[Exception]] = {}

    async def attempt(name: str) -> None:
        try:
            await jobs[name]()
        except Exception as error:  # noqa: BLE001 (looked at below)
            failures[name] = type(error)

    await at_once(attempt, jobs)
    assert failures == {"unknown": SessionNotFound, "broken": OverflowError, "held": LeaseHeld}
    assert texts(await writer.fold_inbox()) == ["one", "two", "three"]
    assert texts(await log.read(session.id)) == ["kept", "one", "two", "three"]


async def test_writers_cancelled_at_any_moment_leave_complete_logs(log: SessionLog):
    session = await log.create()
    done = 0

    async def chatter(n: int) -> None:
        nonlocal done
        for _ in range(10):
            await log.submit(session.id, asks(f"{n}"), sender=TESTER)
            done += 1

    for moment in range(1, 30, 4):
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for n in range(8):
                    tasks.start_soon(chatter, n)
                for _ in range(moment):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
    assert len(await (await log.hold(session.id, owner="teller")).fold_inbox()) >= done > 0
