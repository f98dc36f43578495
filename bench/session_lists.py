"""Lists of sessions: what a page costs with 200,000 sessions, as a multiple of 2,000, for every
filter, for pairs of filters and for later pages, on both stores."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias, cast

import psycopg
from msgspec import structs
from report import Measure, note
from server import postgres

from mainspring.core import ids
from mainspring.core.clock import to_micros
from mainspring.core.content import TextBlock
from mainspring.core.envelope import GENESIS, encode_payload
from mainspring.core.events import (
    KnownPayload,
    SessionCreated,
    StatusIdle,
    StatusRunning,
    StatusTerminated,
    StopReason,
    UserMessage,
)
from mainspring.core.sender import Origin
from mainspring.log.event_chain import EventDraft, chain_events, to_row
from mainspring.log.postgres import open_postgres
from mainspring.log.postgres import queries as postgres_queries
from mainspring.log.postgres import records as postgres_records
from mainspring.log.session_activity import encode_activity, fold_activity
from mainspring.log.session_log import SessionLog
from mainspring.log.sql_rows import RECORD_COLUMNS, next_row, record_values
from mainspring.log.sqlite import open_sqlite
from mainspring.log.sqlite import store as sqlite_store
from mainspring.log.store import Head, Store
from mainspring.service.access.principal import Principal
from mainspring.service.resources.agents import ModelConfig, ServiceAccount
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.sessions.resource_types import StoreResource
from mainspring.service.sessions.session_agent import SessionAgent
from mainspring.service.sessions.session_filters import fill_filters
from mainspring.service.sessions.session_listing import ListSessions
from mainspring.service.sessions.session_record import SessionCreator, SessionRecord
from mainspring.service.sessions.sessions import Sessions

FEW = 2_000
MANY = int(os.environ.get("MAINSPRING_BENCH_SESSIONS", "200000"))
BATCH = 20_000
"""Sessions of one transaction."""
ROUNDS = 7
"""Each page is read so often; the least processor time counts, because others use the machine."""
START = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Principal(tenant="acme", key_id="key_1", role="operator", name="bench")
FILTERS: dict[str, dict[str, Any]] = {
    "no filter": {},
    "with archived": {"include_archived": True},
    "status idle": {"statuses": ("idle",)},
    "status running": {"statuses": ("running",)},
    "status rescheduling (none)": {"statuses": ("rescheduling",)},
    "two statuses": {"statuses": ("running", "terminated")},
    "terminated, with archived": {"statuses": ("terminated",), "include_archived": True},
    "origin": {"origin": "schedule"},
    "origin (none)": {"origin": "eval"},
    "agent": {"agent_id": "agent_2"},
    "agent and version": {"agent_id": "agent_2", "agent_version": 3},
    "deployment": {"deployment_id": "depl_3"},
    "memory store": {"memory_store_id": "memstore_1"},
    "created before": {"created_at_lt": START + timedelta(seconds=FEW / 2)},
    "agent, running": {"agent_id": "agent_2", "statuses": ("running",)},
    "memory store, idle, origin": {
        "memory_store_id": "memstore_1",
        "statuses": ("idle",),
        "origin": "api",
    },
    "origin (none), idle": {"origin": "eval", "statuses": ("idle",)},
    "ascending, agent": {"agent_id": "agent_2", "order": "asc"},
}


BEGIN: tuple[KnownPayload, ...] = (
    SessionCreated(agent_name="bench"),
    UserMessage(content=(TextBlock("Summarize the report."),)),
    StatusRunning(),
)
END = StatusIdle(stop_reason=StopReason(type="end_turn"))
HISTORIES = (BEGIN, (*BEGIN, END), (*BEGIN, END, StatusTerminated()))
WEIGHTS = (20, 70, 10)
"""Of 100 sessions: running, idle, terminated."""


def record(id_: str, number: int, dice: random.Random) -> SessionRecord:
    moment = START + timedelta(seconds=number)
    agent = SessionAgent(
        id=f"agent_{number % 4}",
        name="bench",
        version=1 + number // 4 % 3,
        model=ModelConfig(id="scripted"),
        execution_identity=ServiceAccount(),
        mcp_servers=(),
        skills=(),
        tools=(),
    )
    stores = StoreResource(
        id="sesrsc_1",
        memory_store_id="memstore_1",
        access="read_write",
        description="",
        mount_path="/mnt/memory/notes",
        name="notes",
        created_at=moment,
        updated_at=moment,
    )
    return SessionRecord(
        id=id_,
        agent=agent,
        environment_id="env_1",
        environment=CloudConfig(),
        created_at=moment,
        updated_at=moment,
        created_by=SessionCreator(key_id="key_1", name="bench"),
        resources=(stores,) if number % 10 == 0 else (),
        deployment_id=f"depl_{number % 9}" if number % 3 == 0 else None,
        origin=Origin(type=("api", "schedule", "trigger")[number % 3]),
        archived_at=moment if dice.random() < 0.3 else None,
    )


class Template(NamedTuple):
    """A session without an id: its row and the rows of its events."""

    session: tuple[object, ...]
    events: list[tuple[object, ...]]


def template(payloads_: Sequence[KnownPayload]) -> Template:
    drafts = [
        EventDraft(
            id=ids.new_id(ids.EVENT),
            thread_id="sthr_main",
            time=START,
            payload=payload,
            body=encode_payload(payload),
        )
        for payload in payloads_
    ]
    events, head = chain_events("sesn_template", Head(0, GENESIS), drafts)
    activity = encode_activity(fold_activity("sthr_main", events))
    return Template((*head, 0, activity), [to_row(event) for event in events])


SESSION_COLUMNS = "key, id, thread_id, created, updated, seq, hash, parent_seq, activity"
EVENT_COLUMNS = "session_key, seq, id, thread_id, time, version, type, body, prev, sender"
Insert: TypeAlias = Callable[[str, str, list[tuple[object, ...]]], None]
"""Writes rows into columns of a table."""


def insert_sessions(store: Store, insert: Insert, first: int, last: int) -> None:
    """As an older Mainspring has left them: without filters, and without a status."""
    dice = random.Random(first)
    templates = [template(item) for item in HISTORIES]
    repository = Sessions(SessionLog(store), cast("Any", None)).repository
    sessions: list[tuple[object, ...]] = []
    events: list[tuple[object, ...]] = []
    records: list[tuple[object, ...]] = []
    for number in range(first, last):
        id_, moment = ids.new_id(ids.SESSION), to_micros(START + timedelta(seconds=number))
        [chosen] = dice.choices(templates, WEIGHTS)
        sessions.append((number + 1, id_, "sthr_main", moment, moment, *chosen.session))
        events += [(number + 1, *row) for row in chosen.events]
        change = repository.put_change(WHO.tenant, record(id_, number, dice))
        records.append(record_values(next_row(change, store.provenance)))
    insert("session", SESSION_COLUMNS, sessions)
    insert("event", EVENT_COLUMNS, events)
    insert("record", RECORD_COLUMNS, records)


class Counter:
    """Statements, and the processor time of this process and of the database's."""

    def __init__(self) -> None:
        self.statements = 0
        self.backends: list[Path] = []
        """Files of the kernel about the server processes that work for this one."""

    def seconds(self) -> float:
        served = sum(int(file.read_text().split()[0]) for file in self.backends)
        return time.process_time() + served / 1e9

    def count(self, _sql: object = None) -> None:
        self.statements += 1


