"""A text that is removed from the logs is nowhere left, and the chain of every log still holds."""

import sqlite3
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

import msgspec
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.sql import SQL, Identifier

from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.envelope import redacted_body, redacted_digest
from mainspring.core.sender import Sender
from mainspring.log.postgres import open_postgres
from mainspring.log.redaction import REDACTED, TextRemover, redact_texts
from mainspring.log.search import search
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import Store
from mainspring.log.verify import verify

ANNA = Sender(kind="person", id="cli:anna")
FACT = "The vault combination of the Lisbon office is seventeen forty two."
QUOTED = "> The vault combination of\n> the Lisbon office is **seventeen** forty two."
PART = "Somebody said: vault combination of the Lisbon office, but not which."
OTHER = "The lunch in the Lisbon office is at noon."


async def write_sessions(log: SessionLog) -> tuple[str, str, str]:
    """One that says it in several ways, a fork of it, and one that says something else."""
    row = await log.create(sender=ANNA)
    message = events.UserMessage(content=(TextBlock(FACT),))
    await log.submit(row.id, message, sender=ANNA)
    async with hold_session(log, row.id) as writer:
        await writer.fold_inbox()
        blob = await writer.put_blob(f"... {FACT} ...".encode(), media_type="text/plain")
        note: dict[str, object] = {"note": {"text": FACT, "name": "vault"}, "reason": "told"}
        await writer.append(
            events.ContextAdded(text=QUOTED, source="memory"),
            events.AgentToolUse(name="memory_write", input=note),
            events.AgentMessage(content=(TextBlock(PART),)),
            events.DreamProposed(dream_id="drm_1", proposal=blob.hash, changes=1),
        )
    fork = await log.fork(row.id, sender=ANNA)
    async with hold_session(log, fork.id) as writer:
        await writer.append(events.AgentMessage(content=(TextBlock(f"Again: {FACT}"),)))
    other = await log.create(sender=ANNA)
    async with hold_session(log, other.id) as writer:
        await writer.append(events.AgentMessage(content=(TextBlock(OTHER),)))
    return row.id, fork.id, other.id


async def check_removed(log: SessionLog) -> None:
    first, fork, other = await write_sessions(log)
    assert len(await search(log, "combination")) == 3
    untouched = (await log.session(other)).head
    report = await redact_texts(log, [FACT], reason="asked", by=ANNA)
    assert (report.sessions, report.events, report.blobs) == ((fork, first), 5, 1)
    assert (await log.session(other)).head == untouched
    for session_id in (first, fork, other):
        assert not (await verify(log, session_id)).problems
        bodies = b"".join(event.body for event in await log.read(session_id))
        assert b"combination" not in bodies
        assert b"forty" not in bodies
    assert await search(log, "combination") == []
    assert len(await search(log, "lunch")) == 1
    assert len(await search(log, "Somebody")) == 1
    (last,) = await log.tail(first, 1)
    assert isinstance(last.payload, events.EventsRedacted)
    assert (last.payload.reason, last.payload.by) == ("asked", ANNA)
    again = await redact_texts(log, [FACT], reason="asked", by=ANNA)
    assert (again.sessions, again.events) == ((), 0)
    later = await log.fork(first, at=3, sender=ANNA)
    assert not (await verify(log, later.id)).problems


async def test_a_removed_text_is_in_no_file_of_sqlite(tmp_path: Path):
    async with open_sqlite(tmp_path / "log.db") as store:
        await check_removed(SessionLog(store))
        for file in tmp_path.iterdir():
            assert b"combination" not in file.read_bytes(), file.name
    for file in tmp_path.iterdir():
        assert b"combination" not in file.read_bytes(), file.name


async def test_a_removed_text_is_in_no_table_of_postgres(postgres_url: str):
    async with open_postgres(postgres_url) as store:
        await check_removed(SessionLog(store))
    query = "select table_name from information_schema.tables where table_schema = 'mainspring'"
    with psycopg.connect(postgres_url) as database:
        for (name,) in database.execute(query).fetchall():
            rows = database.execute(
                SQL("select t::text from mainspring.{} t").format(Identifier(name))
            )
            assert "combination" not in str(rows.fetchall()), name


@asynccontextmanager
async def redacted_log(open_store: AbstractAsyncContextManager[Store]):
    async with open_store as store:
        log = SessionLog(store)
        first, *_ = await write_sessions(log)
        await redact_texts(log, [FACT], reason="asked", by=ANNA)
        yield log, first


async def test_a_redaction_forged_in_the_database_is_detected(tmp_path: Path):
    file = tmp_path / "log.db"
    async with redacted_log(open_sqlite(file)) as (log, session_id):
        (event,) = [item for item in await log.read(session_id) if item.type == "agent.tool_use"]
        body = msgspec.json.encode({"type": "agent.tool_use", "name": "x", "input": {}})
        forged = redacted_body(body, event.digest()).decode()
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("update event set body = ? where id = ?", (forged, event.id))
        report = await verify(log, session_id)
        assert [problem.seq for problem in report.problems] == [event.seq]


async def test_a_running_session_is_reported_and_not_redacted(tmp_path: Path):
    async with open_sqlite(tmp_path / "log.db") as store:
        log = SessionLog(store)
        first, fork, _ = await write_sessions(log)
        async with hold_session(log, first):
            report = await redact_texts(log, [FACT], reason="asked", by=ANNA)
        assert (report.held, report.sessions) == ((first,), (fork,))


@given(st.text(max_size=200))
def test_text_without_the_removed_words_is_unchanged(text: str):
    remover = TextRemover([FACT])
    assert remover(text) is text
    assert FACT not in remover(f"{text} {FACT} {text}")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"Well. {FACT} Yes.", f"Well. {REDACTED}. Yes."),
        (FACT.upper(), f"{REDACTED}."),
        ("The vault is open.", "The vault is open."),
        (PART, f"Somebody said: {REDACTED}, but not which."),
    ],
)
def test_runs_of_five_words_are_removed(text: str, left: str):
    assert TextRemover([FACT])(text) == left


def test_a_payload_cannot_pretend_to_be_redacted():
    forged = events.AgentToolUse(name="x", input={"$redacted": "ab" * 32})
    assert redacted_digest(msgspec.json.encode(forged)) is None
    assert redacted_digest(b"") is None
