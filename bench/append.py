"""What durability costs: an append against a bare INSERT and commit of the same row, in one run.

Both write to the same file, or server, with the same settings, in turns.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from report import Measure, median
from server import postgres

from mainspring.core.content import TextBlock
from mainspring.core.events import AgentMessage
from mainspring.log.event_chain import to_row
from mainspring.log.postgres import connect as pg
from mainspring.log.postgres import open_postgres
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.sqlite.connect import connect
from mainspring.log.store import Row, Store
from mainspring.log.writer import Writer

ROUNDS, BLOCK = 60, 20
SESSIONS, EACH = 64, 30
MESSAGE = AgentMessage(content=(TextBlock("A sentence or two, as an agent says them. " * 5),))

_TABLE = """
    create table bare(
      session_key integer not null, seq integer not null, id text not null,
      thread_id text not null, time integer not null, version integer not null,
      type text not null, body text not null, prev blob not null, sender text,
      primary key(session_key, seq)
    ) strict, without rowid
"""
_INSERT = "insert into bare values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PG_TABLE = """
    create table bare(
      session_key bigint not null, seq bigint not null, id text not null,
      thread_id text not null, time bigint not null, version integer not null,
      type text not null, body text not null, prev bytea not null, sender text,
      primary key(session_key, seq)
    )
"""
_PG_INSERT = "insert into bare values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"


async def measure() -> list[Measure]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        async with open_sqlite(path) as store:
            found = [await _sqlite(store, path), await _together(store)]
    with postgres() as url:
        found.append(await _postgres(url))
    return found


async def _sqlite(store: Store, path: Path) -> Measure:
    bare = connect(path)
    bare.execute(_TABLE)
    writer, row = await _writer(store)

    async def insert(seq: int) -> None:
        bare.execute("begin immediate")
        bare.execute(_INSERT, (1, row._replace(seq=seq)[0], *row[1:]))
        bare.execute("commit")

    ours, theirs = await _in_turns(writer, insert)
    bare.close()
    return _ratio("SQLite append / bare insert", ours, theirs, "<= 1.5", sqlite3.sqlite_version)


async def _postgres(url: str) -> Measure:
    async with open_postgres(url) as store:
        bare = await pg.connect(pg.Address.of(url))
        await bare.execute(_PG_TABLE)
        writer, row = await _writer(store)

        async def insert(seq: int) -> None:
            values = (1, row._replace(seq=seq)[0], *row[1:])
            await bare.execute(_PG_INSERT, values, prepare=True, binary=True)

        ours, theirs = await _in_turns(writer, insert)
        await bare.close()
    return _ratio(
        "PostgreSQL append / bare insert", ours, theirs, "<= 1.3", "psycopg, local socket"
    )


async def _writer(store: Store) -> tuple[Writer, Row]:
    log = SessionLog(store)
    writer = await log.hold((await log.create()).id, owner="bench")
    [event] = await writer.append(MESSAGE)
    return writer, to_row(event)


async def _in_turns(
    writer: Writer, insert: Callable[[int], Awaitable[None]]
) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    theirs: list[float] = []
    seq = 0
    for round_ in range(ROUNDS):
        for _ in range(BLOCK):
            seq += 1
            begun = time.perf_counter()
            await insert(seq)
            between = time.perf_counter()
            theirs.append(between - begun)
        for _ in range(BLOCK):
            begun = time.perf_counter()
            await writer.append(MESSAGE)
            ours.append(time.perf_counter() - begun)
        if round_ == 2:  # caches are warm, statements prepared
            ours.clear()
            theirs.clear()
    return ours, theirs


def _ratio(name: str, ours: list[float], theirs: list[float], target: str, how: str) -> Measure:
    a, b = median(ours) * 1000, median(theirs) * 1000
    return Measure(
        name=name, value=a / b, unit="x", target=target, detail=f"p50 {a:.3f} / {b:.3f} ms, {how}"
    )


async def _together(store: Store) -> Measure:
    log = SessionLog(store)
    writers = [await log.hold((await log.create()).id, owner="bench") for _ in range(SESSIONS)]

    async def talk(writer: Writer, count: int) -> None:
        for _ in range(count):
            await writer.append(MESSAGE)

    ratios: list[float] = []
    alone = together = 0.0
    for _ in range(5):  # each beside its own comparison, so that a noisy machine is noisy to both
        begun = time.perf_counter()
        await talk(writers[0], 200)
        alone = 200 / (time.perf_counter() - begun)
        begun = time.perf_counter()
        async with anyio.create_task_group() as group:
            for writer in writers:
                group.start_soon(talk, writer, EACH)
        together = SESSIONS * EACH / (time.perf_counter() - begun)
        ratios.append(together / alone)
    return Measure(
        name=f"SQLite {SESSIONS} sessions / one",
        value=median(ratios),
        unit="x",
        target=">= 5",
        detail=f"last: {together:,.0f} / {alone:,.0f} appends a second",
    )
