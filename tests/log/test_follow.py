"""Following: everything once, in order, also from other processes; leaves nothing behind."""

import gc
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from itertools import count
from pathlib import Path
from weakref import WeakSet

import anyio
import pytest
from anyio.abc import Process
from tests.log.sample_sessions import opened, says, tell, texts, told

from mainspring.core.envelope import Event
from mainspring.core.errors import SessionNotFound
from mainspring.log.session_log import SessionLog
from mainspring.log.wakeup_signals import Signals, Watch

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def append_in_process(path: Path, number: int, *session_ids: str) -> AsyncGenerator[Process]:
    """Another process appends `number` messages to each session meanwhile."""
    command = [
        sys.executable,
        "-m",
        "tests.log.appending_process",
        str(path),
        str(number),
        *session_ids,
    ]
    async with await anyio.open_process(command, cwd=ROOT, stdout=None, stderr=None) as process:
        yield process
        assert await process.wait() == 0


async def first(log: SessionLog, session_id: str, number: int, *, after: int = 0) -> list[Event]:
    events: list[Event] = []
    async with aclosing(log.follow(session_id, after=after)) as followed:
        async for event in followed:
            events.append(event)
            if len(events) == number:
                break
    return events


async def test_a_follower_gets_each_event_of_another_process_exactly_once(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        session_id = (await log.create()).id
        with anyio.fail_after(60):
            async with append_in_process(path, 300, session_id):
                events = await first(log, session_id, 301)
    assert [event.seq for event in events] == list(range(1, 302))
    assert texts(events) == [f"{n}" for n in range(300)]


async def test_followers_that_start_at_any_moment_see_the_same_events(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        session_id = (await log.create()).id
        seen: list[list[int]] = []

        async def follow(after: int) -> None:
            events = await first(log, session_id, 201 - after, after=after)
            seen.append([event.seq for event in events])

        with anyio.fail_after(60):
            async with (
                append_in_process(path, 200, session_id),
                anyio.create_task_group() as group,
                aclosing(log.follow(session_id)) as leader,
            ):
                async for event in leader:  # one more follower with each event
                    group.start_soon(follow, event.seq // 2)
                    if event.seq == 201:
                        break
    assert len(seen) == 201
    assert all(seqs == list(range(seqs[0], 202)) for seqs in seen if seqs)


async def test_a_follower_of_a_fork_sees_inherited_events_then_its_own(tmp_path: Path):
    async with opened(tmp_path / "log.db") as log:
        parent = await told(log, "one", "two", "three")
        fork = await log.fork(parent, at=3)
        await tell(log, parent, "not for the fork")
        await tell(log, fork.id, "mine")
        with anyio.fail_after(60):
            events = await first(log, fork.id, 5)
    assert texts(events) == ["one", "two", "mine"]


async def test_filters_skip_events_without_stalling(log: SessionLog):
    session_id = (await log.create()).id
    writer = await log.hold(session_id, owner="teller")
    followed = log.follow(session_id, types=["agent.message"], threads=["sthr_2"])
    with anyio.fail_after(60):
        async with aclosing(followed):
            await writer.append(*(says("main") for _ in range(1500)))
            await writer.append(says("aside"), thread_id="sthr_2")
            assert texts([await anext(followed)]) == ["aside"]
            await writer.append(says("main"))
            await writer.append(says("again"), thread_id="sthr_2")
            assert texts([await anext(followed)]) == ["again"]


@pytest.mark.parametrize("how", ["closed", "cancelled", "dropped"])
async def test_a_cancelled_follower_leaves_nothing_behind(tmp_path: Path, how: str):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        session_id = await told(log, "one", "two")
        signals = getattr(log.store, "signals")  # noqa: B009 (SQLite's own)
        with anyio.fail_after(60):
            match how:
                case "closed":
                    assert len(await first(log, session_id, 2)) == 2
                case "cancelled":
                    with anyio.CancelScope() as scope:
                        async with aclosing(log.follow(session_id)) as followed:
                            async for event in followed:
                                if event.seq == 3:
                                    scope.cancel()
                    assert scope.cancelled_caught
                case _:
                    followed = log.follow(session_id)
                    await anext(followed)
                    del followed
                    for _ in range(5):  # the loop closes it
                        await anyio.lowlevel.checkpoint()
            while signals.watched():  # a thread may hold the last traceback until its next call
                await log.read(session_id)
                gc.collect()
            await tell(log, session_id, "three")
            assert len(await first(log, session_id, 4)) == 4


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another process"])
async def test_following_a_deleted_session_ends_as_not_found(tmp_path: Path, elsewhere: bool):
    """Two logs on one file are two processes, as far as the file can tell."""
    path = tmp_path / "log.db"
    async with opened(path) as log, opened(path) as other:
        session_id = await told(log, "one")
        followed = log.follow(session_id)
        async with aclosing(followed):
            with anyio.fail_after(60):
                assert [(await anext(followed)).seq for _ in range(2)] == [1, 2]
                async with anyio.create_task_group() as group:
                    group.start_soon((other if elsewhere else log).delete, session_id)
                    with pytest.raises(SessionNotFound):
                        await anext(followed)


async def test_following_an_unknown_session_ends_as_not_found(log: SessionLog):
    with anyio.fail_after(60), pytest.raises(SessionNotFound):
        await anext(log.follow("sesn_none"))


async def test_all_tasks_waiting_for_a_follower_are_notified_of_the_first():
    signals = Signals()
    watches: list[Watch] = []
    with anyio.fail_after(60):
        for _ in range(2):
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(signals.wait_for_follower)
                await anyio.lowlevel.checkpoint()
                watches.append(signals.watch("sesn_1"))
            watches.clear()


def test_sessions_without_followers_take_no_memory():
    def sets() -> int:
        return sum(isinstance(item, WeakSet) for item in gc.get_objects())

    before, signals = sets(), Signals()
    followed = [signals.watch(f"sesn_kept{number}") for number in range(300)]
    for number in range(10_000):
        signals.watch(f"sesn_{number}", is_inbox_only=number % 2 == 0)
    assert sets() - before < 2 * len(followed) + 256
    assert len(signals.watched()) == len(followed)


async def test_a_thousand_followers_see_events_of_another_process(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        ids = [(await log.create()).id for _ in range(50)]
        heard = count()
        ready = anyio.Event()

        async def follow(session_id: str) -> None:
            async with aclosing(log.follow(session_id)) as followed:
                seqs = [(await anext(followed)).seq]
                if next(heard) == 999:
                    ready.set()
                while len(seqs) < 6:
                    seqs.append((await anext(followed)).seq)
            assert seqs == [1, 2, 3, 4, 5, 6]

        with anyio.fail_after(90):
            async with anyio.create_task_group() as group:
                for n in range(1000):
                    group.start_soon(follow, ids[n % 50])
                await ready.wait()
                async with append_in_process(path, 5, *ids):
                    pass
        assert getattr(log.store, "signals").watched() == []  # noqa: B009 (SQLite's own)
