"""Lists of sessions are filtered by what their records and logs say."""

import logging
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, get_args

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.senders import TESTER

from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.events import ClientPayload, KnownPayload
from mainspring.log.records import Put, RecordRow, Replace
from mainspring.log.session_log import SessionLog
from mainspring.log.session_status import ThreadStatus
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.principal import Principal
from mainspring.service.resources.agents import ModelConfig, ServiceAccount
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.sessions import session_filters
from mainspring.service.sessions.session_agent import SessionAgent
from mainspring.service.sessions.session_filters import fill_filters
from mainspring.service.sessions.session_listing import ListSessions
from mainspring.service.sessions.session_record import SessionCreator, SessionRecord
from mainspring.service.sessions.sessions import Sessions

WHO = Principal(tenant="acme", key_id="key_1", role="operator", name="olga")
START = datetime(2026, 11, 16, 12, tzinfo=UTC)
IDLE = events.StatusIdle(stop_reason=events.StopReason(type="end_turn"))
ASKS = events.StatusIdle(stop_reason=events.StopReason(type="requires_action"))
CHILD = events.ThreadCreated(session_thread_id="sthr_2", agent_name="finder")
PAYLOADS: list[KnownPayload] = [
    events.StatusRunning(),
    IDLE,
    ASKS,
    events.StatusRescheduled(),
    events.StatusTerminated(),
    CHILD,
    events.ThreadStatusRunning(session_thread_id="sthr_2", agent_name="finder"),
    events.ThreadStatusIdle(
        session_thread_id="sthr_2",
        agent_name="finder",
        stop_reason=events.StopReason(type="end_turn"),
    ),
    events.ThreadStatusTerminated(session_thread_id="sthr_2", agent_name="finder"),
]
INPUTS: list[ClientPayload] = [
    events.UserMessage(content=(TextBlock("go on"),)),
    events.UserInterrupt(),
    events.UserToolConfirmation(tool_use_id="sevt_1", result="allow"),
    events.UserCustomToolResult(custom_tool_use_id="sevt_1"),
    events.UserDefineOutcome(description="done", rubric=events.TextRubric(content="good")),
]
"""Each is put into the inbox; `None` folds the inbox into the log."""
STEPS = st.lists(st.sampled_from([*PAYLOADS, *INPUTS, None]), max_size=12)


def opened(log: SessionLog) -> Sessions:
    return Sessions(log, cast("Any", None))


def record(id_: str, *, is_archived: bool = False) -> SessionRecord:
    agent = SessionAgent(
        id="agent_1",
        name="helper",
        version=1,
        model=ModelConfig(id="scripted"),
        execution_identity=ServiceAccount(),
        mcp_servers=(),
        skills=(),
        tools=(),
    )
    return SessionRecord(
        id=id_,
        agent=agent,
        environment_id="env_1",
        environment=CloudConfig(),
        created_at=START,
        updated_at=START,
        created_by=SessionCreator(key_id="key_1", name="olga"),
        archived_at=START if is_archived else None,
    )


async def play(log: SessionLog, steps: list[KnownPayload | ClientPayload | None]) -> str:
    session = await log.create()
    writer = await log.hold(session.id, owner="test")
    for step in steps:
        if step is None:
            await writer.fold_inbox()
        elif isinstance(step, tuple(type(item) for item in INPUTS)):
            await log.submit(session.id, step, sender=TESTER)
        else:
            await writer.append(step)
    await writer.release()
    return session.id


async def listed(sessions: Sessions, **fields: object) -> set[str]:
    page = await sessions.page(WHO, ListSessions(limit=1000, **cast("dict[str, Any]", fields)))
    assert page.next_page is None
    return {item.id for item in page.data}


async def require_true_lists(sessions: Sessions, ids: set[str]) -> None:
    """Every session is listed under its status, and under no other."""
    found = {id_: await sessions.find(WHO, id_) for id_ in ids}
    for status in get_args(ThreadStatus):
        matching = {id_ for id_, session in found.items() if session.status == status}
        assert await listed(sessions, statuses=(status,), include_archived=True) == matching
        open_ids = {id_ for id_ in matching if found[id_].record.archived_at is None}
        assert await listed(sessions, statuses=(status,), agent_id="agent_1") == open_ids


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lists")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(histories=st.lists(st.tuples(STEPS, st.booleans()), min_size=1, max_size=4))
def test_a_session_is_listed_under_the_status_that_its_log_and_inbox_give(
    folder: Path, histories: list[tuple[list[KnownPayload | ClientPayload | None], bool]]
):
    async def check() -> None:
        path = folder / f"{len([*folder.iterdir()])}.db"
        async with open_sqlite(path) as store:
            log = SessionLog(store)
            sessions = opened(log)
            ids: set[str] = set()
            for steps, is_archived in histories:
                id_ = await play(log, steps)
                await sessions.repository.put(WHO.tenant, record(id_, is_archived=is_archived))
                ids.add(id_)
            await require_true_lists(sessions, ids)

    anyio.run(check)


async def test_filling_what_an_older_version_left_out_can_be_interrupted_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session_filters, "_STEP", 2)
    async with open_sqlite(tmp_path / "store.db") as store:
        log = SessionLog(store)
        sessions = opened(log)
        ids: set[str] = set()
        for number in range(9):
            id_ = await play(log, [events.StatusRunning(), *([IDLE] if number % 3 else [])])
            change = sessions.repository.put_change(WHO.tenant, record(id_))
            await store.records.write(Put(row=change.row))  # as before there were filters
            ids.add(id_)
        forget = "update session set status = null, activity = null where id in (select id from"
        _run(tmp_path / "store.db", f"{forget} session order by id limit 5)")
        assert await listed(sessions, agent_id="agent_1") == set()
        with anyio.CancelScope() as scope:
            handler = _Cancelling(scope)
            logging.getLogger("mainspring.sessions").addHandler(handler)
            monkeypatch.setattr(logging.getLogger("mainspring.sessions"), "level", logging.INFO)
            try:
                await fill_filters(log)
            finally:
                logging.getLogger("mainspring.sessions").removeHandler(handler)
        assert scope.cancelled_caught
        begun = await listed(sessions, agent_id="agent_1")
        assert 0 < len(begun) < len(ids)
        assert await fill_filters(log) == len(ids) - len(begun)
        assert await fill_filters(log) == 0
        await require_true_lists(sessions, ids)


class _Cancelling(logging.Handler):
    """Cancels the work that says that it has done a step."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        super().__init__()
        self._scope = scope

    def emit(self, record: logging.LogRecord) -> None:
        self._scope.cancel()


def _run(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


async def test_a_damaged_record_does_not_stop_the_others_from_being_filled(tmp_path: Path):
    async with open_sqlite(tmp_path / "store.db") as store:
        log = SessionLog(store)
        sessions = opened(log)
        good, bad = [await play(log, [events.StatusRunning()]) for _ in range(2)]
        for id_ in (good, bad):
            change = sessions.repository.put_change(WHO.tenant, record(id_))
            await store.records.write(Put(row=change.row))
        row = await store.records.get("session", bad)
        await store.records.write(Replace(row=_damaged(row)))
        assert await fill_filters(log) == 1
        assert await listed(sessions, statuses=("running",)) == {good}


def _damaged(row: RecordRow) -> RecordRow:
    return replace(row, body=b'{"no')
