"""kill -9 at every instant that matters of a session with effects: nothing lost, nothing twice.

`standin.py` has the effects and the model, `lives.py` the processes that are killed.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.crash.stores import open_store
from tests.harness.fake_sandbox import EFFECTS, SECOND_OF_TWO, Deed, Ledger, told
from tests.harness.killable_worker import Fuse, Lives, Order, live, lives
from tests.senders import TESTER

from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.events import (
    AgentCustomToolUse,
    AgentMessage,
    AgentToolResult,
    AgentToolUse,
    ModelRequestEnded,
    SessionWoken,
    ToolCallInDoubt,
    UserCustomToolResult,
    UserMessage,
)
from mainspring.core.model import Request
from mainspring.harness.context import xray
from mainspring.log.session_log import SessionLog
from mainspring.log.verify import verify

_MAX_LIVES = 40


@dataclass
class SweepResult:
    """How a session stands when all is over."""

    events: list[Event]
    request: Request
    """The last one."""
    deeds: list[Deed]

    @property
    def policies(self) -> set[str]:
        """How calls in doubt were settled."""
        return {
            event.payload.policy
            for event in self.events
            if isinstance(event.payload, ToolCallInDoubt)
        }

    @property
    def has_detour(self) -> bool:
        """Whether the model was told that it is not known what a call did."""
        return any(item.state == "unknown" for item in told(self.request))

    def outcome(self) -> dict[str, tuple[str, str]]:
        """What came of each step in the end, whatever it took to get there."""
        known = {item.step: (item.use.name, item.text) for item in told(self.request)}
        for step, (name, _) in known.items():
            if name == "check":  # it had been done, and the model saw that it had
                made = next(item.use for item in told(self.request) if item.step == step)
                known[step] = (made.name, f"{made.name} {step}: done")
        return known

    def kinds(self) -> Counter[str]:
        """What was said and done, without what tells of wakes and retries."""
        spoken = (AgentMessage, AgentToolUse, AgentCustomToolUse, AgentToolResult, UserMessage)
        return Counter(event.type for event in self.events if isinstance(event.payload, spoken))


class Sweep:
    """One store, one forking process, a session for each death."""

    def __init__(self, url: str, folder: Path, log: SessionLog, process: Lives[Order]) -> None:
        self._url = url
        self._folder = folder
        self._log = log
        self._process = process
        self._numbers = count(1)
        self.expected: SweepResult
        self.passed: dict[str, int] = {}

    async def order(self) -> Order:
        session = await self._log.create()
        await self._log.submit(
            session.id, UserMessage(content=(TextBlock("Do all of it."),)), sender=TESTER
        )
        ledger = self._folder / f"ledger-{next(self._numbers)}"
        return Order(url=self._url, session_id=session.id, ledger=str(ledger))

    async def undisturbed(self) -> None:
        """What the others must come to, and how many instants there are to die at."""
        order, fuse = await self.order(), Fuse("", 0)
        await live(order, fuse)
        self.expected, self.passed = await self.ending(order), fuse.passed

    async def die(self, where: str, number: int) -> SweepResult:
        """Die once, then live to the end."""
        order = await self.order()
        assert self._process.live(replace(order, where=where, number=number)), "was not killed"
        assert not self._process.live(order)
        return await self.ending(order)

    async def die_often(self, where: str, number: int) -> tuple[SweepResult, int]:
        """Die in every life at the same number, as long as a life comes that far."""
        order = await self.order()
        deaths = 0
        while self._process.live(replace(order, where=where, number=number)):
            deaths += 1
            assert deaths < _MAX_LIVES
        return await self.ending(order), deaths

    async def ending(self, order: Order) -> SweepResult:
        report = await verify(self._log, order.session_id)
        assert report.ok, report.problems
        events = await self._log.read(order.session_id)
        prefixes = {
            d: xray.decode_prefix(await self._log.blob(d)) for d in xray.prefix_digests(events)
        }
        thread_id = (await self._log.session(order.session_id)).thread_id
        shots = xray.model_calls(events, thread_id=thread_id, prefixes=prefixes)
        return SweepResult(events, shots[-1].request, Ledger(Path(order.ledger)).deeds())

    def check(self, ending: SweepResult) -> None:
        """As if nothing had happened; but for what a model had to be told is not known."""
        assert ending.events[-1].type == "session.status_idle"
        assert orphans(ending.events) == []
        assert sorted(deed.step for deed in ending.deeds) == sorted(EFFECTS)
        assert [deed.step for deed in ending.deeds] == [deed.step for deed in self.expected.deeds]
        assert len({deed.key for deed in ending.deeds}) == len(ending.deeds)
        if ending.has_detour:
            assert ending.outcome() == self.expected.outcome()
            return
        assert xray.canonical_request(ending.request) == xray.canonical_request(
            self.expected.request
        )
        assert ending.kinds() == self.expected.kinds()


def orphans(events: list[Event]) -> list[str]:
    """Calls that have no result, or more than one."""
    results: Counter[str] = Counter()
    for event in events:
        match event.payload:
            case AgentToolResult(tool_use_id=call_id):
                results[call_id] += 1
            case UserCustomToolResult(custom_tool_use_id=call_id):
                results[call_id] += 1
            case _:
                pass
    uses = [e.id for e in events if isinstance(e.payload, AgentToolUse | AgentCustomToolUse)]
    assert set(results) <= set(uses)
    return [call_id for call_id in uses if results[call_id] != 1]


@pytest.fixture(scope="module")
def process() -> Iterator[Lives[Order]]:
    with lives(Order, "tests.harness.killable_worker") as started:
        yield started


@asynccontextmanager
async def sweep(
    process: Lives[Order], folder: Path, url: str | None = None
) -> AsyncGenerator[Sweep]:
    url = url or str(folder / "log.db")
    async with open_store(url) as store:
        made = Sweep(url, folder, SessionLog(store), process)
        await made.undisturbed()
        yield made


INSTANTS = ["before write", "after write", "before effect", "after effect"]


async def test_the_swept_session_takes_twenty_turns(tmp_path: Path, process: Lives[Order]):
    async with sweep(process, tmp_path) as play:
        starts = [event.type for event in play.expected.events].count("span.model_request_start")
        assert starts == 20
        assert not play.expected.has_detour
        assert [deed.step for deed in play.expected.deeds] == EFFECTS
        assert play.passed["before write"] > 50
        assert play.passed["before effect"] == len(EFFECTS)


@pytest.mark.parametrize(
    ("where", "every"),
    [
        # nearly what "after write" is for the write before it
        pytest.param("before write", 1, marks=pytest.mark.slow),
        pytest.param("after write", 1, marks=pytest.mark.slow),
        ("after write", 5),
        pytest.param("before effect", 1, marks=pytest.mark.slow),
        pytest.param("after effect", 1, marks=pytest.mark.slow),
        ("before effect", 2),
        ("after effect", 2),
    ],
)
async def test_a_session_killed_at_any_point_ends_as_if_undisturbed(
    tmp_path: Path, process: Lives[Order], where: str, every: int
):
    policies: set[str] = set()
    async with sweep(process, tmp_path) as play:
        for number in range(1, play.passed[where] + 1, every):
            ending = await play.die(where, number)
            play.check(ending)
            policies |= ending.policies
    if where == "before effect":
        assert policies == {"probe", "report", "ask"}
    if where == "after write":
        assert policies == {"probe", "report", "ask", "retry"}


async def test_after_a_kill_during_a_reply_the_model_is_asked_again(
    tmp_path: Path, process: Lives[Order]
):
    async with sweep(process, tmp_path) as play:
        for number in range(1, play.passed["delta"] + 1, 29):
            ending = await play.die("delta", number)
            play.check(ending)
            assert not ending.policies
            ends = [e.payload for e in ending.events if isinstance(e.payload, ModelRequestEnded)]
            assert [end.stop_reason for end in ends].count("abandoned") == 1


@pytest.mark.parametrize("number", [9, pytest.param(14, marks=pytest.mark.slow)])
async def test_a_session_killed_repeatedly_ends_as_if_undisturbed(
    tmp_path: Path, process: Lives[Order], number: int
):
    async with sweep(process, tmp_path) as play:
        for where in ("before write", "after write"):
            ending, deaths = await play.die_often(where, number)
            play.check(ending)
            woken = [event for event in ending.events if isinstance(event.payload, SessionWoken)]
            assert 2 <= len(woken) <= deaths


async def test_a_session_on_postgres_survives_a_sample_of_kills(
    tmp_path: Path, process: Lives[Order], postgres_url: str
):
    async with sweep(process, tmp_path, postgres_url) as play:
        for where in INSTANTS:
            for number in range(1, play.passed[where] + 1, 41):
                play.check(await play.die(where, number))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("where", INSTANTS)
async def test_a_session_on_postgres_survives_every_kill(
    tmp_path: Path, process: Lives[Order], postgres_url: str, where: str
):
    async with sweep(process, tmp_path, postgres_url) as play:
        for number in range(1, play.passed[where] + 1):
            play.check(await play.die(where, number))


async def test_two_concurrent_calls_are_settled_after_a_kill(tmp_path: Path, process: Lives[Order]):
    """The second one runs until the first one's result is in the log, and dies there."""
    async with sweep(process, tmp_path) as play:
        for number in [EFFECTS.index(step) + 1 for step in SECOND_OF_TWO]:
            for where in ("before effect", "after effect"):
                ending = await play.die(where, number)
                play.check(ending)
                doubts = [e for e in ending.events if isinstance(e.payload, ToolCallInDoubt)]
                assert len(doubts) == 1, "the first had its result already"
            ending = await play.die("after effect", number - 1)
            play.check(ending)
            doubts = [e for e in ending.events if isinstance(e.payload, ToolCallInDoubt)]
            assert len(doubts) == 2
