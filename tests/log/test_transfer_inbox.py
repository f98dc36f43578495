"""What clients have sent moves with its session: none of it is lost or folded twice."""

from pathlib import Path

import pytest
from tests.log.sample_sessions import asks, opened, texts
from tests.log.test_transfer import export_session, iterate
from tests.senders import TESTER

from mainspring.core.errors import InvalidInput
from mainspring.log.container import import_lines
from mainspring.log.session_log import SessionLog
from mainspring.log.verify import verify


async def fold(log: SessionLog, session_id: str) -> None:
    writer = await log.hold(session_id, owner="teller")
    await writer.fold_inbox()
    await writer.release()


async def test_inbox_messages_are_transferred_and_folded_once(here: SessionLog, there: SessionLog):
    session_id = (await here.create()).id
    await here.submit(session_id, asks("one"), client_id="c1", sender=TESTER)
    await here.submit(session_id, asks("nobody asks again"), sender=TESTER)
    await fold(here, session_id)
    await here.submit(session_id, asks("two"), client_id="c2", sender=TESTER)
    await here.submit(session_id, asks("three"), sender=TESTER)
    lines = await export_session(here, session_id)
    await import_lines(there, iterate(lines))
    assert await export_session(there, session_id) == lines
    for text, client_id in (("one", "c1"), ("two", "c2")):
        kept = await there.submit(session_id, asks(text), client_id=client_id, sender=TESTER)
        ours = await here.submit(session_id, asks(text), client_id=client_id, sender=TESTER)
        assert (kept.event_id, kept.seq) == (ours.event_id, ours.seq)
    with pytest.raises(InvalidInput):
        await there.submit(session_id, asks("another"), client_id="c1", sender=TESTER)
    await fold(there, session_id)
    said = ["one", "nobody asks again", "two", "three"]
    assert texts(await there.read(session_id)) == said


async def test_messages_already_folded_are_not_folded_again(
    tmp_path: Path, here: SessionLog, there: SessionLog
):
    session_id = (await here.create()).id
    await here.submit(session_id, asks("one"), client_id="c1", sender=TESTER)
    await here.submit(session_id, asks("two"), sender=TESTER)
    early = await export_session(here, session_id)
    await import_lines(there, iterate(early))
    await fold(here, session_id)
    await here.submit(session_id, asks("three"), client_id="c3", sender=TESTER)
    await fold(here, session_id)
    await here.submit(session_id, asks("four"), sender=TESTER)
    late = await export_session(here, session_id)
    await import_lines(there, iterate(late))
    assert await export_session(there, session_id) == late
    await import_lines(there, iterate(early))
    async with opened(tmp_path / "c.db") as elsewhere:
        for lines in (late, early):
            await import_lines(elsewhere, iterate(lines))
        assert await export_session(elsewhere, session_id) == late
    assert (await there.submit(session_id, asks("three"), client_id="c3", sender=TESTER)).seq == 4
    await fold(there, session_id)
    assert texts(await there.read(session_id)) == ["one", "two", "three", "four"]
    assert (await verify(there, session_id)).ok


async def test_a_fork_is_exported_without_the_pending_messages_of_its_parent(
    here: SessionLog, there: SessionLog
):
    root = (await here.create()).id
    await here.submit(root, asks("early"), client_id="c1", sender=TESTER)
    await fold(here, root)
    fork = await here.fork(root)
    await here.submit(root, asks("late"), client_id="c2", sender=TESTER)
    await fold(here, root)
    await here.submit(root, asks("latest"), client_id="c3", sender=TESTER)
    await import_lines(there, iterate(await export_session(here, fork.id)))
    assert [item.client_id for item in await there.store.inbox(root)] == ["c1"]
    assert await export_session(there, fork.id) == await export_session(here, fork.id)
    await import_lines(there, iterate(await export_session(here, root)))
    assert await export_session(there, root) == await export_session(here, root)


MISLAID: dict[str, tuple[bytes, bytes, str]] = {
    "a place": (b'"seq":2', b'"seq":1', "client event sevt_.* is not event 1"),
    "no place": (b'"seq":2', b'"seq":null', "invalid version 0"),
    "a place outside": (b'"seq":2', b'"seq":9', "client event sevt_.* is not event 9"),
    "an event of ours": (b'"type":"user.message"', b'"type":"agent.message"', "clients cannot"),
    "a client": (b'"client_id":"c2"', b'"client_id":"c1"', "client event id c1 occurs twice"),
    "the count": (b'"inbox":2', b'"inbox":3', "expected 3 client events, got 2"),
}


@pytest.mark.parametrize(("old", "new", "complaint"), MISLAID.values(), ids=MISLAID)
async def test_a_changed_inbox_is_refused(
    old: bytes, new: bytes, complaint: str, here: SessionLog, there: SessionLog
):
    session_id = (await here.create()).id
    await here.submit(session_id, asks("one"), client_id="c1", sender=TESTER)
    await fold(here, session_id)
    await here.submit(session_id, asks("two"), client_id="c2", sender=TESTER)
    lines = await export_session(here, session_id)
    changed = [*lines[:3], *(line.replace(old, new) for line in lines[3:])]
    assert changed != lines
    with pytest.raises(InvalidInput, match=complaint):
        await import_lines(there, iterate(changed))
    assert await there.sessions() == []
