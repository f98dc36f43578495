"""Secrets are taken out on every way into the log; a scrubber that breaks an event is refused."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.log.sample_sessions import asks, opened, says, texts
from tests.senders import TESTER

from mainspring.core.errors import MalformedEvent
from mainspring.core.events import AgentMessage, AgentToolUse, SessionCreated
from mainspring.log.blobs import digest_of
from mainspring.log.event_chain import Scrub
from mainspring.log.session_log import SessionLog
from mainspring.log.verify import verify

SECRET = b"sk-verysecret"


def redact(content: bytes) -> bytes:
    return content.replace(SECRET, b"[redacted]")


async def create(log: SessionLog) -> None:
    await log.create(SessionCreated(title="sk-verysecret", metadata={"key": "sk-verysecret"}))


async def fork(log: SessionLog) -> None:
    await log.fork((await log.sessions())[0].id, title="sk-verysecret")


async def append(log: SessionLog) -> None:
    writer = await log.hold((await log.sessions())[0].id, owner="teller")
    [said, used] = await writer.append(
        says("it is sk-verysecret"), AgentToolUse(name="bash", input={"sk-verysecret": 1})
    )
    assert texts([said]) == ["it is [redacted]"]  # also in what the caller goes on with
    assert isinstance(used.payload, AgentToolUse)
    assert used.payload.input == {"[redacted]": 1}


async def submit(log: SessionLog) -> None:
    session_id = (await log.sessions())[0].id
    item = await log.submit(session_id, asks("my key is sk-verysecret"), sender=TESTER)
    assert "[redacted]" in item.body
    writer = await log.hold(session_id, owner="teller")
    assert texts(await writer.fold_inbox()) == ["my key is [redacted]"]


async def put_blob(log: SessionLog) -> None:
    session_id = (await log.sessions())[0].id
    kept = await log.put_blob(session_id, b"a sk-verysecret b", media_type="text/plain")
    assert await log.blob(kept.hash) == b"a [redacted] b"
    assert (kept.hash, kept.size) == (digest_of(b"a [redacted] b"), 14)


Way: TypeAlias = Callable[[SessionLog], Awaitable[None]]


@pytest.mark.parametrize("way", [create, fork, append, submit, put_blob])
async def test_a_secret_does_not_reach_the_disk(tmp_path: Path, way: Way):
    async with opened(tmp_path / "log.db", scrub=redact) as log:
        await log.create()
        await way(log)
        for session in await log.sessions():
            assert (await verify(log, session.id)).ok
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"[redacted]" in written
    assert SECRET not in written


async def test_a_repeated_submit_of_a_scrubbed_event_is_idempotent(tmp_path: Path):
    async with opened(tmp_path / "log.db", scrub=redact) as log:
        session = await log.create()
        first = await log.submit(session.id, asks("sk-verysecret"), client_id="c1", sender=TESTER)
        assert (
            await log.submit(session.id, asks("sk-verysecret"), client_id="c1", sender=TESTER)
            == first
        )


BREAKERS: dict[str, Scrub] = {
    "cuts the JSON": lambda body: body[:-2] if b"break me" in body else body,
    "leaves nothing": lambda body: b"" if b"break me" in body else body,
    "drops a field": lambda body: (
        body.replace(b'"content"', b'"kontent"') if b"break me" in body else body
    ),
    "changes the type": lambda body: b'{"type":"session.deleted"}' if b"break me" in body else body,
    "makes up a type": lambda body: b'{"type":"new.type"}' if b"break me" in body else body,
    "leaves no text": lambda body: body.replace(b"break me", b"\xff\xfe"),
}


@pytest.mark.parametrize("scrub", BREAKERS.values(), ids=BREAKERS)
async def test_a_scrubber_that_breaks_an_event_writes_nothing(tmp_path: Path, scrub: Scrub):
    path = tmp_path / "log.db"
    async with opened(path, scrub=scrub) as log:
        session_id = (await log.create()).id
        writer = await log.hold(session_id, owner="teller")
        before = counts(path)
        with pytest.raises(MalformedEvent):
            await writer.append(says("fine"), says("break me"))
        with pytest.raises(MalformedEvent):
            await log.submit(session_id, asks("break me"), sender=TESTER)
        assert counts(path) == before
        await writer.append(AgentMessage(content=()))  # and the writer is none the worse
        assert (await verify(log, session_id)).ok


@pytest.mark.parametrize("name", ["cuts the JSON", "changes the type"])
async def test_a_session_whose_first_event_the_scrubber_breaks_is_not_created(
    tmp_path: Path, name: str
):
    path = tmp_path / "log.db"
    async with opened(path, scrub=BREAKERS[name]) as log:
        before = counts(path)
        with pytest.raises(MalformedEvent):
            await log.create(SessionCreated(title="break me"))
        assert counts(path) == before
        assert await log.sessions() == []


def counts(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as raw:
        tables = ("session", "event", "inbox", "blob")
        return [raw.execute(f"select count(*) from {table}").fetchone()[0] for table in tables]
