"""The documents of an agent, in `knowledge/` of its folder, with an index that follows them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from msgspec import Struct

from mainspring.core.errors import InvalidInput, NotFound
from mainspring.files.beneath import open_folder, read_file, remove_file, write_file
from mainspring.retrieval.passage_index import Container, Passage, PassageHit, PassageIndex
from mainspring.retrieval.stems import stems
from mainspring.runtime.knowledge.documents import MAX_BYTES, DocumentPart, read_document
from mainspring.runtime.packages.hidden_text import find_hidden_text
from mainspring.runtime.packages.scan_text import find_matches, scanned_text

MAX_DOCUMENTS = 20_000  # of one agent
_MAX_DEPTH = 8  # folders
_BATCH = 50  # documents indexed in one transaction
_SCOPE = "knowledge"
_MORE_HITS = 2  # times as many hits as are asked for, since several may be of one document
_MIN_OVERLAP = 0.12
"""The least overlap of a passage that covers a question: about a quarter of its words, with rare
words counting more."""


class DocumentView(Struct, frozen=True, kw_only=True):
    path: str
    bytes: int
    parts: int
    problem: str = ""
    """Why it cannot be read, or which text in it looks like an instruction to the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeHit:
    path: str
    part: DocumentPart
    score: float
    warning: str
    """The text in it that looks like an instruction to the model; empty if none does."""

    @property
    def source(self) -> str:
        page = f", page {self.part.page}" if self.part.page else ""
        return f"{self.path}:{self.part.line}{page}"


