"""The files of a SQLite store are for their owner only, whatever the umask was or is."""

import os
import stat
from pathlib import Path

import pytest

from mainspring.log.sqlite import open_sqlite


def modes(store: Path) -> set[int]:
    files = [path for path in store.parent.iterdir() if path.name.startswith(store.name)]
    return {stat.S_IMODE(path.stat().st_mode) for path in files}


async def test_a_new_store_is_closed_to_others_whatever_the_umask(tmp_path: Path):
    store = tmp_path / "new" / "log.db"
    before = os.umask(0)
    try:
        async with open_sqlite(store) as opened:
            await opened.records.everything()
            assert modes(store) == {0o600}
            assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
    finally:
        os.umask(before)


async def test_a_store_that_others_could_read_is_closed_to_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    store = tmp_path / "log.db"
    async with open_sqlite(store):
        pass
    store.chmod(0o664)
    async with open_sqlite(store):
        assert modes(store) == {0o600}
    assert f"{store} could be read by other users" in caplog.text
