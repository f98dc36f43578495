"""Where the search indexes of one user are: one for each set of folders of memories, and others for
documents and stores. Outside of any workspace: what programs there could replace is not opened as
a database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from mainspring.retrieval.passage_index import PassageIndex, Vectors
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_index import MemoryIndex, open_passages


@dataclass(frozen=True, slots=True)
class IndexFiles:
    home: Path
    open_vectors: Callable[[], Vectors | None]

    def open(self, folders: Mapping[str, MemoryFolder]) -> MemoryIndex:
        """Of those folders that exist, by scope."""
        present = {scope: folder for scope, folder in folders.items() if folder.is_present}
        if not present or any(folder.is_encrypted for folder in present.values()):
            return MemoryIndex(present)  # in memory only, by words: made again for each search
        return MemoryIndex(present, self._file_of(present), vectors=self.open_vectors())

    def open_passages(self, kind: str, key: str) -> PassageIndex:
        return open_passages(self.file(kind, key), self.open_vectors())

    def file(self, kind: str, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()[:24]
        return self._folder / (f"{kind}-{name}.db" if kind else f"{name}.db")

    def purge(
        self, folders: Mapping[str, MemoryFolder], scope: str, path: str | None = None
    ) -> None:
        """Leave no word of a memory, or of a whole scope, in any index. Blocks."""
        files = {self._file_of(item) for item in (folders, {scope: folders[scope]})}
        if scope in ("user", "team"):  # every project has its memories beside these
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
