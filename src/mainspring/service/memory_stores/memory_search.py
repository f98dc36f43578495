"""Search over the memories of a store: a derived index that is updated before each search, like
that of memory folders (`runtime/memory/search/memory_index.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from anyio import to_thread
from msgspec import Meta, Struct

from mainspring.core.errors import NotFound
from mainspring.retrieval.passage_index import Container, Passage, PassageHit, PassageIndex
from mainspring.runtime.memory.note import parse_note
from mainspring.runtime.memory.search.memory_index import note_parts, note_time
from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_records import MemoryObject

_BATCH = 100  # memories read at once
_MORE_HITS = 4
"""How many passages are read for each requested memory: several may be of one memory."""

T = TypeVar("T")


class SearchMemories(Struct, frozen=True, kw_only=True):
    query: Annotated[str, Meta(min_length=1, max_length=10_000)]
    limit: Annotated[int, Meta(ge=1, le=50)] = 10


class MemoryMatch(Struct, frozen=True, kw_only=True):
    """A memory that matches a query, with its matching part."""

    memory_id: str
    memory_store_id: str
    path: str
    line: int
    text: str
    score: float
    score_parts: dict[str, float]
    """The parts whose sum is the score."""
    type: Literal["memory_match"] = "memory_match"


@dataclass(frozen=True, slots=True)
class StoreIndex:
    """The index of all memory stores, each of which is a scope."""

    open: Callable[[], PassageIndex]

    async def run(self, work: Callable[[PassageIndex], T]) -> T:
        def run() -> T:
            with closing(self.open()) as index:
                return work(index)

        return await to_thread.run_sync(run)

    async def forget(self, tenant: str, store_id: str) -> None:
        """Remove everything of a store from the index. The next search indexes again what the store
        still has."""
        scope = _scope(tenant, store_id)

        def forget(index: PassageIndex) -> None:
            if names := index.hashes(scope):
                index.remove(scope, *names)
                index.purge()

        await self.run(forget)


@dataclass(frozen=True, slots=True)
class MemorySearch:
    memories: Memories
    index: StoreIndex

    async def search(
        self, tenant: str, store_id: str, request: SearchMemories
    ) -> list[MemoryMatch]:
        """Raises: NotFound: the store."""
        current = {memory.path: memory for memory in await self.memories.all(tenant, store_id)}
        scope = _scope(tenant, store_id)
        await self._update(tenant, scope, current)
        most = _MORE_HITS * request.limit
        hits = await self.index.run(lambda index: index.search(request.query, [scope], most))
        matches: dict[str, MemoryMatch] = {}
        for hit in hits:
            memory = current.get(hit.container)
            if memory is None or memory.path in matches or len(matches) == request.limit:
                continue
            if (match := await self._match(tenant, memory, hit)) is not None:
                matches[memory.path] = match
        return list(matches.values())

    async def _update(self, tenant: str, scope: str, current: dict[str, MemoryObject]) -> None:
        indexed = await self.index.run(lambda index: index.hashes(scope))
        if removed := indexed.keys() - current.keys():
            await self.index.run(lambda index: index.remove(scope, *removed))
        changed = [
            memory for path, memory in current.items() if indexed.get(path) != memory.content_sha256
        ]
        for start in range(0, len(changed), _BATCH):
            containers = [
                container
                for memory in changed[start : start + _BATCH]
                if (container := await self._container(tenant, scope, memory)) is not None
            ]
            await self.index.run(_put(containers))

    async def _container(self, tenant: str, scope: str, memory: MemoryObject) -> Container | None:
        text = await self._text(tenant, memory)
        if text is None:
            return None
        note = parse_note(memory.path, text)
        time = note_time(note) or memory.updated_at
        title = f"{note.name} {note.description}"
        return Container(
            scope=scope,
            name=memory.path,
            hash=memory.content_sha256,
            passages=[
                Passage(title=title, text=part.text, time=time) for part in note_parts(note, text)
            ],
        )

    async def _match(
        self, tenant: str, memory: MemoryObject, hit: PassageHit
    ) -> MemoryMatch | None:
        text = await self._text(tenant, memory)
        if text is None:
            return None
        parts = list(note_parts(parse_note(memory.path, text), text))
        if hit.position >= len(parts):
            return None
        return MemoryMatch(
            memory_id=memory.id,
            memory_store_id=memory.memory_store_id,
            path=memory.path,
            line=parts[hit.position].line,
            text=parts[hit.position].text,
            score=round(hit.scored.score, 4),
            score_parts={name: round(value, 4) for name, value in hit.scored.parts.items()},
        )

    async def _text(self, tenant: str, memory: MemoryObject) -> str | None:
        """The text; `None`: it was changed or deleted since it was listed."""
        try:
            full = await self.memories.get(tenant, memory.memory_store_id, memory.id)
        except NotFound:
            return None
        return full.content if full.content_sha256 == memory.content_sha256 else None


def _put(containers: Sequence[Container]) -> Callable[[PassageIndex], None]:
    return lambda index: index.put(*containers)


def _scope(tenant: str, store_id: str) -> str:
    return f"{tenant}/{store_id}"
