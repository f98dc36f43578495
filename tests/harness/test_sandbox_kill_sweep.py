"""kill -9 at every instant of a session that works in a real sandbox: each effect exactly once.

`killable_sandbox_worker.py` has the session and the processes that are killed.
"""

import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from tests.harness.killable_sandbox_worker import (
    AGENT,
    LINES,
    MILLISECONDS,
    NOTES,
    UNKNOWN,
    Order,
    Victims,
    ends_within,
    keeper_of,
    lines_of,
    live,
    settings_of,
)
from tests.harness.killable_worker import Fuse, Lives, lives
from tests.harness.test_kill_sweep import orphans

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import (
    AgentToolResult,
    AgentToolUse,
    SandboxOpened,
    StatusIdle,
    ToolCallInDoubt,
)
from mainspring.core.ports import ISOLATED
from mainspring.harness.state.thread import fold
from mainspring.log.verify import verify
from mainspring.runtime.session.session import Runtime
from mainspring.testing.replay import replay
from mainspring.wiring.runtime_assembly import open_runtime

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are killed as on Linux")

WRITES = ["before write", "after write"]
EVERYBODY: list[Victims] = ["worker", "both", "keeper"]
_MAX_LIVES = 40
_PARTING_MS = 10_000
"""Much less than a keeper waits for somebody to come back."""


@dataclass
class SweepResult:
    """How a session and its workspace stand when all is over."""

    events: list[Event]
    lines: list[str]
    notes: str

    @property
    def unknown(self) -> set[str]:
        """Lines of calls of which the model was told that it is not known what they did."""
        uses = {e.id: e.payload for e in self.events if isinstance(e.payload, AgentToolUse)}
        calls = [
            uses[event.payload.tool_use_id]
            for event in self.events
            if isinstance(event.payload, AgentToolResult)
            and event.payload.is_error
            and UNKNOWN in plain_text(event.payload.content)
        ]
        return {line for call in calls for line in lines_of(call.input)}

    @property
    def doubts(self) -> list[ToolCallInDoubt]:
        found = [event.payload for event in self.events]
        return [payload for payload in found if isinstance(payload, ToolCallInDoubt)]


class Sweep:
    """One store, one forking process, a session and a workspace for each death."""

    def __init__(self, folder: Path, runtime: Runtime, process: Lives[Order]) -> None:
        self._folder = folder
        self._runtime = runtime
        self._process = process
        self._numbers = count(1)
        self.passed: dict[str, int] = {}
        """How many instants there are to die at."""

    async def order(self) -> Order:
        workspace = self._folder / f"work-{next(self._numbers)}"
        workspace.mkdir()
        session = await self._runtime.start(AGENT, "Do all of it.")
        return Order(folder=str(self._folder), workspace=str(workspace), session_id=session.id)

    async def undisturbed(self) -> SweepResult:
        order, fuse = await self.order(), Fuse("", 0)
        await live(order, fuse)
        self.passed = fuse.passed
        return await self.ending(order)

    async def die(self, where: str, number: int, victims: Victims = "worker") -> SweepResult:
        """Die once, or lose the keeper, then live to the end."""
        order = await self.order()
        was_killed = self._process.live(replace(order, where=where, number=number, victims=victims))
        assert was_killed or victims == "keeper" or where not in WRITES
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
        log = self._runtime.log
        report = await verify(log, order.session_id)
        assert report.ok, report.problems
        events = await log.read(order.session_id)
        thread_id = (await log.session(order.session_id)).thread_id
        workspace = Path(order.workspace)
        snapshot = fold(events, thread_id=thread_id).session_state.snapshot
        assert snapshot is not None
        kept = WorkspaceSnapshots(FolderWorkspace(workspace), order.places.snapshots)
        assert await kept.diff(snapshot) == [], "the newest snapshot is of something else"
        keeper = keeper_of(order.places.state)
        assert keeper is None or ends_within(keeper, _PARTING_MS), "the sandbox was left behind"
        (await replay(log, order.session_id)).check()
        lines = (workspace / "effects.txt").read_text().splitlines()
        assert (workspace / "folder/made.txt").read_text() == "made\n"
        assert (workspace / "watch.txt").read_text() == "on\n"
        return SweepResult(events, lines, (workspace / "notes.txt").read_text())


