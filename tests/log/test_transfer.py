"""Export and import: the very same session elsewhere, or a complaint that names the line."""

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.sample_sessions import asks, opened, says, tell, texts, told
from tests.property_examples import examples
from tests.senders import TESTER

from mainspring.core.content import BlobBlock
from mainspring.core.errors import InvalidInput, LeaseHeld
from mainspring.core.events import AgentMessage
from mainspring.log.container import import_lines
from mainspring.log.postgres import open_postgres
from mainspring.log.session_log import SessionLog
from mainspring.log.transfer import export_lines
from mainspring.log.verify import verify

Lines: TypeAlias = list[bytes]


JOURNEY = (
    ("say", 'Grüße, 世界 🌍\n\t"quoted" \u0000 </script>'),
    ("keep", b"\x00\xff" * 50_000),
    ("ask", "what now?"),
    ("fork", 3),
    ("say", "another way"),
    ("fork", 4),
    ("keep", b""),
    ("leave", "are you there?"),
)


async def export_session(log: SessionLog, session_id: str) -> Lines:
    return [line async for line in export_lines(log, session_id)]


async def iterate(lines: Sequence[bytes]) -> AsyncGenerator[bytes]:
    for line in lines:
        yield line


async def with_blob(log: SessionLog, session_id: str, content: bytes) -> None:
    kept = await log.put_blob(session_id, content, media_type="text/plain")
    writer = await log.hold(session_id, owner="teller")
    block = BlobBlock(preview="...", hash=kept.hash, size=kept.size)
    await writer.append(AgentMessage(content=(block,)))
    await writer.release()


async def test_an_imported_session_is_exported_as_the_same_bytes(
    here: SessionLog, there: SessionLog
):
    session_id = await told(here, "one", "Grüße, 世界 🌍 \u0000 </script>")
    await with_blob(here, session_id, b"\x00\xff" * 50_000)
    lines = await export_session(here, session_id)
    assert await import_lines(there, iterate(lines)) == [session_id]
    assert await export_session(there, session_id) == lines
    assert (await verify(there, session_id)).ok


async def test_a_session_moves_to_postgres_and_back_unchanged(
    tmp_path: Path, postgres_url: str, here: SessionLog
):
    async with open_postgres(postgres_url) as store:
        there = SessionLog(store)
        session_id = await play_steps(here, JOURNEY)
        lines = await export_session(here, session_id)
        await import_lines(there, iterate(lines))
        assert await export_session(there, session_id) == lines
        assert (await verify(there, session_id)).ok
        async with opened(tmp_path / "b.db") as home:
            await import_lines(home, iterate(await export_session(there, session_id)))
            assert await export_session(home, session_id) == lines


async def test_a_fork_of_a_fork_is_exported_with_its_ancestors(here: SessionLog, there: SessionLog):
    root = await told(here, "one", "two", "three")
    middle = await here.fork(root, at=3)
    await tell(here, middle.id, "four")
    leaf = await here.fork(middle.id)
    await tell(here, leaf.id, "five")
    lines = await export_session(here, leaf.id)
    assert await import_lines(there, iterate(lines)) == [root, middle.id, leaf.id]
    assert await export_session(there, leaf.id) == lines
    await tell(there, leaf.id, "six")
    assert texts(await there.read(leaf.id)) == ["one", "two", "four", "five", "six"]
    assert (await verify(there, leaf.id)).ok


async def test_a_partly_imported_ancestor_can_be_completed_later(
    here: SessionLog, there: SessionLog
):
    root = await told(here, "one", "two", "three")
    fork = await here.fork(root, at=2)
    await import_lines(there, iterate(await export_session(here, fork.id)))
    assert texts(await there.read(root)) == ["one"]
    assert await import_lines(there, iterate(await export_session(here, root))) == []
    assert texts(await there.read(root)) == ["one", "two", "three"]
    assert await import_lines(there, iterate(await export_session(here, fork.id))) == []
    assert texts(await there.read(root)) == ["one", "two", "three"]
    assert await export_session(there, root) == await export_session(here, root)


