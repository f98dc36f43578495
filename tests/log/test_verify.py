"""Whatever is changed in the file behind the log's back, `verify` finds and names."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from tests.log.sample_sessions import meddle, opened, tell, told

from mainspring.core.content import BlobBlock
from mainspring.core.envelope import GENESIS, Event, UnknownPayload
from mainspring.core.events import AgentMessage
from mainspring.log.verify import Problem, verify

SWAP = (
    "update event set seq = -1 where seq = 3",
    "update event set seq = 3 where seq = 4",
    "update event set seq = 4 where seq = -1",
)
BROKEN_LINK = "does not match the hash of the event before it: one of them was changed"
NOT_LAST = "the last event is not the one that the session recorded as its last"

TAMPERED = {
    "a letter of a body": (
        ("update event set body = replace(body, 'two', 'twO') where seq = 3",),
        [(4, BROKEN_LINK)],
    ),
    "a letter of the last body": (
        ("update event set body = replace(body, 'five', 'fivE') where seq = 6",),
        [(6, NOT_LAST)],
    ),
    "a body that is no JSON any more": (
        ("update event set body = replace(body, '{', '[') where seq = 3",),
        [(3, "cannot be read: not an event")],
    ),
    "a body that is no text any more": (
        ("update event set body = cast(x'7bff7d' as text) where seq = 3",),
        [(3, "cannot be read")],
    ),
    "a moment": (("update event set time = time + 1 where seq = 3",), [(4, BROKEN_LINK)]),
    "a moment outside of all time": (
        ("update event set time = 9000000000000000000 where seq = 3",),
        [(3, "cannot be read: event 3: 9000000000000000000 is not a valid time")],
    ),
    "an id": (("update event set id = 'sevt_1' where seq = 3",), [(4, BROKEN_LINK)]),
    "a thread": (("update event set thread_id = 'x' where seq = 3",), [(4, BROKEN_LINK)]),
    "a sender where there was none": (
        ("""update event set sender = '{"kind":"person","id":"me"}' where seq = 3""",),
        [(4, BROKEN_LINK)],
    ),
    "a sender that is none": (
        ("update event set sender = 'me' where seq = 3",),
        [(3, "cannot be read: not a sender")],
    ),
    "a version": (("update event set version = 2 where seq = 3",), [(4, BROKEN_LINK)]),
    "a type": (
        ("update event set type = 'user.message' where seq = 3",),
        [(3, "is stored as user.message but is agent.message")],
    ),
    "a link": (
        ("update event set prev = zeroblob(32) where seq = 3",),
        [(3, BROKEN_LINK), (4, BROKEN_LINK)],
    ),
    "two rows swapped": (SWAP, [(3, BROKEN_LINK), (4, BROKEN_LINK), (5, BROKEN_LINK)]),
    "a row removed in the middle": (
        ("delete from event where seq = 3",),
        [(4, "events 3 to 3 are missing")],
    ),
    "the first row removed": (
        ("delete from event where seq = 1",),
        [(2, "events 1 to 1 are missing")],
    ),
    "the tail removed": (
        ("delete from event where seq > 4",),
        [(4, "the log ends here, but the session's head is 6")],
    ),
    "every row removed": (
        ("delete from event",),
        [(0, "the log ends here, but the session's head is 6")],
    ),
    "the tail removed and the head with it": (
        ("delete from event where seq > 4", "update session set seq = 4"),
        [(4, NOT_LAST)],
    ),
    "the head's number": (
        ("update session set seq = 5",),
        [(6, "the log ends here, but the session's head is 5")],
    ),
    "the session's thread": (("update session set thread_id = 'x'",), [(1, "begins thread sthr_")]),
    "the session's age": (
        ("update session set created = created - 1",),
        [(1, "its time differs from the session's creation time")],
    ),
    "the head's hash": (("update session set hash = zeroblob(32)",), [(6, NOT_LAST)]),
}


def agree(problems: tuple[Problem, ...], expected: list[tuple[int, str]]) -> bool:
    return len(problems) == len(expected) and all(
        problem.seq == seq and problem.what.startswith(what)
        for problem, (seq, what) in zip(problems, expected, strict=True)
    )


async def test_an_unchanged_log_verifies(tmp_path: Path):
    async with opened(tmp_path / "log.db") as log:
        session_id = await told(log, "one", "two")
        report = await verify(log, session_id)
        head = (await log.session(session_id)).head
    assert (report.ok, report.events, report.problems) == (True, 3, ())
    assert report.head == head.hash.hex()


@pytest.mark.parametrize(("statements", "expected"), TAMPERED.values(), ids=TAMPERED)
async def test_a_change_is_detected_and_named_with_its_seq(
    tmp_path: Path, statements: tuple[str, ...], expected: list[tuple[int, str]]
):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        session_id = await told(log, "one", "two", "three", "four", "five")
    meddle(path, *statements)
    async with opened(path) as log:
        report = await verify(log, session_id)
    assert agree(report.problems, expected), report.problems


def test_no_field_can_be_moved_into_another_without_changing_the_hash():
    events = [
        Event(
            id=event_id,
            session_id=session_id,
            seq=2,
            thread_id=thread_id,
            time=datetime(2026, 1, 2, tzinfo=UTC),
            payload=UnknownPayload(type="x"),
            body=b'{"type":"x"}',
            version=1,
            prev=GENESIS,
        )
        for session_id, event_id, thread_id in [
            ("a", "b", "c"),
            ("a", "b|c", ""),
            ("a|2|b", "c", ""),
            ("a", "b", 'c",1'),
            ("a", 'b","c', ""),
        ]
    ]
    assert len({event.digest() for event in events}) == len(events)
    moved = [
        msgspec.structs.replace(events[0], id="b|2", thread_id="c"),
        msgspec.structs.replace(events[0], id="b", thread_id="2|c"),
    ]
    assert moved[0].digest() != moved[1].digest()


async def test_any_flipped_byte_of_any_body_is_detected(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        session_id = await told(log, "héllo")
    with closing(sqlite3.connect(path)) as raw, raw:
        [(body,)] = raw.execute("select cast(body as blob) from event where seq = 2").fetchall()
    silent: list[int] = []
    for at in range(len(body)):
        flipped = bytes([*body[:at], body[at] ^ 0x81, *body[at + 1 :]])
        put = "update event set body = cast(? as text) where seq = 2"
        meddle(path, (put, (flipped,)))
        async with opened(path) as log:
            report = await verify(log, session_id)
        if not any(problem.seq == 2 for problem in report.problems):
            silent.append(at)
    assert silent == []


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("update event set body = replace(body, 'one', 'won') where seq = 2", 3),
        ("update event set body = replace(body, 'two', 'too') where seq = 3", 4),
        ("delete from event where seq = 3", 4),
        ("update session set parent_seq = 2 where parent_seq > 0", 4),
        ("update session set parent_key = 99 where parent_seq > 0", 4),
    ],
)
async def test_a_changed_parent_is_detected_from_the_fork(tmp_path: Path, statement: str, seq: int):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        parent = await told(log, "one", "two", "three")
        fork = await log.fork(parent, at=3)
        await tell(log, fork.id, "mine")
    meddle(path, statement)
    async with opened(path) as log:
        report = await verify(log, fork.id)
    assert [problem.seq for problem in report.problems] == [seq], report.problems


async def test_changes_in_a_parent_after_the_fork_do_not_affect_the_fork(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        parent = await told(log, "one", "two", "three")
        fork = await log.fork(parent, at=3)
    meddle(path, "update event set body = replace(body, 'three', 'tree') where seq = 4")
    async with opened(path) as log:
        assert (await verify(log, fork.id)).ok
        assert not (await verify(log, parent)).ok


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (("update blob set content = x'00'",), "was changed"),
        (("delete from blob",), "is missing"),
        (("delete from blob", "delete from blob_use"), "is missing"),
    ],
)
async def test_a_changed_or_lost_blob_is_named_with_its_event(
    tmp_path: Path, statements: tuple[str, ...], what: str
):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        session_id = await told(log, "one")
        kept = await log.put_blob(session_id, b"x" * 100_000, media_type="text/plain")
        writer = await log.hold(session_id, owner="teller")
        block = BlobBlock(preview="x", hash=kept.hash, size=kept.size)
        await writer.append(AgentMessage(content=(block,)))
        await writer.release()
        await tell(log, session_id, "after it")
        assert (await verify(log, session_id)).ok
    meddle(path, *statements)
    async with opened(path) as log:
        report = await verify(log, session_id)
    assert report.problems == (Problem(seq=3, what=f"blob {kept.hash} {what}"),)
