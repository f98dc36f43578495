"""The writer: one place at the end of the log, whatever the line, the callers and others do."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias, cast

import anyio
import pytest
from tests.at_once import at_once
from tests.log.sample_sessions import asks, says, texts
from tests.senders import TESTER

from mainspring.core.errors import Conflict, Fenced, StoreFull, StoreUnavailable
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import SqliteStore, open_sqlite
from mainspring.log.store import Append, Store
from mainspring.log.verify import verify
from mainspring.log.writer import Writer

Fault: TypeAlias = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


class FaultyConnection:
    """A store at the end of a bad line: each of `faults` befalls one of the next appends."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.faults: list[Fault] = []

    def __getattr__(self, name: str) -> object:  # all the rest is the store's
        return getattr(self.store, name)

    async def append(self, append: Append) -> None:
        if self.faults:
            await self.faults.pop(0)(lambda: self.store.append(append))
        else:
            await self.store.append(append)


@asynccontextmanager
async def open_faulty_log(path: Path) -> AsyncGenerator[tuple[SessionLog, FaultyConnection]]:
    async with open_sqlite(path) as store:
        line = FaultyConnection(store)
        yield SessionLog(cast("Store", line)), line


async def take_over(log: SessionLog, writer: Writer) -> Writer:
    """The same worker, started again."""
    lease = writer.lease
    return await log.hold(
        writer.session_id, owner=lease.owner, instead_of=(lease.owner, lease.epoch)
    )


async def lost_before(_: Callable[[], Awaitable[None]]) -> None:
    raise StoreUnavailable("the line broke before it was sent")


async def lost_after(act: Callable[[], Awaitable[None]]) -> None:
    await act()
    raise StoreUnavailable("the line broke before we were told")


async def full(_: Callable[[], Awaitable[None]]) -> None:
    raise StoreFull("no room")