def check(ending: SweepResult, *, keeper_died: bool = False) -> None:
    """Everything is done, each thing once; but for what the model was told is not known."""
    last = ending.events[-1].payload
    assert isinstance(last, StatusIdle)
    assert last.reason == "completed"
    assert orphans(ending.events) == []
    assert ending.notes == NOTES
    assert keeper_died or not ending.unknown
    assert [line for line in ending.lines if line not in ending.unknown] == [
        line for line in LINES if line not in ending.unknown
    ]
    assert len(set(ending.lines)) == len(ending.lines)


@pytest.fixture(scope="module")
def process() -> Iterator[Lives[Order]]:
    with lives(Order, "tests.harness.killable_sandbox_worker") as started:
        yield started


@asynccontextmanager
async def sweep(process: Lives[Order], folder: Path) -> AsyncGenerator[Sweep]:
    (folder / "home").mkdir()
    async with open_runtime(settings_of(folder)) as runtime:
        play = Sweep(folder, runtime, process)
        check(await play.undisturbed())
        yield play


async def test_the_swept_session_runs_in_an_isolated_sandbox(tmp_path: Path, process: Lives[Order]):
    async with sweep(process, tmp_path) as play:
        ending = await play.undisturbed()
        [box] = [e.payload for e in ending.events if isinstance(e.payload, SandboxOpened)]
        assert box.level in ISOLATED
        assert (ending.lines, ending.doubts) == (LINES, [])
        assert play.passed["before write"] > 20
        assert play.passed["output"] > 3


async def test_a_sample_of_kills_leaves_each_effect_exactly_once(
    tmp_path: Path, process: Lives[Order]
):
    async with sweep(process, tmp_path) as play:
        for at, where in enumerate(WRITES):
            for number in range(4 + 5 * at, play.passed[where] + 1, 10):
                check(await play.die(where, number))


async def test_a_kill_during_a_command_leaves_each_effect_exactly_once(
    tmp_path: Path, process: Lives[Order]
):
    """The second that tells of itself sleeps between its two effects."""
    async with sweep(process, tmp_path) as play:
        for victims in EVERYBODY:
            ending = await play.die("output", 2, victims)
            check(ending, keeper_died=victims != "worker")
            assert bool(ending.doubts) == (victims != "keeper")
            assert ending.unknown == (set[str]() if victims == "worker" else {"5", "6"})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("where", [*WRITES, "output"])
@pytest.mark.parametrize("victims", EVERYBODY)
async def test_every_kill_leaves_each_effect_exactly_once(
    tmp_path: Path, process: Lives[Order], where: str, victims: Victims
):
    async with sweep(process, tmp_path) as play:
        for number in range(1, play.passed[where] + 1):
            check(await play.die(where, number, victims), keeper_died=victims != "worker")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("victims", EVERYBODY)
async def test_kills_at_random_times_leave_each_effect_exactly_once(
    tmp_path: Path, process: Lives[Order], victims: Victims
):
    chance = Random(4)
    async with sweep(process, tmp_path) as play:
        for _ in range(60):
            ending = await play.die(MILLISECONDS, chance.randrange(50, 2000), victims)
            check(ending, keeper_died=victims != "worker")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [9, 14])
async def test_repeated_kills_leave_each_effect_exactly_once(
    tmp_path: Path, process: Lives[Order], number: int
):
    async with sweep(process, tmp_path) as play:
        for where in WRITES:
            ending, deaths = await play.die_often(where, number)
            check(ending)
            assert deaths > 1
