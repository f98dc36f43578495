"""Workers: how throughput grows with them, and how soon a message is heard.

The model is a stub that takes 200 ms, and a worker runs only so many sessions at once: what is
measured is whether a second worker adds its share, not how fast this machine is.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from report import Measure, median, percentile
from server import postgres

from mainspring import Agent, Runtime, open_runtime, tool
from mainspring.capabilities.providers.scripted import ScriptLine
from mainspring.config import read_settings
from mainspring.core import clock
from mainspring.core.clock import to_micros
from mainspring.core.content import TextBlock
from mainspring.core.events import StatusIdle, UserMessage
from mainspring.core.model import Assistant
from mainspring.core.sender import Sender
from mainspring.log.postgres import open_postgres
from mainspring.log.records import SESSION_KIND, Put, RecordRow
from mainspring.log.session_log import SessionLog
from mainspring.log.task_groups import run_in_background
from mainspring.service.jobs.dispatcher import Dispatcher, Job
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.jobs.postgres_dispatcher import open_fleet
from mainspring.service.jobs.worker import Worker, WorkerSettings
from mainspring.testing import Request, Scripted, calls, says
from mainspring.wiring.user_vault import store_key

LATENCY_SECONDS, CONCURRENCY = 0.2, 4
TURNS, SESSIONS, MESSAGES = 5, 48, 50
TENANT = "bench"
_TESTER = Sender(kind="person", id="tester")
QUICK = TextBlock("hello")


@tool
def look(at: int) -> str:
    """Look at something."""
    return f"it is {at}"


AGENT = Agent(name="clerk", model="scripted:clerk", tools=[look])


def _answer(request: Request) -> ScriptLine:
    if QUICK in request.messages[0].content:
        return says("Hello.")
    said = sum(isinstance(message, Assistant) for message in request.messages)
    return calls("look", at=said) if said < TURNS - 1 else says("I have seen it all.")


async def measure() -> list[Measure]:
    with TemporaryDirectory() as folder:
        soon = [await _embedded(str(Path(folder) / "log.db"))]
    with postgres() as url, TemporaryDirectory() as folder:
        one = await _throughput(url, 1, Path(folder))
        two = await _throughput(url, 2, Path(folder))
        soon.append(await _elsewhere(url, Path(folder)))
    ideal = CONCURRENCY / LATENCY_SECONDS / TURNS
    return [
        Measure(
            name="sessions/s of two workers to those of one",
            value=two / one,
            unit="x",
            target=">= 1.7",
            detail=f"{one:.1f} and {two:.1f} a second; {ideal:.0f} a worker if nothing cost time",
        ),
        *soon,
    ]


async def _throughput(url: str, workers: int, folder: Path) -> float:
    """Sessions a second, each of some turns with a call."""
    async with (
        open_postgres(url, key=store_key(read_settings())) as store,
        open_fleet(url) as dispatcher,
    ):
        log = SessionLog(store)
        with _working(url, workers, folder):
            await _all_idle(log, dispatcher, await _sessions(log, 2 * CONCURRENCY * workers))
            sessions = await _sessions(log, SESSIONS)
            begun = time.perf_counter()
            await _all_idle(log, dispatcher, sessions)
            return SESSIONS / (time.perf_counter() - begun)


async def _embedded(path: str) -> Measure:
    async with open_runtime(store=path) as runtime:
        dispatcher = EmbeddedDispatcher(runtime.log.store.records)
        async with _worker(runtime, dispatcher):
            seconds = await _first_events(runtime.log, dispatcher)
    return _delay("SQLite, one process, message to first event", seconds, target="<= 20")


async def _elsewhere(url: str, folder: Path) -> Measure:
    async with (
        open_postgres(url, key=store_key(read_settings())) as store,
        open_fleet(url) as dispatcher,
    ):
        log = SessionLog(store)
        with _working(url, 1, folder):
            await _all_idle(log, dispatcher, await _sessions(log, 1))
            seconds = await _first_events(log, dispatcher)
    return _delay("PostgreSQL, a worker elsewhere, the same", seconds, target="<= 100")


def _delay(name: str, seconds: list[float], *, target: str) -> Measure:
    return Measure(
        name=name,
        value=median(seconds) * 1000,
        unit="ms p50",
        target=target,
        detail=f"p95 {percentile(seconds, 95) * 1000:.1f} ms",
    )


async def _first_events(log: SessionLog, dispatcher: Dispatcher) -> list[float]:
    seconds: list[float] = []
    for session_id in await _sessions(log, MESSAGES):
        sent = datetime.now(UTC)
        await _say(log, dispatcher, session_id, QUICK)
        await _idle(log, session_id)
        first = (await log.read(session_id, after=1, limit=1))[0]
        seconds.append((first.time - sent).total_seconds())
    return seconds


async def _sessions(log: SessionLog, count: int) -> list[str]:
    made = [(await log.create()).id for _ in range(count)]
    moment = to_micros(clock.now())
    for session_id in made:
        record = RecordRow(
            tenant=TENANT,
            kind=SESSION_KIND,
            id=session_id,
            created=moment,
            updated=moment,
            body=b"{}",
        )
        await log.store.records.write(Put(row=record))
    return made


async def _all_idle(log: SessionLog, dispatcher: Dispatcher, sessions: list[str]) -> None:
    async with anyio.create_task_group() as group:
        for session_id in sessions:
            group.start_soon(_idle, log, session_id)
        for session_id in sessions:
            await _say(log, dispatcher, session_id, TextBlock("look around"))


async def _say(log: SessionLog, dispatcher: Dispatcher, session_id: str, words: TextBlock) -> None:
    await log.submit(session_id, UserMessage(content=(words,)), sender=_TESTER)
    await dispatcher.remind([Job(task="wake", key=session_id, tenant=TENANT)])


async def _idle(log: SessionLog, session_id: str) -> None:
    async for event in log.follow(session_id):
        if isinstance(event.payload, StatusIdle):
            return


@contextmanager
def _working(url: str, workers: int, folder: Path):
    children = [
        subprocess.Popen([sys.executable, __file__, url], stdout=subprocess.PIPE, cwd=folder)
        for _ in range(workers)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        yield
    finally:
        for child in children:
            child.kill()
            child.communicate()


@asynccontextmanager
async def _worker(runtime: Runtime, dispatcher: Dispatcher) -> AsyncGenerator[None, None]:
    runtime.models.put(AGENT.model, Scripted(otherwise=_answer, latency_seconds=LATENCY_SECONDS))

    async def run(session_id: str) -> None:
        await (await runtime.resume(AGENT, session_id)).run()

    worker = Worker(
        dispatcher, runtime.log, run, worker_settings=WorkerSettings(concurrency=CONCURRENCY)
    )

    async def work() -> None:
        await worker.work(anyio.Event())

    async with run_in_background(work):
        yield


async def _main(url: str) -> None:
    async with (
        open_runtime(store=url) as runtime,
        open_fleet(url) as dispatcher,
        _worker(runtime, dispatcher),
    ):
        print("ready", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1])
