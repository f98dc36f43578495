"""A backup holds a store at one moment; what comes out of it is the same, or nothing does."""

import gzip
import io
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from tests.log.sample_sessions import asks, meddle, tell, texts, told
from tests.senders import TESTER

from mainspring.core.errors import InvalidInput
from mainspring.log import container, transfer
from mainspring.log.backup import Counts, restore_backup, write_backup
from mainspring.log.blobs import digest_of
from mainspring.log.postgres import open_postgres
from mainspring.log.records import Put, RecordRow, Replace
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import Store
from mainspring.log.verify import verify

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
BIG = bytes(range(256)) * 10_000
"""More than goes on one line."""


def ignore_progress(_: Counts) -> None:
    pass


def record(id_: str, **fields: object) -> RecordRow:
    plain = RecordRow(tenant="t", kind="file", id=id_, created=1, updated=2, body=b'{"a": 1}')
    return replace(plain, **fields)


async def fill_store(store: Store) -> str:
    """A session, a fork of a fork of it, blobs, client events, records, counters."""
    log = SessionLog(store)
    root = await told(log, "one", "two")
    await store.put_blob(root, digest_of(b"blob"), b"blob")
    middle = await log.fork(root, at=2)
    await tell(log, middle.id, "three")
    leaf = await log.fork(middle.id)
    await log.submit(leaf.id, asks("waiting"), client_id="c1", sender=TESTER)
    await log.submit(root, asks("folded"), client_id="c2", sender=TESTER)
    writer = await log.hold(root, owner="worker")
    await writer.fold_inbox()
    await writer.release()
    [first] = await store.records.write(Put(row=record("a", name="n", due=5), content=BIG))
    await store.records.write(Replace(row=first))
    await store.records.write(
        Put(row=record("b", body=b"\xff\n", parent="p", label="l", is_archived=True)),
        Put(row=record("c", name="größe"), content=b""),
    )
    await store.records.tally([("spent", 7), ("debt", -3)])
    return leaf.id


async def dump(store: Store) -> object:
    """All that can be asked of it, as it does not depend on the kind of store."""
    log = SessionLog(store)
    sessions = await log.sessions()
    exported = [[line async for line in transfer.export_lines(log, s.id)] for s in sessions]
    records = store.records
    kept = [await records.whole(item.kind, item.id) for item in await records.everything()]
    waiting = {item.id: await store.pending(item.id) for item in sessions}
    return exported, kept, await records.tallies(), waiting


async def back_up(store: Store) -> bytes:
    file = io.BytesIO()
    await write_backup(store, file, time=NOON, report_progress=ignore_progress)
    return file.getvalue()


async def restore_archive(store: Store, archive: bytes) -> Counts:
    return await restore_backup(store, io.BytesIO(archive), report_progress=ignore_progress)


@asynccontextmanager
async def two_files(folder: Path) -> AsyncGenerator[tuple[Store, Store]]:
    async with open_sqlite(folder / "here.db") as here, open_sqlite(folder / "there.db") as there:
        yield here, there


async def test_a_backup_moves_between_sqlite_and_postgres_unchanged(
    tmp_path: Path, postgres_url: str
):
    async with two_files(tmp_path) as (here, there), open_postgres(postgres_url) as server:
        leaf = await fill_store(here)
        archive = await back_up(here)
        assert await restore_archive(server, archive) == Counts(sessions=3, records=3, tallies=2)
        assert await dump(server) == await dump(here)
        from_server = await back_up(server)
        assert from_server == archive
        await restore_archive(there, from_server)
        assert await dump(there) == await dump(here)
        assert (await verify(SessionLog(there), leaf)).ok
        assert (await there.records.get("file", "a")).rev == 2


async def test_a_backup_is_a_snapshot_while_others_write(tmp_path: Path):
    async with two_files(tmp_path) as (here, there):
        leaf = await fill_store(here)
        before = await dump(here)
        file = io.BytesIO()
        changes: list[object] = []

        async def meanwhile() -> None:
            log = SessionLog(here)
            first = await here.records.get("file", "a")
            renamed = Replace(row=replace(first, name="another"))
            await here.records.write(renamed, Put(row=record("z", name="n")))
            await tell(log, leaf, "later")
            await told(log, "a new session")
            changes.append(await here.records.tally([("spent", 100)]))

        def once(_: Counts) -> None:
            if not changes:
                changes.append("begun")
                group.start_soon(meanwhile)

        async with anyio.create_task_group() as group:
            await write_backup(here, file, time=NOON, report_progress=once)
        assert len(changes) == 2
        await restore_archive(there, file.getvalue())
        assert await dump(there) == before
        assert await dump(here) != before


async def test_a_running_session_is_runnable_after_a_restore(tmp_path: Path, postgres_url: str):
    async with open_sqlite(tmp_path / "old.db") as old:
        log = SessionLog(old)
        at_rest, at_work = await told(log, "one"), await told(log, "two")
        await log.hold(at_work, owner="worker")
        archive = await back_up(old)
    for opened in (open_sqlite(tmp_path / "new.db"), open_postgres(postgres_url)):
        async with opened as new:
            await restore_archive(new, archive)
            assert await new.runnable() == [at_work]
            assert {session.id for session in await new.sessions()} == {at_rest, at_work}


