"""`mainspring backup`, `restore` and `migrate` on real stores."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
from tests.fork_server import Run
from tests.keys import KEY

from mainspring.log.records import Put, RecordRow
from mainspring.log.sqlite import open_sqlite
from mainspring.log.sqlite.connect import prepare
from mainspring.log.sqlite.schema import MIGRATIONS

AGENT = RecordRow(
    tenant="t", kind="agent", id="agent_1", created=1, updated=1, body=b'{"name":"a"}'
)
NEWEST = MIGRATIONS[-1].version


def keep_records(store: Path) -> None:
    async def keep() -> None:
        async with open_sqlite(store, key=KEY) as opened:
            await opened.records.write(Put(row=AGENT, content=b"content"))
            await opened.records.tally([("spent", 5)])

    anyio.run(keep)


def test_a_backup_is_restored_into_another_file(
    mainspring: Run, session_id: str, fork_id: str, store: Path, place: Path
):
    keep_records(store)
    made = mainspring("backup", "all.backup")
    assert (made.returncode, made.stdout) == (
        0,
        "wrote all.backup  2 sessions, 1 record, 1 counter\n",
    )
    assert "vault" in made.stderr
    assert (place / "all.backup").stat().st_mode & 0o777 == 0o600
    assert sorted(item.name for item in place.iterdir()) == [".mainspring", "all.backup"]
    done = mainspring("restore", "all.backup", "--into", "new.db", "--json")
    assert json.loads(done.stdout) == {
        "file": "all.backup",
        "sessions": 2,
        "records": 1,
        "tallies": 1,
    }
    assert (place / "new.db").stat().st_mode & 0o777 == 0o600
    exported = mainspring("log", "export", fork_id, "--store", "new.db").stdout
    assert exported == mainspring("log", "export", fork_id).stdout
    assert session_id in exported
    again = mainspring("restore", "all.backup", "--into", "new.db")
    assert again.returncode == 1
    assert "not empty" in again.stderr


def test_a_file_store_moves_to_postgres_and_back_through_backups(
    mainspring: Run, session_id: str, place: Path, postgres_url: str
):
    assert mainspring("backup", "all.backup").returncode == 0
    done = mainspring("restore", "all.backup", "--store", postgres_url)
    assert (done.returncode, done.stdout) == (
        0,
        "restored all.backup  1 session, 0 records, 0 counters\n",
    )
    assert session_id in mainspring("log", "ls", "--store", postgres_url).stdout
    back = mainspring("backup", "back.backup", "--store", postgres_url)
    assert back.returncode == 0, back.stderr
    assert mainspring("restore", "back.backup", "--into", "back.db").returncode == 0


def test_an_invalid_backup_is_refused_and_a_failed_one_overwrites_nothing(
    mainspring: Run, session_id: str, store: Path, place: Path
):
    del session_id
    bad = place / "bad.backup"
    bad.write_text("what was there before", encoding="utf-8")
    refused = mainspring("restore", "bad.backup", "--into", "new.db")
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: bad.backup: this is not a backup")
    assert "nothing was restored" in refused.stderr
    missing = mainspring("restore", "none.backup", "--into", "new.db")
    assert missing.stderr.startswith("error: none.backup: No such file")
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("drop table inbox")
    db.close()
    assert mainspring("backup", "bad.backup").returncode == 1
    assert bad.read_text(encoding="utf-8") == "what was there before"
    assert not [item for item in place.iterdir() if item.name.startswith(".bad")]


def test_backup_names_a_damaged_session_and_exits_with_status_1(
    mainspring: Run, session_id: str, store: Path
):
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("update event set body = replace(body, 'midnight', 'noon') where seq = 2")
    db.close()
    made = mainspring("backup", "all.backup", "--json")
    assert made.returncode == 1
    assert json.loads(made.stdout)["damaged"] == [session_id]
    assert f"{session_id} is damaged" in made.stderr


def test_backup_without_a_store_fails_and_creates_nothing(mainspring: Run, place: Path):
    assert mainspring("backup", "all.backup").returncode == 1
    assert list(place.iterdir()) == []


def test_migrate_upgrades_old_tables_to_the_current_version(mainspring: Run, store: Path):
    prepare(store, MIGRATIONS[:1]).close()
    behind = mainspring("migrate", "--check", "--json")
    assert behind.returncode == 1
    assert json.loads(behind.stdout) == {"version": 1, "newest": NEWEST}
    assert mainspring("migrate").returncode == 0
    told = mainspring("migrate", "--check")
    assert (told.returncode, "which this Mainspring uses" in told.stdout) == (0, True)
    back = mainspring("migrate", "--to", "1")
    assert back.returncode == 1
    assert "cannot downgrade from version 3: that would lose data" in back.stderr
    unknown = mainspring("migrate", "--to", "99")
    assert (unknown.returncode, "no version 99" in unknown.stderr) == (1, True)
    assert mainspring("migrate", "--to", "1", "--check").returncode == 2


def test_migrate_creates_the_tables_of_a_new_database(mainspring: Run, postgres_url: str):
    assert mainspring("migrate", "--check", "--store", postgres_url).returncode == 1
    assert mainspring("migrate", "--store", postgres_url).returncode == 0
    assert mainspring("migrate", "--check", "--store", postgres_url).returncode == 0
