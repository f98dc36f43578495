"""Eight writers and eight readers for a minute: files whole, nothing lost, index as rebuilt."""

from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import pytest

from mainspring.core import clock, ids
from mainspring.core.sender import Sender
from mainspring.retrieval.sqlite_passages import SqlitePassages
from mainspring.runtime.memory.memory_doctor import examine
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import Change
from mainspring.runtime.memory.note import Note
from mainspring.runtime.memory.search.memory_index import MemoryIndex

SECONDS = 60
CHANGE = Change(author=Sender(kind="agent", id="writer"), reason="test")


def folder_at(place: Path) -> MemoryFolder:
    return MemoryFolder(place, clock=clock.now, new_id=ids.new_id)


def write(place: Path, name: int, until: datetime) -> int:
    folder = folder_at(place)
    for number in count():
        if clock.now() > until:
            return number
        path = f"project_{name}_{number}.md"
        folder.save(
            Note(path=path, name=path, body=f"Fact{name} number{number}.", trust="agent"), CHANGE
        )
        folder.append("2026-05-01.md", f"- writer {name} wrote {number}", CHANGE)
        if number % 5 == 4:
            folder.forget(path, CHANGE)
    raise AssertionError


def read(place: Path, index: Path, name: int, until: datetime) -> int:
    searches = 0
    while clock.now() < until:
        opened = MemoryIndex({"agent": folder_at(place)}, index)
        opened.search(f"Fact{name} number{searches}", ["agent"], 5)
        opened.close()
        searches += 1
    return searches


@pytest.mark.slow
def test_eight_writers_and_eight_readers_leave_a_consistent_folder(tmp_path: Path):
    place, index = tmp_path / "memory", tmp_path / "index.db"
    place.mkdir()
    until = clock.now() + timedelta(seconds=SECONDS)
    with ProcessPoolExecutor(16, mp_context=get_context("spawn")) as pool:
        writers = [pool.submit(write, place, name, until) for name in range(8)]
        readers = [pool.submit(read, place, index, name, until) for name in range(8)]
        written = [item.result(300) for item in writers]
        assert all(written)
        assert all(item.result(300) for item in readers)
    folder = folder_at(place)
    expected = {
        f"project_{name}_{number}.md"
        for name, total in enumerate(written)
        for number in range(total)
        if number % 5 != 4
    }
    assert set(folder.paths()) - {"MEMORY.md", "2026-05-01.md"} == expected
    assert folder.text("2026-05-01.md").count("\n- writer") == sum(written)
    listed = folder.text("MEMORY.md")
    assert all(f"]({path})" in listed for path in expected)
    versions = [version.id for version in folder.history()]
    assert len(versions) == len(set(versions))
    assert [finding for finding in examine(folder) if finding.path != "MEMORY.md"] == []
    followed = MemoryIndex({"agent": folder}, index)
    rebuilt = MemoryIndex({"agent": folder}, tmp_path / "rebuilt.db")
    rebuilt.rebuild()
    followed.update("agent")
    stamps: list[dict[str, str]] = []
    for file in (index, tmp_path / "rebuilt.db"):
        with closing(SqlitePassages(file)) as passages:
            stamps.append(passages.hashes("agent"))
    assert stamps[0] == stamps[1]
    assert stamps[0].keys() == expected | {"2026-05-01.md"}
    for name in range(8):
        query = f"Fact{name} number0"
        # scores depend on the mean length of the passages that were indexed last
        both = [item.search(query, ["agent"], 1)[0].note.path for item in (followed, rebuilt)]
        assert both == [f"project_{name}_0.md"] * 2
