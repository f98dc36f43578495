from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.improve.dreams.dream_setup import NOW, World
from tests.runtime.memory.memory_setup import memory_folder

from mainspring.improve.dreams.dreamer import Dreamer
from mainspring.improve.dreams.folder_store import FolderStore
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with open_sqlite(tmp_path / "log.db") as store:
        log = SessionLog(store)
        folder = memory_folder(tmp_path / "memory")
        folder.root.mkdir()
        yield World(log, folder, Dreamer(log=log, store=FolderStore(folder), clock=lambda: NOW))
