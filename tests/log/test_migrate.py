"""A file brings itself up to date, goes back only without loss, and is refused untouched."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.log.sample_sessions import meddle, opened, tell, texts, told

from mainspring.core.errors import ForeignSession, InvalidInput, StoreMismatch
from mainspring.log.migrate import Migration, SchemaStatus
from mainspring.log.records import Put, RecordRow
from mainspring.log.sqlite import open_sqlite
from mainspring.log.sqlite.connect import migrate, prepare, schema_status
from mainspring.log.sqlite.schema import MIGRATIONS
from mainspring.runtime.adoption import adopt_everything

NEWEST = MIGRATIONS[-1].version
NOTES = Migration(
    version=NEWEST + 1,
    up=("create table note(text text)", "insert into note values ('made here')"),
    down=("drop table note",),
)
MOODS = Migration(
    version=NEWEST + 2,
    up=("alter table note add column mood text", "update note set mood = 'good'"),
    down=("alter table note drop column mood",),
)
FINAL = Migration(version=NEWEST + 3, up=("create table final(x)",), down=None)
BROKEN = Migration(
    version=NEWEST + 1,
    up=("create table half(x)", "create table session(x)"),
    down=("drop table half",),
)
NOTED = (*MIGRATIONS, NOTES)
MOODY = (*NOTED, MOODS)
FINISHED = (*MOODY, FINAL)
FIRST = MIGRATIONS[:1]
KEPT = ("session", "event", "inbox", "blob", "blob_use")
AGENT = RecordRow(tenant="t", kind="agent", id="agent_1", created=1, updated=1, body=b"{}")


def version(path: Path) -> object:
    return ask(path, "pragma user_version")[0][0]


def ask(path: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute(question).fetchall()


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as raw:
        return {name for (name,) in raw.execute("select name from sqlite_master")}


def bytes_of(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as raw:
        return "\n".join(raw.iterdump()).encode()


async def create_and_close(path: Path) -> str:
    async with opened(path) as log:
        return await told(log, "from before")


async def test_opening_a_file_migrates_it_and_keeps_its_contents(tmp_path: Path):
    path = tmp_path / "log.db"
    session_id = await create_and_close(path)
    prepare(path, NOTED).close()
    assert (version(path), ask(path, "select text from note")) == (NEWEST + 1, [("made here",)])
    prepare(path, MOODY).close()
    assert (version(path), ask(path, "select mood from note")) == (NEWEST + 2, [("good",)])
    migrate(path, NEWEST, MOODY)
    async with opened(path) as log:
        assert texts(await log.read(session_id)) == ["from before"]


def test_a_new_file_goes_through_every_migration(tmp_path: Path):
    path = tmp_path / "folder that is not there yet" / "log.db"
    prepare(path, MOODY).close()
    assert version(path) == NEWEST + 2
    assert {"session", "event", "record", "note"} <= tables(path)


def test_downgrading_reverses_the_migrations(tmp_path: Path):
    path = tmp_path / "log.db"
    prepare(path, MOODY).close()
    migrate(path, NEWEST + 1, MOODY)
    assert (version(path), ask(path, "select * from note")) == (NEWEST + 1, [("made here",)])
    migrate(path, NEWEST, MOODY)
    assert "note" not in tables(path)
    migrate(path, migrations=MOODY)
    assert version(path) == NEWEST + 2


def test_a_file_downgraded_to_nothing_can_be_migrated_again(tmp_path: Path):
    path = tmp_path / "log.db"
    prepare(path, FIRST).close()
    migrate(path, 0, FIRST)
    assert (version(path), tables(path)) == (0, {"sqlite_sequence"})
    prepare(path).close()
    assert version(path) == NEWEST


async def test_events_survive_a_migration_of_their_table_in_both_directions(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        first = await told(log, "one", "two")
        second = await told(log, "three")
    before = ask(path, "select * from event order by session_key, seq")
    migrate(path, 3)
    assert ask(path, "select * from event") == before
    async with opened(path) as log:  # opening it migrates it again
        assert version(path) == NEWEST
        assert ask(path, "select * from event order by session_key, seq") == before
        with pytest.raises(ForeignSession):  # the older tables had no MACs
            await tell(log, first, "four")
        await adopt_everything(log)
        await tell(log, first, "four")
        assert texts(await log.read(first)) == ["one", "two", "four"]
        assert texts(await log.read(second)) == ["three"]


def test_an_unknown_version_is_refused(tmp_path: Path):
    path = tmp_path / "log.db"
    prepare(path).close()
    for target in (-1, NEWEST + 1):
        with pytest.raises(InvalidInput, match=f"no version {target}"):
            migrate(path, target)
    assert schema_status(path) == SchemaStatus(NEWEST, NEWEST)


async def test_a_file_of_version_1_keeps_its_contents_and_gets_records(tmp_path: Path):
    path = tmp_path / "log.db"
    prepare(path, FIRST).close()
    meddle(
        path,
        "insert into session(id, thread_id, created, updated, seq, hash, parent_seq, owner)"
        " values ('sesn_1', 'sthr_1', 1, 1, 0, x'00', 0, 'worker that died')",
        "insert into inbox values (1, 1, 'c', 'e', 'sthr_1', 1, 1, 'user.message', '{}', null)",
        "insert into blob values ('sha256:0', x'0102')",
        "insert into blob_use values (1, 'sha256:0')",
    )
    before = {table: ask(path, f"select * from {table}") for table in KEPT}
    before["inbox"] = [(*row, None, None) for row in before["inbox"]]  # no sender, no MAC
    before["session"] = [(*row, None, None, None) for row in before["session"]]  # foreign
    assert schema_status(path) == SchemaStatus(1, NEWEST)
    async with open_sqlite(path) as store:
        assert (await store.session("sesn_1")).thread_id == "sthr_1"
        assert await store.runnable() == ["sesn_1"]
        assert await store.blob("sha256:0") == b"\1\2"
        await store.records.write(Put(row=AGENT))
    assert schema_status(path) == SchemaStatus(NEWEST, NEWEST)
    assert {table: ask(path, f"select * from {table}") for table in KEPT} == before


async def test_a_downgrade_that_would_lose_records_is_refused(tmp_path: Path):
    path = tmp_path / "log.db"
    async with open_sqlite(path) as store:
        await store.records.write(Put(row=AGENT))
        with pytest.raises(StoreMismatch, match="cannot downgrade from version 3: that"):
            migrate(path, 1)
        assert (await store.records.get("agent", "agent_1")).rev == 1


@pytest.mark.skipif(sys.platform == "win32", reason="has other permissions")
async def test_a_new_file_and_its_folder_are_private_to_the_owner(tmp_path: Path):
    path = tmp_path / ".mainspring" / "log.db"
    async with opened(path) as log:
        await told(log, "in confidence")
        modes = {item.name: item.stat().st_mode & 0o777 for item in path.parent.iterdir()}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert modes == {"log.db": 0o600, "log.db-wal": 0o600, "log.db-shm": 0o600}


async def test_opening_an_existing_file_makes_it_private(tmp_path: Path):
    path = tmp_path / "log.db"
    await create_and_close(path)
    path.chmod(0o640)
    await create_and_close(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_irreversible_downgrade_is_refused(tmp_path: Path):
    path = tmp_path / "log.db"
    prepare(path, FINISHED).close()
    before = bytes_of(path)
    last = NEWEST + 3
    with pytest.raises(StoreMismatch, match=f"cannot downgrade from version {last}: that"):
        migrate(path, 1, FINISHED)
    assert (version(path), bytes_of(path)) == (last, before)


async def test_a_newer_file_is_refused_and_unchanged(tmp_path: Path):
    path = tmp_path / "log.db"
    await create_and_close(path)
    prepare(path, MOODY).close()
    before = path.read_bytes()
    versions = f"schema {NEWEST + 2}; this version supports {NEWEST}"
    with pytest.raises(StoreMismatch, match=rf"newer Mainspring \({versions}\)"):
        await create_and_close(path)
    with pytest.raises(StoreMismatch, match="newer Mainspring"):
        migrate(path, 1, NOTED)
    assert path.read_bytes() == before


def test_a_failing_migration_leaves_the_file_unchanged(tmp_path: Path):
    path = tmp_path / "log.db"
    prepare(path).close()
    before = bytes_of(path)
    with pytest.raises(Exception, match="session already exists"):
        prepare(path, (*MIGRATIONS, BROKEN))
    assert (version(path), bytes_of(path)) == (NEWEST, before)
    prepare(path, NOTED).close()
    assert version(path) == NEWEST + 1


async def test_a_copy_without_write_ahead_log_gets_one(tmp_path: Path):
    session_id = await create_and_close(tmp_path / "log.db")
    path = tmp_path / "copy.db"
    with closing(sqlite3.connect(tmp_path / "log.db")) as raw:
        raw.execute("vacuum into ?", (str(path),))
    assert ask(path, "pragma journal_mode") == [("delete",)]
    async with opened(path) as log:
        assert texts(await log.read(session_id)) == ["from before"]
    assert ask(path, "pragma journal_mode") == [("wal",)]


FOREIGN = {
    "another program's": ("create table session(key)", "pragma user_version = 1"),
    "another program's, with its id": ("pragma application_id = 7",),
    "another program's, with both": ("create table note(x)", "pragma application_id = 7"),
}


@pytest.mark.parametrize("statements", FOREIGN.values(), ids=FOREIGN)
async def test_a_foreign_database_is_refused(tmp_path: Path, statements: tuple[str, ...]):
    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path)) as raw:
        for statement in statements:
            raw.execute(statement)
        raw.commit()
    before = path.read_bytes()
    with pytest.raises(StoreMismatch, match="does not belong to Mainspring"):
        await create_and_close(path)
    with pytest.raises(StoreMismatch, match="does not belong to Mainspring"):
        migrate(path, 0)
    with pytest.raises(StoreMismatch, match="does not belong to Mainspring"):
        schema_status(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["log.db"]


async def test_a_file_that_is_not_a_database_is_refused_and_unchanged(tmp_path: Path):
    path = tmp_path / "log.db"
    path.write_bytes(b"Dear diary, " * 500)
    with pytest.raises(StoreMismatch, match="is not a SQLite database"):
        await create_and_close(path)
    assert path.read_bytes() == b"Dear diary, " * 500


OPEN = """
import sys
from pathlib import Path

from mainspring.log.migrate import Migration
from mainspring.log.sqlite.connect import prepare
from mainspring.log.sqlite.schema import MIGRATIONS

version = MIGRATIONS[-1].version + 1
notes = Migration(version=version, up=("create table note(text text)",), down=("drop table note",))
sys.stdin.readline()  # all start at once
prepare(Path(sys.argv[1]), (*MIGRATIONS, notes)).close()
"""


@pytest.mark.parametrize("exists", [False, True], ids=["new", "from version 1"])
def test_of_processes_opening_a_file_concurrently_one_migrates(tmp_path: Path, exists: bool):
    path = tmp_path / "log.db"
    if exists:
        prepare(path, FIRST).close()
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(path)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    complaints = [opener.communicate(timeout=60)[1] for opener in openers]
    assert [text for text in complaints if text] == []
    assert (version(path), "note" in tables(path)) == (NEWEST + 1, True)
