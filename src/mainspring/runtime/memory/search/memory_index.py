"""Search over memories, with an index that follows the files. Each search updates it first, so that
it finds edits made by hand; if the index is lost, only the first search is slower.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from mainspring.core.errors import NotFound
from mainspring.retrieval.passage_index import (
    Container,
    Passage,
    PassageHit,
    PassageIndex,
    Vectors,
)
from mainspring.retrieval.sqlite_passages import SqlitePassages
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.note import INDEX_FILE, Note, content_hash, parse_note
from mainspring.runtime.memory.search.past_sessions import SESSION, PastMessage

_PASSAGE_WORDS = 120  # a passage ends with the first piece that reaches them
_MORE_HITS = 4
"""Passages to fetch for each memory to return, because one memory may have several."""
_BATCH = 500  # files indexed in one transaction
_MAX_MEMORIES = 1_000
"""Memories to keep parsed, while no file changes: 2 MB, for the questions of one session."""
_BLANK_LINES = re.compile(r"\n\s*\n")
_ITEM = re.compile(r"(?m)^(?=\s*[-*] |\d+\. )")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHit:
    """A memory that answers a query, with the matching part."""

    scope: str
    note: Note
    hash: str
    """The hash of the version that matched; of a session, the event's id."""
    line: int
    """The line in the file; of a session, the event's sequence number."""
    text: str
    score: float
    parts: Mapping[str, float]
    overlap: float = 1.0
    """How much of the query's words the memory has: about 0.5 if it has each of them once."""


@dataclass(frozen=True, slots=True)
class _Part:
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class _Memory:
    note: Note
    hash: str
    parts: Sequence[_Part]


@dataclass(frozen=True, slots=True)
class _Sweep:
    """What a look at all files of a scope has found."""

    time: float
    change_stamp: tuple[object, ...]
    """Of the folders before it."""
    subfolders: frozenset[str]
    stamps: Mapping[str, str]
    """The state of each file."""


