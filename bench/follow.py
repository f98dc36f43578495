"""From an append in one process to a reader in another, for both stores; a thousand readers."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from report import Measure, median, percentile
from server import postgres

from mainspring.core.content import TextBlock, plain_text
from mainspring.core.events import AgentMessage
from mainspring.log.postgres import open_postgres
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import Store

APPENDS, PAUSE_SECONDS = 200, 0.02
FOLLOWERS = 1000


async def measure() -> list[Measure]:
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "log.db")
        found = [await _one(path, "SQLite"), await _thousand(path)]
    with postgres() as url:
        found.append(await _one(url, "PostgreSQL"))
    return found


def _open(url: str) -> AbstractAsyncContextManager[Store]:
    return open_postgres(url) if "://" in url else open_sqlite(Path(url))


async def _one(url: str, store_name: str) -> Measure:
    async with _open(url) as store:
        log = SessionLog(store)
        session_id = (await log.create()).id
        seconds: list[float] = []
        async with anyio.create_task_group() as group:
            group.start_soon(_talk_elsewhere, url, session_id, APPENDS)
            seconds += await _heard(log, session_id, APPENDS)
    return _delay(f"{store_name}, append to a reader elsewhere", seconds, target="<= 10")


async def _thousand(url: str) -> Measure:
    async with _open(url) as store:
        log = SessionLog(store)
        session_id = (await log.create()).id
        seconds: list[float] = []

        async def follow() -> None:
            seconds.extend(await _heard(log, session_id, 20))

        async with anyio.create_task_group() as group:
            for _ in range(FOLLOWERS):
                group.start_soon(follow)
            group.start_soon(_talk_elsewhere, url, session_id, 20)
    return _delay(f"SQLite, the same to {FOLLOWERS:,} readers", seconds)


async def _heard(log: SessionLog, session_id: str, count: int) -> list[float]:
    """How long each message took: it says when it was sent, by the clock all processes share."""
    seconds: list[float] = []
    async with aclosing(log.follow(session_id, types=["agent.message"])) as followed:
        async for event in followed:
            assert isinstance(event.payload, AgentMessage)
            sent = float(plain_text(event.payload.content))
            seconds.append(time.clock_gettime(time.CLOCK_MONOTONIC) - sent)
            if len(seconds) == count:
                break
    return seconds


def _delay(name: str, seconds: Sequence[float], *, target: str = "") -> Measure:
    p50, p99 = median(seconds) * 1000, percentile(seconds, 99) * 1000
    detail = f"p99 {p99:.1f} ms, the append's own time included"
    return Measure(name=name, value=p50, unit="ms", target=target, detail=detail)


async def _talk_elsewhere(url: str, session_id: str, count: int) -> None:
    await anyio.run_process(
        [sys.executable, __file__, url, session_id, str(count)], stdout=None, stderr=None
    )


async def _talk(url: str, session_id: str, count: int) -> None:
    async with _open(url) as store:
        writer = await SessionLog(store).hold(session_id, owner="bench")
        for _ in range(count):
            await anyio.sleep(PAUSE_SECONDS)
            moment = time.clock_gettime(time.CLOCK_MONOTONIC)
            await writer.append(AgentMessage(content=(TextBlock(f"{moment!r}"),)))


if __name__ == "__main__":
    anyio.run(_talk, sys.argv[1], sys.argv[2], int(sys.argv[3]))