async def test_importing_twice_changes_nothing(here: SessionLog, there: SessionLog):
    session_id = await told(here, "one", "two")
    await with_blob(here, session_id, b"large")
    lines = await export_session(here, session_id)
    await import_lines(there, iterate(lines))
    first = await there.session(session_id)
    assert await import_lines(there, iterate(lines)) == []
    assert await there.session(session_id) == first
    assert await export_session(there, session_id) == lines


async def test_a_longer_export_extends_an_earlier_import(here: SessionLog, there: SessionLog):
    session_id = await told(here, "one")
    await import_lines(there, iterate(await export_session(here, session_id)))
    await tell(here, session_id, "two")
    lines = await export_session(here, session_id)
    assert await import_lines(there, iterate(lines)) == []
    assert await export_session(there, session_id) == lines
    assert (await there.session(session_id)).owner is None


async def test_a_held_session_is_not_extended(here: SessionLog, there: SessionLog):
    session_id = await told(here, "one")
    await import_lines(there, iterate(await export_session(here, session_id)))
    await tell(here, session_id, "two")
    await there.hold(session_id, owner="worker")
    with pytest.raises(LeaseHeld):
        await import_lines(there, iterate(await export_session(here, session_id)))


async def test_a_session_that_diverged_here_is_refused(here: SessionLog, there: SessionLog):
    session_id = await told(here, "one")
    await import_lines(there, iterate(await export_session(here, session_id)))
    await tell(here, session_id, "two")
    await tell(there, session_id, "TWO")
    mine = await export_session(there, session_id)
    with pytest.raises(InvalidInput, match=r"^line 5: .* already exists and differs"):
        await import_lines(there, iterate(await export_session(here, session_id)))
    assert await export_session(there, session_id) == mine


# Line 1 is the header, 2 to 6 are events, 7 and 8 blobs, 9 the end.

Breakage: TypeAlias = Callable[[Lines], Lines]


def remove_lines(*numbers: int) -> Breakage:
    return lambda lines: [line for at, line in enumerate(lines, 1) if at not in numbers]


def keep_lines(number: int) -> Breakage:
    return lambda lines: lines[:number]


def swap_lines(a: int, b: int) -> Breakage:
    def swap(lines: Lines) -> Lines:
        lines = list(lines)
        lines[a - 1], lines[b - 1] = lines[b - 1], lines[a - 1]
        return lines

    return swap


def edit_line(number: int, old: bytes, new: bytes) -> Breakage:
    def edit(lines: Lines) -> Lines:
        assert old in lines[number - 1]
        return [s.replace(old, new) if at == number else s for at, s in enumerate(lines, 1)]

    return edit


def replace_line(number: int, line: bytes) -> Breakage:
    return lambda lines: [line if at == number else kept for at, kept in enumerate(lines, 1)]


