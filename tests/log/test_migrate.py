"""A file brings itself up to date, goes back only without loss, and is refused untouched."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.log.stories import opened, texts, told

from mainspring.core.errors import StoreMismatch
from mainspring.log.migrate import Migration
from mainspring.log.sqlite.connect import downgrade, prepare
from mainspring.log.sqlite.schema import MIGRATIONS

NOTES = Migration(
    version=2,
    up=("create table note(text text)", "insert into note values ('made by 2')"),
    down=("drop table note",),
)
MOODS = Migration(
    version=3,
    up=("alter table note add column mood text", "update note set mood = 'good'"),
    down=("alter table note drop column mood",),
)
FINAL = Migration(version=4, up=("create table final(x)",), down=None)
BROKEN = Migration(
    version=2, up=("create table half(x)", "create table session(x)"), down=("drop table half",)
)
TWO = (*MIGRATIONS, NOTES)
THREE = (*TWO, MOODS)
FOUR = (*THREE, FINAL)


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


async def aged(path: Path) -> str:
    async with opened(path) as log:
        return await told(log, "from before")


async def test_a_file_is_brought_up_by_opening_it_and_keeps_what_it_held(tmp_path: Path):
    path = tmp_path / "log.db"
    session_id = await aged(path)
    prepare(path, TWO).close()
    assert (version(path), ask(path, "select text from note")) == (2, [("made by 2",)])
    prepare(path, THREE).close()
    assert (version(path), ask(path, "select mood from note")) == (3, [("good",)])
    downgrade(path, 1, THREE)
    async with opened(path) as log:
        assert texts(await log.read(session_id)) == ["from before"]


def test_a_new_file_goes_through_every_step(tmp_path: Path):
    path = tmp_path / "folder that is not there yet" / "log.db"
    prepare(path, THREE).close()
    assert version(path) == 3
    assert {"session", "event", "note"} <= tables(path)


def test_going_back_undoes_the_steps_in_reverse(tmp_path: Path):
    path = tmp_path / "log.db"
    prepare(path, THREE).close()
    downgrade(path, 2, THREE)
    assert (version(path), ask(path, "select * from note")) == (2, [("made by 2",)])
    downgrade(path, 0, THREE)
    assert (version(path), tables(path)) == (0, {"sqlite_sequence"})
    prepare(path, THREE).close()
    assert version(path) == 3


def test_going_back_over_a_step_that_would_lose_something_is_refused(tmp_path: Path):
    path = tmp_path / "log.db"
    prepare(path, FOUR).close()
    before = bytes_of(path)
    with pytest.raises(StoreMismatch, match="cannot go back from 4: that would lose data"):
        downgrade(path, 1, FOUR)
    assert (version(path), bytes_of(path)) == (4, before)


async def test_a_newer_file_is_refused_and_nothing_is_changed(tmp_path: Path):
    path = tmp_path / "log.db"
    await aged(path)
    prepare(path, THREE).close()
    before = path.read_bytes()
    with pytest.raises(StoreMismatch, match=r"newer Mainspring \(tables 3, this one knows 1\)"):
        await aged(path)
    with pytest.raises(StoreMismatch, match="newer Mainspring"):
        downgrade(path, 1, TWO)
    assert path.read_bytes() == before


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path):
    path = tmp_path / "log.db"
    prepare(path).close()
    before = bytes_of(path)
    with pytest.raises(Exception, match="session already exists"):
        prepare(path, (*MIGRATIONS, BROKEN))
    assert (version(path), bytes_of(path)) == (1, before)
    prepare(path, TWO).close()
    assert version(path) == 2


async def test_a_copy_that_lost_its_write_ahead_log_gets_it_back(tmp_path: Path):
    session_id = await aged(tmp_path / "log.db")
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
async def test_a_foreign_database_is_refused_and_untouched(
    tmp_path: Path, statements: tuple[str, ...]
):
    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path)) as raw:
        for statement in statements:
            raw.execute(statement)
        raw.commit()
    before = path.read_bytes()
    with pytest.raises(StoreMismatch, match="not one of Mainspring's"):
        await aged(path)
    with pytest.raises(StoreMismatch, match="not one of Mainspring's"):
        downgrade(path, 0)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["log.db"]


async def test_a_file_that_is_no_database_is_refused_and_untouched(tmp_path: Path):
    path = tmp_path / "log.db"
    path.write_bytes(b"Dear diary, " * 500)
    with pytest.raises(StoreMismatch, match="is not a SQLite database"):
        await aged(path)
    assert path.read_bytes() == b"Dear diary, " * 500


OPEN = """
import sys
from pathlib import Path

from mainspring.log.migrate import Migration
from mainspring.log.sqlite.connect import prepare
from mainspring.log.sqlite.schema import MIGRATIONS

notes = Migration(version=2, up=("create table note(text text)",), down=("drop table note",))
sys.stdin.readline()  # all start at once
prepare(Path(sys.argv[1]), (*MIGRATIONS, notes)).close()
"""


@pytest.mark.parametrize("exists", [False, True], ids=["new", "from version 1"])
def test_of_processes_that_open_a_file_at_once_one_migrates(tmp_path: Path, exists: bool):
    path = tmp_path / "log.db"
    if exists:
        prepare(path).close()
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
    assert (version(path), "note" in tables(path)) == (2, True)