class KnowledgeFolder:
    """Blocks."""

    def __init__(
        self,
        root: Path,
        open_index: Callable[[], PassageIndex],
        html_to_text: Callable[[str, str], str],
    ) -> None:
        self.root = root
        self._open_index = open_index
        self._html_to_text = html_to_text

    @property
    def is_present(self) -> bool:
        return self.root.is_dir() and not self.root.is_symlink()

    def documents(self) -> list[DocumentView]:
        return [self._view(path, size) for path, (size, _) in sorted(self._files().items())]

    def add_folder(self, source: Path, *, replaces: bool = False) -> Iterator[DocumentView]:
        """Copy the files of a folder, below a folder of its name, and say which cannot be copied.
        Hidden files and links are left out.

        Raises:
            InvalidInput: it has no files, or too many.
        """
        paths = sorted(islice((path for path, _ in _walk(source, "", 0)), MAX_DOCUMENTS + 1))
        if not paths or len(paths) > MAX_DOCUMENTS:
            number = f"more than {MAX_DOCUMENTS:,}" if paths else "no"
            raise InvalidInput(f"{source}: {number} files that are neither hidden nor links")
        for path in paths:
            name = f"{source.resolve().name}/{path}"
            try:
                yield self.add(source / path, name, replaces=replaces)
            except InvalidInput as error:
                yield DocumentView(path=name, bytes=0, parts=0, problem=str(error))

    def add(self, source: Path, name: str | None = None, *, replaces: bool = False) -> DocumentView:
        """Copy a document into the folder, as `name` or under its own name.

        Raises:
            InvalidInput: it cannot be read, or another document has this name.
        """
        name = name or source.name
        try:
            content = source.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{source}: {error.strerror}") from error
        read_document(name, content, self._html_to_text)
        self.root.mkdir(parents=True, exist_ok=True)
        with open_folder(self.root) as root:
            before = read_file(root, name, max_bytes=MAX_BYTES)
            if before not in (None, content) and not replaces:
                raise InvalidInput(f"{name} exists: add --replace to overwrite it")
            write_file(root, name, content, is_synced=True)
        return self._view(name, len(content))

    def remove(self, path: str) -> None:
        """Raises: NotFound."""
        if path not in self._files():
            raise NotFound("document", path)
        with open_folder(self.root) as root:
            remove_file(root, path)

    def search(self, query: str, limit: int) -> list[KnowledgeHit]:
        """Return the best parts; none if no document covers the question."""
        index = self._open_index()
        try:
            self._update(index)
            hits = index.search(query, [_SCOPE], limit * _MORE_HITS)
            asked = frozenset(stems(query))
            found = [
                knowledge_hit
                for hit, knowledge_hit in self._knowledge_hits(hits)
                if hit.scored.overlap >= _MIN_OVERLAP or _covers(knowledge_hit, asked)
            ]
            return found[:limit]
        finally:
            index.close()

    def _knowledge_hits(self, hits: list[PassageHit]) -> Iterator[tuple[PassageHit, KnowledgeHit]]:
        read: dict[str, list[DocumentPart]] = {}
        for hit in hits:
            if hit.container not in read:
                try:
                    read[hit.container] = self._parts(hit.container)
                except (InvalidInput, NotFound):  # changed since it was indexed
                    read[hit.container] = []
            parts = read[hit.container]
            if hit.position < len(parts):
                part = parts[hit.position]
                warning = poison(hit.container, part.text)
                yield (
                    hit,
                    KnowledgeHit(
                        path=hit.container, part=part, score=hit.scored.score, warning=warning
                    ),
                )

    def _update(self, index: PassageIndex) -> None:
        hashes = index.hashes(_SCOPE)
        stamps = {path: stamp for path, (_, stamp) in self._files().items()}
        if removed := hashes.keys() - stamps.keys():
            index.remove(_SCOPE, *removed)
        changed = sorted(path for path, stamp in stamps.items() if hashes.get(path) != stamp)
        for start in range(0, len(changed), _BATCH):
            index.put(*(self._container(path, stamps[path]) for path in changed[start:][:_BATCH]))

    def _container(self, path: str, stamp: str) -> Container:
        """An unreadable document is indexed as empty, so it is not read again until it changes."""
        try:
            parts = self._parts(path)
        except (InvalidInput, NotFound):
            parts = []
        passages = [Passage(title=f"{path} {part.context}", text=part.text) for part in parts]
        return Container(scope=_SCOPE, name=path, hash=stamp, passages=passages)

    def _view(self, path: str, size: int) -> DocumentView:
        try:
            parts = self._parts(path)
        except (InvalidInput, NotFound) as error:
            return DocumentView(path=path, bytes=size, parts=0, problem=str(error))
        problem = next(filter(None, (poison(path, part.text) for part in parts)), "")
        return DocumentView(path=path, bytes=size, parts=len(parts), problem=problem)

    def _parts(self, path: str) -> list[DocumentPart]:
        return read_document(path, self._content(path), self._html_to_text)

    def _content(self, path: str) -> bytes:
        with open_folder(self.root) as root:
            content = read_file(root, path, max_bytes=MAX_BYTES)
        if content is None:
            raise NotFound("document", path)
        return content

    def _files(self) -> dict[str, tuple[int, str]]:
        """The size and stamp of each file, without links and hidden files."""
        stamps = dict(_walk(self.root, "", 0)) if self.is_present else {}
        if len(stamps) > MAX_DOCUMENTS:
            raise InvalidInput(f"{self.root}: more than {MAX_DOCUMENTS:,} documents")
        return stamps


def _covers(hit: KnowledgeHit, asked: frozenset[str]) -> bool:
    """Whether a part has half of the words of a question. In a folder of one or two documents no
    word is rare, and the overlap says nothing."""
    own = frozenset(stems(f"{hit.path} {hit.part.context} {hit.part.text}"))
    return bool(asked) and len(asked & own) * 2 >= len(asked)


def poison(path: str, text: str) -> str:
    """Describe the first passage that looks meant to steer a model; empty if none does."""
    page = scanned_text(path, text, is_script=False, is_prose=True)
    matches = (*find_matches(page), *find_hidden_text(text, is_script=False))
    severe = [
        match
        for match in matches
        if match.topic in ("injection", "hidden") and match.severity == "danger"
    ]
    return f"line {severe[0].line}: {severe[0].why}" if severe else ""


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, tuple[int, str]]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False) and depth < _MAX_DEPTH:
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", depth + 1)
            elif entry.is_file(follow_symlinks=False):
                state = entry.stat(follow_symlinks=False)
                stamp = f"{state.st_mtime_ns}-{state.st_size}-{state.st_ino}"
                yield f"{prefix}{entry.name}", (state.st_size, stamp)