BROKEN: dict[str, tuple[Breakage, str]] = {
    "empty": (keep_lines(0), "the file is empty"),
    "blank": (lambda _: [b"", b"  "], "the file is empty"),
    "cut after the header": (keep_lines(1), "line 1: the file ends in the middle"),
    "cut after an event": (keep_lines(3), "line 3: the file ends in the middle"),
    "cut before the end": (keep_lines(8), "line 8: the file ends in the middle"),
    "cut within a line": (lambda lines: [*lines[:3], lines[3][:-9]], "line 4: not a line"),
    "no header": (remove_lines(1), "line 1: this line comes before its session"),
    "no first event": (remove_lines(2), "line 2: the first event is not the beginning"),
    "no event in the middle": (remove_lines(3), "line 3: event 3 does not match the hash"),
    "no last event": (
        remove_lines(6),
        "line 8: the end of session .* does not match its last event",
    ),
    "no event at all": (remove_lines(2, 3, 4, 5, 6), "line 4: .* is not complete"),
    "no blob": (remove_lines(7), "line 8: expected 2 blobs, got 1"),
    "another thread": (
        edit_line(1, b'"thread_id":"', b'"thread_id":"x'),
        "line 2: the first event does not match the header",
    ),
    "another age": (
        edit_line(1, b'"created":"20', b'"created":"19'),
        "line 2: the first event does",
    ),
    "two headers": (lambda lines: [lines[0], *lines], "line 2: .* does not end before"),
    "an event twice": (
        lambda lines: [*lines[:3], *lines[2:]],
        "line 4: event 2 does not match the hash",
    ),
    "events swapped": (swap_lines(3, 4), "line 3: event 3 does not match the hash"),
    "end and event swapped": (swap_lines(6, 9), "line 6: .* does not match its last"),
    "a word edited": (edit_line(3, b"one", b"0ne"), "line 4: event 3 does not match the hash"),
    "the last word edited": (edit_line(6, b"...", b"..!"), "line 9: .* does not match its last"),
    "a time edited": (edit_line(3, b'"time":"20', b'"time":"21'), "line 4: event 3 does not"),
    "a time without a zone": (
        edit_line(3, b'Z","version"', b'","version"'),
        "line 3: .* no time zone",
    ),
    "no such version": (
        edit_line(3, b'"version":1', b'"version":-1'),
        "line 3: .* invalid version -1",
    ),
    "an id edited": (
        edit_line(3, b'"id":"sevt_', b'"id":"tves_'),
        "line 4: event 3 does not match the hash",
    ),
    "a prev that is no hash": (edit_line(3, b'"prev":"', b'"prev":"x'), "line 3: event 2: "),
    "a type unlearnt": (edit_line(3, b'"type":"agent', b'"typo":"agent'), "line 3: not an event"),
    "a broken shape": (edit_line(3, b'"content":[', b'"content":[1,'), "line 3: agent.message: "),
    "bytes that are no text": (edit_line(3, b"one", b"\xff"), "line 3: "),
    "a blob's content": (
        edit_line(7, b'content":"', b'content":"AAAA'),
        "line 7: .* does not match its hash",
    ),
    "a blob not base64": (edit_line(7, b'content":"', b'content":"!'), "line 7: .* is not base64"),
    "a blob's name": (edit_line(7, b"sha256:", b"sha256:0"), "line 7: .* does not match its hash"),
    "an event of another session": (
        edit_line(4, b'"session_id":"sesn_', b'"session_id":"sesn_0'),
        "line 4: event 3 belongs to another session",
    ),
    "an end of another session": (
        edit_line(9, b'"sesn_', b'"sesn_0'),
        "line 9: .* is not complete",
    ),
    "an end elsewhere": (
        edit_line(9, b'"seq":5', b'"seq":4'),
        "line 9: .* does not match its last",
    ),
    "a parent that is not here": (
        edit_line(1, b'"created"', b'"parent_id":"sesn_1","parent_seq":1,"created"'),
        "line 2: event 1 does not match the hash",
    ),
    "a parent without a place": (
        edit_line(1, b'"created"', b'"parent_id":"sesn_1","created"'),
        "line 1: .* has no valid beginning",
    ),
    "a place without a parent": (
        edit_line(1, b'"created"', b'"parent_seq":4,"created"'),
        "line 1: .* has no valid beginning",
    ),
    "not JSON": (replace_line(3, b"hello"), "line 3: not a line of an exported session"),
    "another JSON": (replace_line(3, b"[1]"), "line 3: not a line of an exported session"),
    "an unknown line": (replace_line(3, b'{"line":"party"}'), "line 3: not a line of an exported"),
    "a picture": (lambda _: [b"\x89PNG\r", b"\x1a"], "line 1: not a line of an exported session"),
}