@asynccontextmanager
async def sqlite_sessions() -> AsyncGenerator[tuple[Store, Counter, Insert]]:
    counter = Counter()
    connect = sqlite_store.connect

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(counter.count)
        return connection

    def insert(table: str, columns: str, rows: list[tuple[object, ...]]) -> None:
        places = ", ".join("?" * len(rows[0]))
        with closing(connect(Path(folder, "bench.db"))) as connection:
            connection.execute("begin immediate")
            connection.executemany(f"insert into {table}({columns}) values ({places})", rows)
            connection.execute("commit")

    with TemporaryDirectory() as folder:
        sqlite_store.connect = traced
        try:
            async with open_sqlite(Path(folder, "bench.db")) as store:
                yield store, counter, insert
        finally:
            sqlite_store.connect = connect


@asynccontextmanager
async def postgres_sessions() -> AsyncGenerator[tuple[Store, Counter, Insert]]:
    counter = Counter()

    def insert(table: str, columns: str, rows: list[tuple[object, ...]]) -> None:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            copy_statement = f"copy mainspring.{table}({columns}) from stdin"
            with cursor.copy(copy_statement.encode()) as copy:
                for row in rows:
                    copy.write_row(row)

    with postgres() as url:
        async with open_postgres(url) as store:
            with counted_fetches(counter):
                await store.sessions(limit=1)
                counter.backends = backends(url)
                yield store, counter, insert


