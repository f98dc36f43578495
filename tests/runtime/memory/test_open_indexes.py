"""A process keeps indexes open: each search finds what any process has changed since."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.runtime.memory.memory_setup import AGENT, a_note, memory_folder

from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.search import index_files
from mainspring.runtime.memory.search.index_files import IndexFiles
from mainspring.runtime.memory.search.memory_index import MemoryIndex


class Searches:
    """One process with two searches over a folder of memories."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "memory"
        self.folder = memory_folder(self.root)
        self.files = IndexFiles(tmp_path, lambda: None)

    def find(self, query: str) -> list[str]:
        with self.files.borrow({"agent": self.folder}) as index:
            return [hit.note.path for hit in index.search(query, ["agent"], 5)]


@contextmanager
def searches(tmp_path: Path) -> Generator[Searches]:
    own = Searches(tmp_path)
    own.folder.save(a_note("harbour", "The harbour has seven cranes."), AGENT)
    assert own.find("harbour cranes") == ["project_harbour.md"]
    yield own
    own.files.open_indexes.close()


def test_a_search_finds_what_another_process_has_written_replaced_and_removed(tmp_path: Path):
    with searches(tmp_path) as own:
        other: MemoryFolder = memory_folder(own.root, first=1_000)
        other.save(a_note("lighthouse", "The lighthouse is white."), AGENT)
        assert own.find("lighthouse") == ["project_lighthouse.md"]
        other.save(a_note("lighthouse", "The lighthouse is striped."), AGENT)
        assert own.find("striped") == ["project_lighthouse.md"]
        other.forget("project_lighthouse.md", AGENT)
        assert own.find("lighthouse") == []
        (own.root / "people").mkdir()
        (own.root / "people/anna.md").write_text("Anna repairs sextants.")  # by hand
        assert own.find("sextants") == ["people/anna.md"]
        (own.root / "people/ben.md").write_text("Ben repairs compasses.")
        assert own.find("compasses") == ["people/ben.md"]


def test_a_file_that_is_rewritten_in_place_is_found_after_the_next_look_at_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(index_files, "SWEEP_SECONDS", 0.0)
    with searches(tmp_path) as own:
        with (own.root / "project_harbour.md").open("r+") as file:
            file.write("The pilot boards here.\n")
            file.truncate()
        assert own.find("pilot boards") == ["project_harbour.md"]


def test_an_index_that_was_deleted_or_damaged_is_built_again(tmp_path: Path):
    with searches(tmp_path) as own:
        (file,) = (tmp_path / ".mainspring/memory-index").glob("*.db")
        for path in file.parent.iterdir():
            path.unlink()
        assert own.find("harbour") == ["project_harbour.md"]
        assert file.exists()
        own.files.open_indexes.close()
        file.write_bytes(b"not a database" * 1_000)
        assert own.find("harbour") == ["project_harbour.md"]


def test_threads_search_one_index_while_another_writes(tmp_path: Path):
    with searches(tmp_path) as own, ThreadPoolExecutor(8) as pool:

        def save(number: int) -> None:
            own.folder.save(a_note(f"dock {number}", f"Dock {number} has harbour cranes."), AGENT)

        writes = [pool.submit(save, number) for number in range(10)]
        found = [pool.submit(own.find, "harbour cranes") for _ in range(40)]
        assert all(future.result(timeout=60) for future in found)
        assert all(future.result(timeout=60) is None for future in writes)
        assert own.find("dock 7") != []


def test_indexes_that_were_not_used_lately_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(index_files, "MAX_OPEN", 2)
    files = IndexFiles(tmp_path, lambda: None)
    folders = [memory_folder(tmp_path / f"memory{number}") for number in range(4)]
    opened: list[MemoryIndex] = []
    for folder in folders:
        folder.save(a_note("harbour", "The harbour has seven cranes."), AGENT)
        with files.borrow({"agent": folder}) as index:
            opened.append(index)
            assert index.search("harbour", ["agent"], 5)
    with pytest.raises(sqlite3.ProgrammingError):
        opened[0].search("harbour", ["agent"], 5)
    with files.borrow({"agent": folders[0]}) as index:
        assert index.search("harbour", ["agent"], 5)
    files.open_indexes.close()