class MemoryIndex:
    """Blocks. `folders`: by the scope that they are searched under."""

    def __init__(
        self,
        folders: Mapping[str, MemoryFolder],
        path: Path | None = None,
        *,
        vectors: Vectors | None = None,
        sweep_seconds: float = 0.0,
    ) -> None:
        """`sweep_seconds`: how long a search may overlook a file that was rewritten in place. Every
        other change is found by each search."""
        self._folders = folders
        self._passages = open_passages(path, vectors)
        self._sweep_seconds = sweep_seconds
        self._sweeps: dict[str, _Sweep] = {}
        self._memories: dict[tuple[str, str], _Memory | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._passages.close()

    @property
    def problem(self) -> str | None:
        """Why the last search did not use vectors."""
        return self._passages.problem

    def search(
        self,
        query: str,
        scopes: Collection[str],
        limit: int,
        past: Sequence[PastMessage] = (),
    ) -> list[MemoryHit]:
        """Return the best memories of these scopes, each once, ranked together with messages of
        past sessions."""
        allowed = [scope for scope in scopes if scope in self._folders]
        for scope in allowed:
            self.update(scope)
        conversations = _conversations(past)
        containers = [conversation.container for conversation in conversations.values()]
        hits = self._passages.search(query, allowed, limit * _MORE_HITS, containers)
        hits_by_place: dict[tuple[str, str, str], MemoryHit] = {}
        texts: set[str] = set()
        superseded: set[tuple[str, str]] = set()
        for hit in hits:
            if len(hits_by_place) >= limit + len(superseded):
                break
            if hit.scope == SESSION:
                memory = conversations[hit.container].memory(hit)
            else:
                memory = self._memory(hit)
            if memory is None or (hit.scope, hit.container, memory.hash) in hits_by_place:
                continue
            if memory.text not in texts:  # copies of one text are one answer
                hits_by_place[hit.scope, hit.container, memory.hash] = memory
                texts.add(memory.text)
                superseded |= {(hit.scope, path) for path in memory.note.supersedes}
        return _without_superseded(list(hits_by_place.values()))[:limit]

    def rebuild(self, report: Callable[[int], None] = lambda _: None) -> int:
        """Index everything again; return the number of memories."""
        self._passages.clear()
        self._sweeps.clear()
        return sum(self.update(scope, report) for scope in self._folders)

    def update(self, scope: str, report: Callable[[int], None] = lambda _: None) -> int:
        """Index changed files and drop removed ones; return the number of changed memories."""
        folder, last = self._folders[scope], self._sweeps.get(scope)
        now = time.monotonic()
        change_stamp = folder.change_stamp(() if last is None else last.subfolders)
        if last is not None and change_stamp == last.change_stamp:
            if now - last.time < self._sweep_seconds:
                return 0
        else:
            self._memories.clear()
        stamps = {
            path: f"{state.st_mtime_ns}-{state.st_size}-{state.st_ino}"
            for path, state in folder.states().items()
            if path != INDEX_FILE
        }
        subfolders = frozenset(path.rpartition("/")[0] for path in stamps if "/" in path)
        if last is None or last.subfolders != subfolders:
            change_stamp = ()  # of other folders: the next search looks again
        self._sweeps[scope] = _Sweep(now, change_stamp, subfolders, stamps)
        if last is not None and last.stamps == stamps:
            return 0
        self._memories.clear()
        hashes = self._passages.hashes(scope)
        if removed := hashes.keys() - stamps.keys():
            self._passages.remove(scope, *removed)
        changed = sorted(path for path, stamp in stamps.items() if hashes.get(path) != stamp)
        try:
            for start in range(0, len(changed), _BATCH):
                batch = changed[start : start + _BATCH]
                self._passages.put(*_containers(folder, scope, batch, stamps))
                report(start + len(batch))
        except BaseException:
            del self._sweeps[scope]  # the next search indexes the rest
            raise
        return len(changed)

    def purge(self) -> None:
        """Erase removed memories from the index file."""
        self._passages.purge()

    def _memory(self, hit: PassageHit) -> MemoryHit | None:
        place = (hit.scope, hit.container)
        if place not in self._memories:
            if len(self._memories) >= _MAX_MEMORIES:
                self._memories.clear()
            self._memories[place] = self._read(*place)
        memory = self._memories[place]
        if memory is None or hit.position >= len(memory.parts):  # changed since it was indexed
            return None
        return _memory_hit(hit, memory.note, memory.hash, memory.parts[hit.position])

    def _read(self, scope: str, path: str) -> _Memory | None:
        folder = self._folders[scope]
        try:
            content = folder.content(path)
        except NotFound:  # removed since it was indexed
            return None
        text = content.decode("utf-8", "replace")
        note = parse_note(path, text)
        parts = list(note_parts(note, text))
        return _Memory(folder.verified(note, content), content_hash(content), parts)


def open_passages(path: Path | None, vectors: Vectors | None = None) -> PassageIndex:
    """Open an index; rebuild a damaged one, because it is derived from the files."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _open_index(path, vectors)
    except sqlite3.OperationalError:  # locked, no space, no rights
        raise
    except sqlite3.DatabaseError:
        if path is None:
            raise
        for end in ("", "-wal", "-shm"):
            path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
        return _open_index(path, vectors)


def _open_index(path: Path | None, vectors: Vectors | None) -> PassageIndex:
    store = SqlitePassages(path)
    try:
        return PassageIndex(store, vectors=vectors)
    except BaseException:
        store.close()
        raise


def _containers(
    folder: MemoryFolder, scope: str, paths: Sequence[str], stamps: Mapping[str, str]
) -> Iterator[Container]:
    for path in paths:
        try:
            text = folder.content(path).decode("utf-8", "replace")
        except NotFound:
            continue
        note = parse_note(path, text)
        time = note_time(note)
        yield Container(
            scope=scope,
            name=path,
            hash=stamps[path],
            passages=[
                Passage(title=f"{note.name} {note.description}", text=part.text, time=time)
                for part in note_parts(note, text)
            ],
        )


@dataclass(frozen=True, slots=True)
class _Conversation:
    """Messages of one past session in order, each in parts."""

    name: str
    parts: Sequence[tuple[PastMessage, _Part]]

    @property
    def container(self) -> Container:
        return Container(
            scope=SESSION,
            name=self.name,
            hash="",
            passages=[
                Passage(text=part.text, author=message.author, time=message.time)
                for message, part in self.parts
            ],
        )

    def memory(self, hit: PassageHit) -> MemoryHit | None:
        message, part = self.parts[hit.position]
        if not message.is_hit:
            return None
        return _memory_hit(hit, message.note, message.event_id, replace(part, line=message.seq))


def _conversations(past: Sequence[PastMessage]) -> dict[str, _Conversation]:
    parts: dict[str, list[tuple[PastMessage, _Part]]] = {}
    for message in past:
        own = parts.setdefault(message.session_id, [])
        own += ((message, part) for part in note_parts(message.note, message.text))
    return {name: _Conversation(name, own) for name, own in parts.items()}


def _memory_hit(hit: PassageHit, note: Note, hash_: str, part: _Part) -> MemoryHit:
    return MemoryHit(
        scope=hit.scope,
        note=note,
        hash=hash_,
        line=part.line,
        text=part.text,
        score=hit.scored.score,
        parts=hit.scored.parts,
        overlap=hit.scored.overlap,
    )


def note_time(note: Note) -> datetime | None:
    """When a memory was last true: the date in its file name, or when it was updated."""
    for text in (Path(note.path).stem, note.updated, note.created):
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            continue
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return None


def note_parts(note: Note, content: str) -> Iterator[_Part]:
    """Split a memory into parts of a few sentences: paragraphs and list items."""
    start = content.rfind(note.body) if note.body else 0
    base = content.count("\n", 0, max(start, 0)) + 1
    texts: list[str] = []
    line = next_line = base
    for piece in _pieces(note.body):
        texts.append(piece)
        if sum(len(text.split()) for text in texts) >= _PASSAGE_WORDS or note.is_daily:
            yield _Part(line, "".join(texts).strip())
            line, texts = next_line + piece.count("\n"), []
        next_line += piece.count("\n")
    last_text = "".join(texts).strip()
    if last_text or line == base:
        yield _Part(line, last_text or note.description or note.name)


def _pieces(body: str) -> Iterator[str]:
    last = 0
    cuts = sorted(
        {match.end() for match in _BLANK_LINES.finditer(body)}
        | {match.start() for match in _ITEM.finditer(body)}
    )
    for cut in [*cuts, len(body)]:
        if cut > last:
            yield body[last:cut]
            last = cut


def _without_superseded(hits: list[MemoryHit]) -> list[MemoryHit]:
    superseded = {(hit.scope, path) for hit in hits for path in hit.note.supersedes}
    return [hit for hit in hits if (hit.scope, hit.note.path) not in superseded]
