"""The table of utilities, derived from the logs: updated when it is read, rebuilt if it is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from itertools import groupby
from pathlib import Path

from anyio import to_thread
from msgspec import Struct

from mainspring.core import events
from mainspring.core.clock import from_micros, to_micros
from mainspring.core.envelope import Event
from mainspring.core.errors import LeaseHeld, SessionGone, SessionNotFound
from mainspring.core.events import UtilityCredited, UtilityType
from mainspring.harness.state.utility import RELEVANT_TYPES, fold_utility
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow
from mainspring.runtime.utility.ranking import START, Utility, with_reward

_PAGE = 200  # sessions read at once
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uses (
    type TEXT, id TEXT, session TEXT, times INTEGER NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (type, id, session)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS credits (
    type TEXT, id TEXT, outcome TEXT, time INTEGER NOT NULL, reward REAL NOT NULL,
    source TEXT NOT NULL, session TEXT NOT NULL,
    PRIMARY KEY (type, id, outcome)) WITHOUT ROWID;
"""


class UtilityRow(Struct, frozen=True, kw_only=True):
    type: str
    id: str
    value: float
    credits: int
    mean_reward: float
    sessions: int
    uses: int
    last_used: datetime | None


class UtilityTable:
    """Blocks. Several processes may use one file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        with suppress(sqlite3.DatabaseError), closing(self._open()):
            return
        path.unlink(missing_ok=True)  # damaged: it is derived from the logs
        self._open().close()

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        try:
            database.executescript(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database

    def outdated(self, sessions: Iterable[SessionRow]) -> list[SessionRow]:
        with closing(self._open()) as database:
            sequences: dict[str, int] = dict(database.execute("SELECT id, seq FROM sessions"))
        return [row for row in sessions if sequences.get(row.id, 0) != row.head.seq]

    def record(self, session_id: str, seq: int, log: Sequence[Event]) -> None:
        """Store the uses and credits of one session, replacing its earlier entries."""
        events = [event for event in log if event.session_id == session_id]
        uses = [use for event in events if (use := _use(event)) is not None]
        with closing(self._open()) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("DELETE FROM uses WHERE session = ?", (session_id,))
            uses.sort()
            for (kind, id_), group in groupby(uses, key=lambda use: use[:2]):
                times = [time for _, _, time in group]
                database.execute(
                    "INSERT INTO uses VALUES (?, ?, ?, ?, ?)",
                    (kind, id_, session_id, len(times), max(times)),
                )
            database.executemany(
                "INSERT OR IGNORE INTO credits VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    _credit_row(event)
                    for event in events
                    if isinstance(event.payload, UtilityCredited)
                ],
            )
            database.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?)", (session_id, seq))
            database.execute("COMMIT")

    def values(self, kind: UtilityType) -> dict[str, Utility]:
        """The values of all credited subjects of a type, by id."""
        query = "SELECT id, reward FROM credits WHERE type = ? ORDER BY time, outcome"
        values: dict[str, Utility] = {}
        with closing(self._open()) as database:
            for id_, reward in database.execute(query, (kind,)):
                values[id_] = with_reward(values.get(id_, Utility()), reward)
        return values

    def last_uses(self, kind: UtilityType) -> dict[str, datetime]:
        query = "SELECT id, max(last) FROM uses WHERE type = ? GROUP BY id"
        with closing(self._open()) as database:
            return {id_: from_micros(last) for id_, last in database.execute(query, (kind,))}

    def rows(self) -> list[UtilityRow]:
        """All subjects that were used or credited, the most valuable first."""
        values = {
            kind: self.values(kind) for kind in ("memory", "skill", "prompt_fragment", "tool")
        }
        query = "SELECT type, id, count(*), sum(times), max(last) FROM uses GROUP BY type, id"
        with closing(self._open()) as database:
            uses = {(kind, id_): counts for kind, id_, *counts in database.execute(query)}
        subjects = {*uses, *((kind, id_) for kind, ids in values.items() for id_ in ids)}
        rows = [_row(kind, id_, values[kind], uses.get((kind, id_))) for kind, id_ in subjects]
        return sorted(rows, key=lambda row: (-row.value, -row.uses, row.type, row.id))


def _row(
    kind: str, id_: str, values: Mapping[str, Utility], uses: Sequence[int] | None
) -> UtilityRow:
    utility = values.get(id_, Utility())
    sessions, times, last = uses or (0, 0, None)
    return UtilityRow(
        type=kind,
        id=id_,
        value=round(utility.value, 3),
        credits=utility.credits,
        mean_reward=round(utility.total / utility.credits, 3) if utility.credits else START,
        sessions=sessions,
        uses=times,
        last_used=None if last is None else from_micros(last),
    )


def _use(event: Event) -> tuple[str, str, int] | None:
    time = to_micros(event.time)
    match event.payload:
        case events.MemoryRecalled(store_id=store_id, path=path):
            return "memory", f"{store_id}/{path}", time
        case events.SkillUsed(name=name):
            return "skill", name, time
        case events.AgentToolUse(name=name) | events.AgentMcpToolUse(name=name):
            return "tool", name, time
        case _:
            return None


def _credit_row(event: Event) -> tuple[str, str, str, int, float, str, str]:
    assert isinstance(event.payload, UtilityCredited)
    credit, subject = event.payload, event.payload.subject
    return (
        *(subject.type, subject.id, credit.outcome_id),
        *(to_micros(event.time), credit.reward, credit.source, event.session_id),
    )


async def update_utility(log: SessionLog, table: UtilityTable, *, newest: int | None = None) -> int:
    """Append and store the due credits of changed sessions. Returns the number of changed sessions.
    `newest` limits how many sessions are read."""
    changed = 0
    before: SessionRow | None = None
    while page := await log.sessions(before=before, limit=min(newest or _PAGE, _PAGE)):
        own = [row for row in page if log.is_own(row)]
        for row in await to_thread.run_sync(table.outdated, own):
            with suppress(SessionNotFound):  # deleted in the meantime
                await _update_session(log, table, row.id)
                changed += 1
        before = page[-1]
        if newest is not None and (newest := newest - len(page)) <= 0:
            break
    return changed


async def _update_session(log: SessionLog, table: UtilityTable, session_id: str) -> None:
    await credit_session(log, session_id)
    row = await log.session(session_id)
    log_events = await log.read(session_id, types=RELEVANT_TYPES)
    await to_thread.run_sync(table.record, session_id, row.head.seq, log_events)


async def credit_session(log: SessionLog, session_id: str) -> int:
    """Append the due credits to a session's log; a running session's own process does that
    itself."""
    if not fold_utility(await log.read(session_id, types=RELEVANT_TYPES)).due():
        return 0
    with suppress(LeaseHeld, SessionGone):
        async with hold_session(
            log, session_id
        ) as writer:  # another process may have appended them already
            due = fold_utility(await log.read(session_id, types=RELEVANT_TYPES)).due()
            await writer.append(*due)
        return len(due)
    return 0
