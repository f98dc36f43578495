"""The files of one user's search indexes: one for each set of memory folders, others for documents
and stores. They are outside any workspace, where a program could replace a database file.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from mainspring.retrieval.passage_index import PassageIndex, Vectors
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.search.memory_index import MemoryIndex, open_passages

MAX_OPEN = 16
"""Indexes that a process keeps open: one for each workspace that its sessions use."""
SWEEP_SECONDS = 2.0
"""A look at 10,000 files takes 40 ms, four times as long as a search. A person who saves a file in
an editor that rewrites it in place needs longer than this to ask about it."""


@dataclass(slots=True)
class _OpenIndex:
    index: MemoryIndex
    inode: int
    users: int = 0
    """Searches that use it or wait for it."""
    lock: Lock = field(default_factory=Lock)


class OpenIndexes:
    """The indexes of memories that a process keeps open, by file."""

    def __init__(self) -> None:
        self._open: dict[Path, _OpenIndex] = {}
        self._lock = Lock()

    @contextmanager
    def borrow(
        self, file: Path, open_index: Callable[[], MemoryIndex]
    ) -> Generator[MemoryIndex, None, None]:
        entry = self._entry(file, open_index)
        try:
            with entry.lock:
                yield entry.index
        except sqlite3.DatabaseError:  # damaged: the next search opens it again
            entry.inode = -1
            raise
        finally:
            with self._lock:
                entry.users -= 1

    def _entry(self, file: Path, open_index: Callable[[], MemoryIndex]) -> _OpenIndex:
        with self._lock:
            entry = self._open.pop(file, None)
            if entry is not None and _inode(file) != entry.inode:  # deleted, or rebuilt by another
                self._close(entry)
                entry = None
            if entry is None:
                entry = _OpenIndex(open_index(), _inode(file))
            entry.users += 1
            self._open[file] = entry  # the one that was used last
            unused = [path for path, item in self._open.items() if not item.users]
            for path in unused[: max(0, len(self._open) - MAX_OPEN)]:
                self._close(self._open.pop(path))
            return entry

    def close(self) -> None:
        with self._lock:
            for entry in self._open.values():
                self._close(entry)
            self._open.clear()

    def _close(self, entry: _OpenIndex) -> None:
        with entry.lock:
            entry.index.close()


def _inode(file: Path) -> int:
    try:
        return file.stat().st_ino
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class IndexFiles:
    home: Path
    open_vectors: Callable[[], Vectors | None]
    open_indexes: OpenIndexes = field(default_factory=OpenIndexes)

    @contextmanager
    def borrow(self, folders: Mapping[str, MemoryFolder]) -> Generator[MemoryIndex, None, None]:
        """The index of these folders, which exist; it stays open. Blocks while another search uses
        it."""
        if any(folder.is_encrypted for folder in folders.values()):
            with self.open(folders) as index:
                yield index
            return
        file = self._file_of(folders)

        def open_index() -> MemoryIndex:
            vectors = self.open_vectors()
            return MemoryIndex(folders, file, vectors=vectors, sweep_seconds=SWEEP_SECONDS)

        with self.open_indexes.borrow(file, open_index) as index:
            yield index

    def open(self, folders: Mapping[str, MemoryFolder]) -> MemoryIndex:
        """Open the index of the folders that exist, by scope."""
        present = {scope: folder for scope, folder in folders.items() if folder.is_present}
        if not present or any(folder.is_encrypted for folder in present.values()):
            return MemoryIndex(present)  # in memory only, without vectors, rebuilt for each search
        return MemoryIndex(present, self._file_of(present), vectors=self.open_vectors())

    def open_passages(self, kind: str, key: str) -> PassageIndex:
        return open_passages(self.file(kind, key), self.open_vectors())

    def file(self, kind: str, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()[:24]
        return self._folder / (f"{kind}-{name}.db" if kind else f"{name}.db")

    def purge(
        self, folders: Mapping[str, MemoryFolder], scope: str, path: str | None = None
    ) -> None:
        """Remove every word of a memory, or of a whole scope, from all indexes. Blocks."""
        files = {self._file_of(indexed) for indexed in (folders, {scope: folders[scope]})}
        if scope in ("user", "team"):  # indexes of all projects contain these
            files |= {file for file in self._folder.glob("*.db") if "-" not in file.stem}
        for file in sorted(file for file in files if file.exists()):
            with closing(open_passages(file, self.open_vectors())) as passages:
                passages.remove(scope, *(passages.hashes(scope) if path is None else (path,)))
                passages.purge()

    def _file_of(self, folders: Mapping[str, MemoryFolder]) -> Path:
        return self.file("", "\0".join(str(item.root.resolve()) for item in folders.values()))

    @property
    def _folder(self) -> Path:
        return self.home / ".mainspring/memory-index"
