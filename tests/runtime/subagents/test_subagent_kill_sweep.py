"""kill -9 at every instant of a session with several threads: every answer arrives, once.

`lives.py` has the play and the processes that are killed.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.crash.stores import open_store
from tests.harness.fake_sandbox import Ledger
from tests.harness.killable_worker import Fuse, Lives, lives
from tests.harness.test_kill_sweep import orphans
from tests.runtime.subagents.killable_worker import ALL, ASK_THE_CROWD, CROWD, EFFECTS, Order, live
from tests.runtime.subagents.thread_states import folded
from tests.senders import TESTER

from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.events import (
    AgentToolUse,
    SessionWoken,
    StatusIdle,
    ThreadCreated,
    ThreadMessageReceived,
    ThreadMessageSent,
    UserMessage,
)
from mainspring.log.session_log import SessionLog
from mainspring.log.verify import verify

_MAX_LIVES = 60


class Sweep:
    """One store, one forking process, a session for each death."""

    def __init__(self, folder: Path, log: SessionLog, process: Lives[Order]) -> None:
        self._folder = folder
        self._log = log
        self._process = process
        self._numbers = count(1)
        self.deaths = 0

    async def order(self, message: str = ALL) -> Order:
        session = await self._log.create()
        await self._log.submit(
            session.id, UserMessage(content=(TextBlock(message),)), sender=TESTER
        )
        ledger = self._folder / f"ledger-{next(self._numbers)}"
        return Order(store=str(self._folder / "log.db"), session_id=session.id, ledger=str(ledger))

    async def undisturbed(self, message: str = ALL) -> dict[str, int]:
        """How many instants there are to die at, more or less: threads race."""
        order, fuse = await self.order(message), Fuse("", 0)
        await live(order, fuse)
        await self.check(order, message)
        return fuse.passed

    async def die(self, where: str, number: int, message: str = ALL) -> list[Event]:
        """Die once, then live to the end."""
        order = await self.order(message)
        if self._process.live(replace(order, where=where, number=number)):
            self.deaths += 1
            assert not self._process.live(order)
        return await self.check(order, message)

    async def die_often(self, where: str, number: int) -> list[Event]:
        """Die in every life at the same number, as long as a life comes that far."""
        order = await self.order()
        deaths = 0
        while self._process.live(replace(order, where=where, number=number)):
            deaths += 1
            assert deaths < _MAX_LIVES
        return await self.check(order)

    async def check(self, order: Order, message: str = ALL) -> list[Event]:
        """Every call has one result, every message was received once, every deed done once."""
        report = await verify(self._log, order.session_id)
        assert report.ok, report.problems
        events = await self._log.read(order.session_id)
        assert orphans(events) == []
        check_messages(events)
        check_births(events)
        check_ends(events)
        deeds = Ledger(Path(order.ledger)).deeds()
        assert sorted(deed.step for deed in deeds) == sorted(EFFECTS[message])
        return events


def check_messages(events: list[Event]) -> None:
    """One was received for each that was sent, and every thread beside its parent has reported."""
    sent = [event.id for event in events if isinstance(event.payload, ThreadMessageSent)]
    received = Counter(
        event.payload.sent_id
        for event in events
        if isinstance(event.payload, ThreadMessageReceived) and event.payload.sent_id
    )
    assert received == Counter(sent)
    background = [
        event.payload.session_thread_id
        for event in events
        if isinstance(event.payload, ThreadCreated) and event.payload.mode == "background"
    ]
    reports = Counter(e.thread_id for e in events if isinstance(e.payload, ThreadMessageSent))
    assert [reports[thread_id] for thread_id in background] == [1] * len(background)


def check_births(events: list[Event]) -> None:
    """One thread for each call of the tool, with one task."""
    asked = [
        e.id for e in events if isinstance(e.payload, AgentToolUse) and e.payload.name == "agent"
    ]
    born = [event.payload for event in events if isinstance(event.payload, ThreadCreated)]
    assert sorted(asked) == sorted(item.tool_use_id or "" for item in born)
    tasks = Counter(
        event.thread_id
        for event in events
        if isinstance(event.payload, ThreadMessageReceived) and event.payload.sent_id is None
    )
    assert tasks == Counter(item.session_thread_id for item in born)


def check_ends(events: list[Event]) -> None:
    thread_tree = folded(events)
    for member in thread_tree.nodes.values():
        assert member.thread.last_reason == "completed", member.id
        assert not member.thread.running
        assert not member.thread.unsettled_calls()
        assert not thread_tree.messages_for(member.id)
        assert member.is_reported
    assert isinstance(events[-1].payload, StatusIdle)


@pytest.fixture(scope="module")
def process() -> Iterator[Lives[Order]]:
    with lives(Order, "tests.runtime.subagents.killable_worker") as started:
        yield started


@asynccontextmanager
async def sweep(process: Lives[Order], folder: Path) -> AsyncGenerator[Sweep]:
    async with open_store(str(folder / "log.db")) as store:
        yield Sweep(folder, SessionLog(store), process)


async def test_the_swept_session_has_six_threads(tmp_path: Path, process: Lives[Order]):
    async with sweep(process, tmp_path) as play:
        passed = await play.undisturbed()
        events = await play.die("", 0)
    born = [event.payload for event in events if isinstance(event.payload, ThreadCreated)]
    assert sorted(i.description or "" for i in born) == ["deep", "nest", "pay", "sign", "slow"]
    assert [item.mode for item in born].count("background") == 1
    reports = [event for event in events if isinstance(event.payload, ThreadMessageSent)]
    assert len(reports) == 3, "to one that had ended, from it, and from the one in the background"
    assert passed["after write"] > 25


@pytest.mark.parametrize(
    ("where", "every"),
    [
        pytest.param("before write", 1, marks=pytest.mark.slow),
        pytest.param("after write", 1, marks=pytest.mark.slow),
        pytest.param("delta", 1, marks=pytest.mark.slow),
        ("before write", 17),
        ("after write", 11),
        ("before effect", 3),
        ("after effect", 2),
        ("delta", 23),
    ],
)
async def test_all_answers_arrive_once_after_a_kill_at_any_point(
    tmp_path: Path, process: Lives[Order], where: str, every: int
):
    async with sweep(process, tmp_path) as play:
        passed = await play.undisturbed()
        for number in range(1, passed[where] + 1, every):
            await play.die(where, number)
        assert play.deaths, "every life comes to the first instant; threads race for the others"


@pytest.mark.parametrize("number", [11, pytest.param(16, marks=pytest.mark.slow)])
async def test_all_answers_arrive_once_after_repeated_kills(
    tmp_path: Path, process: Lives[Order], number: int
):
    async with sweep(process, tmp_path) as play:
        events = await play.die_often("after write", number)
    assert any(isinstance(event.payload, SessionWoken) for event in events)


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("before effect", marks=pytest.mark.slow),
        pytest.param("after effect", marks=pytest.mark.slow),
        "after write",
    ],
)
async def test_twenty_subagents_survive_a_kill(tmp_path: Path, process: Lives[Order], where: str):
    async with sweep(process, tmp_path) as play:
        events = await play.die(where, CROWD // 2, ASK_THE_CROWD)
    woken = [event for event in events if isinstance(event.payload, SessionWoken)]
    assert woken, "it was killed"
    born = [event.payload for event in events if isinstance(event.payload, ThreadCreated)]
    assert len(born) == CROWD
