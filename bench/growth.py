"""Nothing gets dearer as a session gets longer: bytes and time a turn, opening, the tail."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from report import Measure, median

from mainspring.core.content import TextBlock
from mainspring.core.events import (
    AgentMessage,
    AgentToolResult,
    AgentToolUse,
    ToolCallStarted,
    UserMessage,
)
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.writer import Writer

TURNS, WINDOW = 2000, 200
LONG = 100_000
SAID = (TextBlock("What is said in one turn of a session that goes on for long. " * 4),)


async def measure() -> list[Measure]:
    with TemporaryDirectory() as folder:
        return [*await _turns(Path(folder) / "turns.db"), *await _long(Path(folder) / "long.db")]


async def _turns(path: Path) -> list[Measure]:
    """A turn: what the user said, the call, its start, its result, the answer; three commits."""
    seconds: list[float] = []
    written: list[float] = []
    async with open_sqlite(path) as store:
        log = SessionLog(store)
        writer = await log.hold((await log.create()).id, owner="bench")
        for _ in range(TURNS):
            before, begun = _written(), time.perf_counter()
            await _turn(writer)
            seconds.append(time.perf_counter() - begun)
            written.append(_written() - before)
    return [
        _slope("bytes written a turn, turn 2,000 / 10", written, "bytes", 1),
        _slope("time a turn, turn 2,000 / 10", seconds, "ms", 1000),
    ]


async def _turn(writer: Writer) -> None:
    await writer.append(UserMessage(content=SAID))
    [use] = await writer.append(AgentToolUse(name="bash", input={"command": "ls -la"}))
    started = ToolCallStarted(tool_use_id=use.id, idempotency_key="k" * 64)
    result = AgentToolResult(tool_use_id=use.id, content=SAID)
    await writer.append(started, result, AgentMessage(content=SAID))


def _written() -> int:
    """Bytes this process has handed to the system, whatever it made of them."""
    counters = dict(
        line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    )
    return int(counters["wchar"])


def _slope(name: str, values: Sequence[float], unit: str, scale: float) -> Measure:
    early, late = median(values[10 : 10 + WINDOW]), median(values[-WINDOW:])
    detail = f"{early * scale:,.2f} -> {late * scale:,.2f} {unit}"
    return Measure(name=name, value=late / early, unit="x", target="<= 1.2", detail=detail)


async def _long(path: Path) -> list[Measure]:
    async with open_sqlite(path) as store:
        log = SessionLog(store)
        short = await _filled(log, 100)
        long = await _filled(log, LONG)
        early = await _tail(log, short)
        late = await _tail(log, long)
    begun, cpu = time.perf_counter(), time.process_time()
    async with open_sqlite(path) as store:
        log = SessionLog(store)
        events = await log.read(long)
        thread_tree = ThreadTree.of(events, (await log.session(long)).thread_id)
    opened, cpu = time.perf_counter() - begun, time.process_time() - cpu
    assert thread_tree.main.thread.messages == 0
    return [
        Measure(
            name=f"open and fold {LONG:,} events",
            value=opened,
            unit="s",
            target="<= 1",
            detail=f"{len(events) / opened:,.0f} events a second, {cpu:.2f} s CPU",
        ),
        Measure(
            name=f"tail of {LONG:,} events / of 100",
            value=late / early,
            unit="x",
            target="<= 1.5",
            detail=f"{late * 1000:.2f} / {early * 1000:.2f} ms for 20",
        ),
    ]


async def _filled(log: SessionLog, events: int) -> str:
    writer = await log.hold((await log.create()).id, owner="bench")
    for _ in range(events // 100):
        await writer.append(*(AgentMessage(content=SAID) for _ in range(100)))
    await writer.release()
    return writer.session_id


async def _tail(log: SessionLog, session_id: str) -> float:
    seconds: list[float] = []
    for _ in range(300):
        begun = time.perf_counter()
        await log.tail(session_id, 20)
        seconds.append(time.perf_counter() - begun)
    return median(seconds)