@pytest.mark.parametrize(("broken", "complaint"), BROKEN.values(), ids=BROKEN)
async def test_an_invalid_file_is_refused_with_its_line_and_stores_nothing(
    broken: Breakage, complaint: str, here: SessionLog, there: SessionLog
):
    session_id = await told(here, "one", "two")
    await with_blob(here, session_id, b"large")
    await with_blob(here, session_id, b"larger")
    lines = await export_session(here, session_id)
    with pytest.raises(InvalidInput, match=f"^{complaint}"):
        await import_lines(there, iterate(broken(lines)))
    assert await there.sessions() == []
    assert await import_lines(there, iterate(lines)) == [session_id]


@pytest.mark.parametrize(
    ("kept", "complaint"),
    [
        (slice(5, None), "line 3: session sesn_.*: its parent, sesn_.*, does not exist here"),
        (slice(0, -1), "line 7: the file ends in the middle"),
    ],
    ids=["ancestors missing", "fork cut short"],
)
async def test_an_invalid_fork_is_refused_and_its_complete_ancestors_are_kept(
    kept: slice, complaint: str, here: SessionLog, there: SessionLog
):
    root = await told(here, "one", "two")
    fork = await here.fork(root)
    lines = await export_session(here, fork.id)
    with pytest.raises(InvalidInput, match=f"^{complaint}"):
        await import_lines(there, iterate(lines[kept]))
    assert all([(await verify(there, session.id)).ok for session in await there.sessions()])
    assert fork.id not in {session.id for session in await there.sessions()}


async def test_a_fork_of_an_ancestor_that_differs_here_is_refused(
    here: SessionLog, there: SessionLog
):
    root = await told(here, "one")
    await import_lines(there, iterate(await export_session(here, root)))
    await tell(there, root, "two, otherwise")
    await tell(here, root, "two")
    fork = await here.fork(root)
    lines = await export_session(here, fork.id)
    with pytest.raises(InvalidInput, match=r"^line 3: session sesn_.*: it does not follow from"):
        await import_lines(there, iterate(lines[5:]))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.text(max_size=40)),
        st.tuples(st.just("ask"), st.text(max_size=40)),
        st.tuples(st.just("leave"), st.text(max_size=40)),
        st.tuples(st.just("keep"), st.binary(max_size=60)),
        st.tuples(st.just("fork"), st.integers(min_value=1, max_value=12)),
    ),
    max_size=10,
)


async def play_steps(log: SessionLog, steps: Sequence[tuple[str, object]]) -> str:
    session_id = (await log.create()).id
    for step in steps:
        match step:
            case ("say", str(text)):
                await tell(log, session_id, text)
            case ("ask", str(text)):
                await log.submit(session_id, asks(text), sender=TESTER)
                writer = await log.hold(session_id, owner="teller")
                await writer.fold_inbox()
                await writer.append(says(text))
                await writer.release()
            case ("leave", str(text)):
                await log.submit(session_id, asks(text), client_id=f"client {text}", sender=TESTER)
            case ("keep", bytes(content)):
                await with_blob(log, session_id, content)
            case ("fork", int(at)):
                head = (await log.session(session_id)).head
                session_id = (await log.fork(session_id, at=min(at, head.seq))).id
            case _:
                raise AssertionError(step)
    return session_id


@settings(max_examples=examples(0.25))
@given(steps=STEPS)
async def test_any_session_is_transferred_byte_for_byte(steps: list[tuple[str, object]]):
    with TemporaryDirectory() as folder:
        place = Path(folder)
        async with opened(place / "a.db") as here, opened(place / "b.db") as there:
            session_id = await play_steps(here, steps)
            lines = await export_session(here, session_id)
            await import_lines(there, iterate(lines))
            assert await export_session(there, session_id) == lines
            assert await there.read(session_id) == await here.read(session_id)
            assert (await verify(there, session_id)).ok