async def test_only_an_empty_store_can_be_restored_into(tmp_path: Path):
    async with two_files(tmp_path) as (here, there):
        await fill_store(here)
        archive = await back_up(here)
        with pytest.raises(InvalidInput, match="not empty"):
            await restore_archive(here, archive)
        await there.records.tally([("x", 1)])
        with pytest.raises(InvalidInput, match="not empty"):
            await restore_archive(there, archive)


async def test_an_empty_store_can_be_backed_up(tmp_path: Path):
    async with two_files(tmp_path) as (here, there):
        assert await restore_archive(there, await back_up(here)) == Counts()


def edit_lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    def edit(archive: bytes) -> bytes:
        return gzip.compress(b"".join(change(gzip.decompress(archive).splitlines(keepends=True))))

    return edit


def flip_byte(archive: bytes) -> bytes:
    middle = len(archive) // 2
    return archive[:middle] + bytes([archive[middle] ^ 1]) + archive[middle + 1 :]


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "no archive": lambda _: b"Dear diary",
    "another archive": lambda _: gzip.compress(b"Dear diary\n"),
    "cut short": lambda archive: archive[: len(archive) * 2 // 3],
    "cut at the very end": lambda archive: archive[:-1],
    "a bit flipped": flip_byte,
    "no beginning": edit_lines(lambda lines: lines[1:]),
    "two beginnings": edit_lines(lambda lines: [lines[0], *lines]),
    "no seal": edit_lines(lambda lines: lines[:-1]),
    "more after the seal": edit_lines(lambda lines: [*lines, lines[-2]]),
    "a line less": edit_lines(lambda lines: [*lines[:2], *lines[3:]]),
    "a record less": edit_lines(lambda lines: [line for line in lines if b'"id":"b"' not in line]),
    "a counter changed": edit_lines(lambda lines: [line.replace(b":7}", b":8}") for line in lines]),
    "an event changed": edit_lines(
        lambda lines: [line.replace(b'"one"', b'"1"') for line in lines]
    ),
    "content without a record": edit_lines(
        lambda lines: [line for line in lines if b'"id":"a"' not in line]
    ),
    "less content": edit_lines(
        lambda lines: [each for n, each in enumerate(lines) if b'"content"' not in lines[n - 1]]
    ),
    "a record twice": edit_lines(
        lambda lines: [line for item in lines for line in [item] * (1 + (b'"id":"b"' in item))]
    ),
    "a newer format": edit_lines(lambda lines: [lines[0].replace(b":1,", b":9,"), *lines[1:]]),
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
async def test_nothing_is_restored_from_an_invalid_archive(
    tmp_path: Path, damage: Callable[[bytes], bytes]
):
    async with two_files(tmp_path) as (here, there):
        await fill_store(here)
        archive = await back_up(here)
        bad = damage(archive)
        assert bad != archive
        with pytest.raises(InvalidInput):
            await restore_archive(there, bad)
        assert await dump(there) == ([], [], [], {})
        await restore_archive(there, archive)


async def test_nothing_is_restored_into_postgres_from_an_invalid_archive(
    tmp_path: Path, postgres_url: str
):
    async with open_sqlite(tmp_path / "here.db") as here, open_postgres(postgres_url) as there:
        await fill_store(here)
        bad = BROKEN["a counter changed"](await back_up(here))
        with pytest.raises(InvalidInput, match="hash differs"):
            await restore_archive(there, bad)
        assert await dump(there) == ([], [], [], {})


async def test_a_damaged_session_and_its_forks_are_skipped_and_named(tmp_path: Path):
    async with two_files(tmp_path) as (here, there):
        log = SessionLog(here)
        sound = await told(log, "sound")
        spoiled = await told(log, "spoiled", "more")
        fork = await log.fork(spoiled, at=1)
        meddle(tmp_path / "here.db", "update event set body = replace(body, 'spoiled', 'fine')")
        file = io.BytesIO()
        counts = await write_backup(here, file, time=NOON, report_progress=ignore_progress)
        assert (counts.sessions, counts.damaged) == (1, [spoiled, fork.id])
        await restore_archive(there, file.getvalue())
        assert [session.id for session in await there.sessions()] == [sound]


async def test_a_client_event_folded_during_an_export_is_not_lost(tmp_path: Path):
    async with two_files(tmp_path) as (here, there):
        log = SessionLog(here)
        session_id = await told(log, "one")
        await here.put_blob(session_id, digest_of(b"blob"), b"blob")
        await log.submit(session_id, asks("two"), client_id="c1", sender=TESTER)
        lines = transfer.export_lines(log, session_id)
        exported = [await anext(lines) for _ in range(4)]
        assert b"blob" in exported[-1]  # all events are out
        writer = await log.hold(session_id, owner="worker")
        await writer.fold_inbox()
        exported += [line async for line in lines]

        async def each() -> AsyncGenerator[bytes]:
            for line in exported:
                yield line

        await container.import_lines(SessionLog(there), each())
        assert texts(await SessionLog(there).read(session_id)) == ["one"]
        [item] = await there.pending(session_id)
        assert item.client_id == "c1"