FAULTS: dict[str, tuple[Fault, ...]] = {
    "before": (lost_before,),
    "after": (lost_after,),
    "before, then after": (lost_before, lost_after),
    "three times": (lost_before, lost_before, lost_before),
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
async def test_an_append_with_a_lost_reply_is_written_once(
    tmp_path: Path, faults: tuple[Fault, ...]
):
    async with open_faulty_log(tmp_path / "log.db") as (log, line):
        session_id = (await log.create()).id
        await log.submit(session_id, asks("zero"), sender=TESTER)
        writer = await log.hold(session_id, owner="teller")
        with anyio.fail_after(60):
            line.faults = list(faults)
            await writer.fold_inbox()
            line.faults = list(faults)
            await writer.append(says("one"), says("two"))
            await writer.append(says("three"))
        assert texts(await log.read(session_id)) == ["zero", "one", "two", "three"]
        assert await log.store.pending(session_id) == []
        assert (await verify(log, session_id)).ok


async def test_an_unavailable_store_is_reported_after_several_retries(tmp_path: Path):
    async with open_faulty_log(tmp_path / "log.db") as (log, line):
        writer = await log.hold((await log.create()).id, owner="teller")
        line.faults = [lost_before] * 6
        with anyio.fail_after(60), pytest.raises(StoreUnavailable):
            await writer.append(says("one"))
        assert line.faults == []
        await writer.append(says("two"))
        assert texts(await log.read(writer.session_id)) == ["two"]


async def test_a_replaced_writer_is_fenced_after_a_broken_connection(tmp_path: Path):
    async with open_faulty_log(tmp_path / "log.db") as (log, line):
        session_id = (await log.create()).id
        old = await log.hold(session_id, owner="worker")
        new = await take_over(log, old)
        line.faults = [lost_before]
        with anyio.fail_after(60), pytest.raises(Fenced):
            await old.append(says("from the past"))
        await new.append(says("now"))
        assert texts(await log.read(session_id)) == ["now"]


async def test_a_log_that_grew_meanwhile_is_a_conflict(tmp_path: Path):
    async with open_faulty_log(tmp_path / "log.db") as (log, line):
        session_id = (await log.create()).id
        writer = await log.hold(session_id, owner="worker")
        await writer.append(says("one"))
        stale = await take_over(log, writer)
        stale.lease, writer.lease = writer.lease, stale.lease
        await writer.append(says("two"))
        stale.lease = writer.lease
        line.faults = [lost_before]
        with anyio.fail_after(60), pytest.raises(Conflict):
            await stale.append(says("TWO"))
        assert texts(await log.read(session_id)) == ["one", "two"]


async def test_concurrent_appends_keep_the_order_of_the_calls(tmp_path: Path):
    async with open_faulty_log(tmp_path / "log.db") as (log, line):
        writer = await log.hold((await log.create()).id, owner="teller")
        asked: list[str] = []

        async def talk(thread: int) -> None:
            for n in range(10):
                text = f"{thread}.{n}"
                asked.append(text)
                [event] = await writer.append(says(text), thread_id=f"sthr_{thread}")
                assert event.seq <= writer.head.seq

        line.faults = [lost_before, lost_after]
        await at_once(talk, range(8))
        assert texts(await log.read(writer.session_id)) == asked
        for thread in range(8):
            mine = await log.read(writer.session_id, threads=[f"sthr_{thread}"])
            assert texts(mine) == [f"{thread}.{n}" for n in range(10)]
        assert (await verify(log, writer.session_id)).ok


async def test_appends_queued_behind_a_failed_one_are_refused(tmp_path: Path):
    async with open_faulty_log(tmp_path / "log.db") as (log, line):
        writer = await log.hold((await log.create()).id, owner="teller")
        may_fail = anyio.Event()

        async def full_later(act: Callable[[], Awaitable[None]]) -> None:
            await may_fail.wait()
            await full(act)

        line.faults = [full_later]
        written: list[str] = []
        refused: list[type[Exception]] = []

        async def say(text: str) -> None:
            try:
                await writer.append(says(text))
            except (StoreFull, Conflict) as error:
                refused.append(type(error))
            else:
                written.append(text)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for text in ("one", "two", "three"):
                    group.start_soon(say, text)
                for _ in range(5):
                    await anyio.lowlevel.checkpoint()
                may_fail.set()
            await say("four")
        assert refused == [StoreFull, Conflict, Conflict]
        assert texts(await log.read(writer.session_id)) == written == ["four"]


async def test_a_cancelled_append_is_complete_or_absent_and_the_writer_continues(tmp_path: Path):
    async with open_faulty_log(tmp_path / "log.db") as (log, _):
        writer = await log.hold((await log.create()).id, owner="teller")
        for moment in range(6):
            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    group.start_soon(writer.append, says(f"{moment}a"), says(f"{moment}b"))
                    for _ in range(moment):
                        await anyio.lowlevel.checkpoint()
                    group.cancel_scope.cancel()
                await writer.append(says("after"))
        said = texts(await log.read(writer.session_id))
        assert said.count("after") == 6
        assert {f"{moment}b" in said for moment in range(6) if f"{moment}a" in said} <= {True}
        assert (await verify(log, writer.session_id)).ok


async def test_an_empty_append_writes_nothing(tmp_path: Path):
    async with open_faulty_log(tmp_path / "log.db") as (log, _):
        writer = await log.hold((await log.create()).id, owner="teller")
        assert await writer.append() == []
        assert await writer.fold_inbox() == []
        assert (await log.session(writer.session_id)).head == writer.head


async def test_inbox_messages_are_folded_once_in_order_of_arrival(tmp_path: Path):
    async with open_faulty_log(tmp_path / "log.db") as (log, line):
        session_id = (await log.create()).id
        for text in ("one", "two", "three"):
            await log.submit(session_id, asks(text), sender=TESTER)
        writer = await log.hold(session_id, owner="teller")
        line.faults = [full]
        with pytest.raises(StoreFull):
            await writer.fold_inbox()
        await at_once(lambda _: writer.fold_inbox(), range(3))
        assert texts(await log.read(session_id)) == ["one", "two", "three"]