@contextmanager
def counted_fetches(counter: Counter) -> Generator[None]:
    fetch = postgres_queries.fetch_all

    async def counted(*arguments: Any) -> Any:  # noqa: ANN401 (passed on)
        counter.count()
        return await fetch(*arguments)

    modules: Sequence[Any] = (postgres_queries, postgres_records)
    for module in modules:
        module.fetch_all = counted
    try:
        yield
    finally:
        for module in modules:
            module.fetch_all = fetch


def backends(url: str) -> list[Path]:
    with psycopg.connect(url) as connection:
        pids = connection.execute(
            "select pid from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and backend_type = 'client backend'"
        ).fetchall()
    return [Path(f"/proc/{pid}/schedstat") for (pid,) in pids]


def opened_sessions(store: Store) -> Sessions:
    """Nothing of them is cached."""
    return Sessions(SessionLog(store), cast("Any", None))


async def page_costs(store: Store, counter: Counter) -> dict[str, tuple[int, float]]:
    """Statements and milliseconds of the first and the third page of each list."""
    costs: dict[str, tuple[int, float]] = {}
    for name, fields in FILTERS.items():
        request = ListSessions(**fields)
        costs[name] = await page_cost(store, counter, request)
        for _ in range(2):
            page = await opened_sessions(store).loaded_page(WHO, request)
            if page.next_page is None:
                break
            request = structs.replace(request, page=page.next_page)
        else:
            costs[f"{name}, page 3"] = await page_cost(store, counter, request)
    return costs


async def page_cost(store: Store, counter: Counter, request: ListSessions) -> tuple[int, float]:
    seconds: list[float] = []
    for _ in range(ROUNDS):
        sessions = opened_sessions(store)
        counter.statements, begun = 0, counter.seconds()
        await sessions.loaded_page(WHO, request)
        seconds.append(counter.seconds() - begun)
    return counter.statements, min(seconds) * 1e3


async def measure() -> list[Measure]:
    stores = {"SQLite": sqlite_sessions, "PostgreSQL": postgres_sessions}
    return [item for name, opened in stores.items() for item in await _measure(name, opened)]


async def _measure(
    name: str, opened: Callable[[], AbstractAsyncContextManager[tuple[Store, Counter, Insert]]]
) -> list[Measure]:
    async with opened() as (store, counter, insert):
        note(f"{name}: {FEW:,} sessions ...")
        insert_sessions(store, insert, 0, FEW)
        await fill_filters(SessionLog(store))
        few = await page_costs(store, counter)
        note(f"{name}: {MANY:,} sessions ...")
        for first in range(FEW, MANY, BATCH):
            insert_sessions(store, insert, first, min(first + BATCH, MANY))
        begun = time.perf_counter()
        filled = await fill_filters(SessionLog(store))
        rate = filled / (time.perf_counter() - begun)
        many = await page_costs(store, counter)
    speed = Measure(name=f"{name}: sessions of an older version prepared", value=rate, unit="/s")
    return [speed, *(_compared(name, list_, few[list_], many[list_]) for list_ in few)]


def _compared(store: str, list_: str, few: tuple[int, float], many: tuple[int, float]) -> Measure:
    return Measure(
        name=f"{store}: {list_}, {MANY:,} / {FEW:,} sessions",
        value=max(many[1] / few[1], many[0] / few[0]),
        unit="x",
        target="<= 1.5",
        detail=f"{few[1]:.2f} ms -> {many[1]:.2f} ms; {few[0]} -> {many[0]} statements",
    )
