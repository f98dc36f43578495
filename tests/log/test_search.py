"""Search: every query is plain words, a fork sees up to its fork point, the deleted is gone."""

import sqlite3
from pathlib import Path

import anyio
import pytest
from tests.log.sample_sessions import asks, meddle, opened, says, tell, told
from tests.senders import TESTER

from mainspring.core import clock
from mainspring.core.errors import InvalidInput, SessionNotFound
from mainspring.core.events import SessionCreated
from mainspring.log.search import search
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import text_index

SAID = (
    "Grüße aus Zürich, 世界 🌍",
    'he said "never again" then left',
    "red AND green OR NOT blue NEAR(sky)",
    "column:value text* ^start -minus (paren",
    "price is 3.14€ for foo_bar.py at /etc/hosts",
    "Ελληνικά и кириллица العربية",
)
FINDS = {
    "Grüße": 0,
    "grusse": None,
    "grüsse": None,
    "GRÜẞE": 0,
    "zurich": 0,
    "世界": 0,
    '"never': 1,
    'again"': 1,
    '"never again"': 1,
    "left never": 1,
    "AND": 2,
    "NOT blue": 2,
    "NEAR(sky)": 2,
    "OR": 2,
    "column:value": 3,
    "text*": 3,
    "tex*": None,
    "^start": 3,
    "-minus": 3,
    "(paren": 3,
    "paren)": 3,
    "3.14€": 4,
    "foo_bar.py": 4,
    "/etc/hosts": 4,
    "ελληνικά": 5,
    "КИРИЛЛИЦА": 5,
    "العربية": 5,
    "red purple": None,
    "'; drop table words; --": None,
    "left\0": 1,
}


async def find_seqs(log: SessionLog, query: str, session_id: str | None = None) -> list[int]:
    return sorted(hit.seq for hit in await search(log, query, session_id=session_id))


async def test_any_query_is_treated_as_plain_words(log: SessionLog):
    await told(log, *SAID)
    for query, place in FINDS.items():
        expected = [] if place is None else [place + 2]
        assert (query, await find_seqs(log, query)) == (query, expected)


@pytest.mark.parametrize("query", ["", "   ", '"', "***", "🌍", "\0"])
async def test_a_query_without_a_word_is_refused(query: str, log: SessionLog):
    with pytest.raises(InvalidInput, match="nothing to search for"):
        await search(log, query)


async def test_text_added_after_a_search_is_found_by_the_next_search(log: SessionLog):
    session_id = await told(log, "apple")
    assert await find_seqs(log, "apple") == [2]
    await tell(log, session_id, "apple pie", "pear")
    assert await find_seqs(log, "apple") == [2, 3]
    await log.submit(session_id, asks("apple juice"), sender=TESTER)
    assert await find_seqs(log, "juice") == []  # not yet in the log
    writer = await log.hold(session_id, owner="teller")
    await writer.fold_inbox()
    assert await find_seqs(log, "juice") == [5]


async def test_the_index_catches_up_over_more_than_one_page(log: SessionLog):
    session_id = (await log.create()).id
    writer = await log.hold(session_id, owner="teller")
    await writer.append(*(says(f"common word{n}") for n in range(1200)))
    assert await find_seqs(log, "word1199", session_id) == [1201]
    assert len(await search(log, "common", limit=2000)) == 1200


async def test_a_fork_finds_inherited_text_but_not_later_text_of_its_parent(log: SessionLog):
    root = await told(log, "fruit one", "fruit two", "fruit three")
    middle = await log.fork(root, at=3)
    await tell(log, middle.id, "fruit of the middle")
    leaf = await log.fork(middle.id, at=4)
    await tell(log, leaf.id, "fruit of the leaf")
    assert await find_seqs(log, "fruit", root) == [2, 3, 4]
    assert await find_seqs(log, "fruit", middle.id) == [2, 3, 5]
    assert await find_seqs(log, "fruit", leaf.id) == [2, 3, 6]
    hits = await search(log, "fruit", session_id=leaf.id)
    assert {(hit.session_id, hit.seq) for hit in hits} == {(root, 2), (root, 3), (leaf.id, 6)}


async def test_a_search_in_one_session_finds_nothing_of_another(log: SessionLog):
    first = await told(log, "alpha", "beta")
    second = await told(log, "alpha")
    assert await find_seqs(log, "alpha", first) == [2]
    assert {hit.session_id for hit in await search(log, "alpha")} == {first, second}


async def test_a_damaged_event_does_not_hide_the_others(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        await told(log, "alpha one", "alpha two")
    meddle(path, "update event set body = '{' where seq = 2")
    async with opened(path) as log:
        assert await find_seqs(log, "alpha") == [3]


async def test_a_deleted_session_is_not_found(log: SessionLog):
    kept = await told(log, "alpha kept")
    gone = await told(log, "alpha gone")
    assert len(await search(log, "alpha")) == 2
    await log.delete(gone)
    assert [hit.session_id for hit in await search(log, "alpha")] == [kept]
    with pytest.raises(SessionNotFound):
        await search(log, "alpha", session_id=gone)


async def test_searching_during_deletions_finds_the_remaining_sessions(log: SessionLog):
    kept = await told(log, "alpha kept")

    async def come_and_go() -> None:
        for _ in range(20):
            await log.delete(await told(log, "alpha gone"))

    async def look() -> None:
        for _ in range(40):
            hits = await search(log, "alpha")
            assert kept in {hit.session_id for hit in hits}

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(come_and_go)
            group.start_soon(look)


async def test_no_byte_of_a_deleted_session_is_left_in_the_files(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        await told(log, "harmless")
        session = await log.create(SessionCreated(title="zebratitle"))
        await tell(log, session.id, "quaggatext is what I said", "quaggatext " * 3000)
        await log.submit(session.id, asks("okapiwaiting"), client_id="tapirclient", sender=TESTER)
        await log.put_blob(session.id, b"numbatblob " * 20_000, media_type="text/plain")
        await log.fork(session.id, title="bongofork")
        assert len(await search(log, "quaggatext")) == 2
        secrets = (b"zebratitle", b"quaggatext", b"okapiwaiting", b"tapirclient", b"numbatblob")
        assert [word for word in secrets if word not in read_all_files(tmp_path)] == []
        await log.delete(session.id, cascade=True)
        left = read_all_files(tmp_path)
        assert [word for word in (*secrets, b"bongofork") if word in left] == []
        assert await find_seqs(log, "harmless") == [2]
    assert [word for word in secrets if word in read_all_files(tmp_path)] == []


async def test_no_byte_of_an_expired_session_is_left_in_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rewritten: list[None] = []
    forget = text_index.purge_deleted

    def counted(db: sqlite3.Connection) -> None:
        rewritten.append(None)
        forget(db)

    monkeypatch.setattr(text_index, "purge_deleted", counted)
    async with opened(tmp_path / "log.db") as log:
        for _ in range(5):
            await told(log, "quaggatext is what I said")
        assert len(await search(log, "quaggatext")) == 5
        assert len(await log.expire(updated_before=clock.now())) == 5
        assert b"quaggatext" not in read_all_files(tmp_path)
        assert await log.expire(updated_before=clock.now()) == []
    assert len(rewritten) == 1


def read_all_files(folder: Path) -> bytes:
    """The database, its write-ahead log and whatever else lies there."""
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))
