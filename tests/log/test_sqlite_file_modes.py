"""The files of a SQLite store are for their owner only, whatever the umask was or is."""

import os
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from mainspring.core.errors import StoreMismatch
from mainspring.log.sqlite import open_sqlite
from mainspring.log.sqlite.connect import remove_other_users_access


def modes(store: Path) -> set[int]:
    files = [path for path in store.parent.iterdir() if path.name.startswith(store.name)]
    return {stat.S_IMODE(path.stat().st_mode) for path in files}


async def test_a_new_store_is_private_whatever_the_umask(tmp_path: Path):
    store = tmp_path / "new" / "log.db"
    before = os.umask(0)
    try:
        async with open_sqlite(store) as opened:
            await opened.records.everything()
            assert modes(store) == {0o600}
            assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
    finally:
        os.umask(before)


async def test_opening_a_readable_store_makes_it_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    store = tmp_path / "log.db"
    async with open_sqlite(store):
        pass
    store.chmod(0o664)
    async with open_sqlite(store):
        assert modes(store) == {0o600}
    assert f"{store} could be read by other users" in caplog.text


async def test_another_programs_file_keeps_its_mode(tmp_path: Path):
    file = tmp_path / "notes.txt"
    file.write_text("not a database, and longer than the header of one" * 20)
    file.chmod(0o644)
    with pytest.raises(StoreMismatch):
        async with open_sqlite(file):
            pass
    assert modes(file) == {0o644}


async def test_making_a_store_private_keeps_the_locks_of_this_process(tmp_path: Path):
    """Closing any descriptor of a file releases all locks that the process has on it."""
    store = tmp_path / "log.db"
    async with open_sqlite(store):
        pass
    with closing(sqlite3.connect(store, isolation_level=None)) as ours:
        ours.execute("pragma journal_mode = delete")  # whose locks are on the file itself
        ours.execute("begin exclusive")
        store.chmod(0o644)
        remove_other_users_access(store)
        assert modes(store) == {0o600}
        another = (
            "import sqlite3, sys;"
            " sqlite3.connect(sys.argv[1], timeout=0).execute('select count(*) from session')"
        )
        tried = await anyio.run_process([sys.executable, "-c", another, str(store)], check=False)
        assert b"database is locked" in tried.stderr
