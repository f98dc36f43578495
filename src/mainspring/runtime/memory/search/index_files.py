"""The files of one user's search indexes: one for each set of memory folders, others for documents
and stores. They are outside any workspace, where a program could replace a database file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from mainspring.retrieval.passage_index import PassageIndex, Vectors
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.search.memory_index import MemoryIndex, open_passages


@dataclass(frozen=True, slots=True)
class IndexFiles:
    home: Path
    open_vectors: Callable[[], Vectors | None]

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
