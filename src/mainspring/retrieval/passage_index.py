"""An index of passages: derived from files, rebuilt at any time, changed in one transaction a
container. Where it is stored is a `PassageStore`: SQLite or PostgreSQL, with the same contract.

The store finds candidates over our own stems, and vectors find more; `passages.py` scores them.
Scopes are a predicate of every query: a passage outside of them is neither a candidate nor a
neighbour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from mainspring.retrieval.cues import passage_flags
from mainspring.retrieval.passage_weights import WEIGHTS
from mainspring.retrieval.passages import (
    NEAR,
    SPAN,
    CorpusFacts,
    PassageRow,
    PassageScorer,
    Question,
    ScoredPassage,
)
from mainspring.retrieval.stems import content_words, fingerprint, stems

LAYOUT = 4
"""Of the tables, beside the stems: an index of another one is made again."""
MAX_DATED = 200
MAX_CONTAINERS = 500
SAMPLE = 500
"""The newest passages: a store takes the mean length from them."""
_WITHOUT_VECTORS = "/words"
"""Added to the hash of a container whose vectors could not be had, so that it is put again."""
_SEEDS, _SEEDS_OF_LARGE, _NEAR_OF_LARGE = 150, 90, 40
_COMMON_SHARE = 0.05
"""A word in more of the passages than this is too common to find candidates by in a large index."""
_LARGE = 5_000
"""Passages: of fewer, all words find candidates, which is a point better and slow only later."""
_MIN_RARE = 3
_DAY_SLACK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    text: str
    author: str = ""
    time: datetime | None = None
    title: str = ""
    """Searched with the text, but no cue is taken from it."""

    @property
    def whole(self) -> str:
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What passages belong to, in their order: a file, a day, a conversation."""

    scope: str
    name: str
    hash: str
    """Of what the passages were made from."""
    passages: Sequence[Passage]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPassage:
    """A passage as a store stores it."""

    author: str
    year: int
    month: int
    day: int
    flags: int
    stems: list[str]
    vector: bytes | None = None
    words: str = ""
    """With vectors, the words that are no stop words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredContainer:
    scope: str
    name: str
    hash: str
    passages: Sequence[StoredPassage]


@dataclass(frozen=True, slots=True, kw_only=True)
class DateRange:
    months: list[int]
    first_day: int
    last_day: int


@dataclass(frozen=True, slots=True)
class Place:
    scope: str
    container: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageHit:
    scope: str
    container: str
    position: int
    scored: ScoredPassage


class PassageStore(Protocol):
    """Blocks. One writer at a time; others wait. Numbers of passages in one container follow each
    other, and `SPAN` numbers are free between containers."""

    def close(self) -> None: ...
    def require(self, fingerprint: str) -> None:
        """Tables that were filled by another version of the code are made again."""
        ...

    def hashes(self, scope: str) -> dict[str, str]: ...
    def put(self, containers: Sequence[StoredContainer]) -> None:
        """Replace the passages of containers, all or none."""
        ...

    def remove(self, scope: str, names: Collection[str]) -> None: ...
    def clear(self) -> None: ...
    def purge(self) -> None:
        """Leave no word of what was removed in its files."""
        ...

    def facts(self, terms: Sequence[str], scopes: Sequence[str]) -> CorpusFacts: ...
    def find_words(self, terms: Sequence[str], scopes: Sequence[str], limit: int) -> list[int]:
        """The best by BM25 as SQLite's FTS5 has it, to nine digits; of equals the first."""
        ...

    def find_dates(self, dates: DateRange, scopes: Sequence[str]) -> list[int]:
        """The first `MAX_DATED`."""
        ...

    def rows(self, numbers: Iterable[int], scopes: Sequence[str]) -> list[PassageRow]: ...
    def container_scores(self, terms: Sequence[str], scopes: Sequence[str]) -> dict[int, float]:
        """How well the best `MAX_CONTAINERS` answer as a whole; BM25 as above."""
        ...

    def vector_state(self) -> object:
        """Another value whenever the vectors may have changed, in any process."""
        ...

    def vectors(self, scopes: Sequence[str]) -> Iterator[tuple[int, bytes]]: ...
    def places(self, numbers: Sequence[int]) -> dict[int, Place]: ...


class VectorsUnavailable(Exception):
    """What makes vectors does not answer. Searches go by words meanwhile."""


class Vectors(Protocol):
    """Of passages, by some encoder: `retrieval/passage_vectors.py`. Raises: VectorsUnavailable."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def weights(self) -> Mapping[str, float]: ...
    def encode(self, containers: Sequence[Sequence[str]]) -> list[list[bytes]]:
        """A vector for each passage of each container."""
        ...

    def nearest(
        self, store: PassageStore, query: str, scopes: Sequence[str], limit: int
    ) -> list[int]: ...
    def values(
        self, query: str, rows: Sequence[PassageRow], rarity: Mapping[str, float]
    ) -> dict[int, dict[str, float]]: ...


class PassageIndex:
    """Blocks."""

    def __init__(
        self,
        store: PassageStore,
        *,
        vectors: Vectors | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self._store = store
        self._vectors = vectors
        self._weights = weights or (WEIGHTS if vectors is None else vectors.weights)
        self.problem: str | None = None
        """Why the last search or change went without vectors."""
        of_vectors = "" if vectors is None else vectors.fingerprint
        self._fingerprint = f"{fingerprint()}/{LAYOUT}/{of_vectors}"
        store.require(self._fingerprint)

    def close(self) -> None:
        self._store.close()

    def hashes(self, scope: str) -> dict[str, str]:
        """What is indexed, by container."""
        return self._store.hashes(scope)

    def put(self, *containers: Container) -> None:
        """Replace the passages of containers, all or none."""
        self._store.put(self._stored(containers))

    def remove(self, scope: str, *containers: str) -> None:
        self._store.remove(scope, containers)

    def clear(self) -> None:
        self._store.clear()

    def purge(self) -> None:
        """Leave no word of what was removed in its files."""
        self._store.purge()

    def search(
        self,
        query: str,
        scopes: Collection[str],
        limit: int,
        more: Sequence[Container] = (),
    ) -> list[PassageHit]:
        """The passages that answer a question best, of these scopes and no others. `more` are
        ranked with them without being in the index."""
        question, allowed, self.problem = Question.of(query), sorted(scopes), None
        if not question.stems or not (allowed or more):
            return []
        facts = self._store.facts(question.terms, allowed)
        near = self._nearest(question.text, facts, allowed)
        seeds = [*self._seeds(question, facts, allowed), *(near or ())] if allowed else []
        candidates = {seed + offset for seed in seeds for offset in range(-SPAN, SPAN + 1)}
        around = candidates.union(*({at + offset for at in candidates} for offset in NEAR))
        brought = self._brought(more)
        rows = [*self._store.rows(around, allowed), *(row for row, _ in brought.values())]
        whole = self._store.container_scores(question.terms, allowed) if allowed else {}
        weights = WEIGHTS if self.problem else self._weights
        scorer = PassageScorer(question, facts, rows, whole, weights)
        if self._vectors is not None and not self.problem:
            scorer.add_values(self._vectors.values(query, rows, scorer.rarity))
        best = scorer.best({*candidates, *brought}, limit)
        places = self._store.places([item.number for item in best if item.number > 0])
        places |= {number: place for number, (_, place) in brought.items()}
        return _hits(best, places)

    def _brought(self, containers: Sequence[Container]) -> dict[int, tuple[PassageRow, Place]]:
        """Passages that are not in the index, with numbers that it does not have."""
        number, rows = 0, dict[int, tuple[PassageRow, Place]]()
        for at, container in enumerate(self._stored(containers), 1):
            number -= len(container.passages) + SPAN
            for position, item in enumerate(container.passages):
                fields = (item.author, item.year, item.month, item.day, item.flags, item.vector)
                row = PassageRow(number + position, -at, *fields, item.words, item.stems)
                rows[row.number] = (row, Place(container.scope, container.name, position))
        return rows

    def _seeds(self, question: Question, facts: CorpusFacts, scopes: list[str]) -> list[int]:
        common = _COMMON_SHARE * facts.passages
        rare = [word for word in question.terms if facts.frequency.get(word, 0) <= common]
        is_large = facts.passages > _LARGE
        terms = rare if is_large and len(rare) >= _MIN_RARE else question.terms
        limit = _SEEDS_OF_LARGE if is_large else _SEEDS
        seeds = self._store.find_words(terms, scopes, limit)
        cues = question.cues
        if cues.months and cues.day is not None:
            first, last = cues.day - _DAY_SLACK, cues.day + _DAY_SLACK
            dates = DateRange(months=sorted(cues.months), first_day=first, last_day=last)
            seeds += self._store.find_dates(dates, scopes)
        return seeds

    def _nearest(self, query: str, facts: CorpusFacts, scopes: list[str]) -> list[int] | None:
        """`None`: there are no vectors now."""
        if self._vectors is None:
            return None
        try:
            limit = _NEAR_OF_LARGE if facts.passages > _LARGE else _SEEDS
            found = self._vectors.nearest(self._store, query, scopes, limit)
        except VectorsUnavailable as error:
            self.problem = str(error)
            return None
        return found

    def _stored(self, containers: Sequence[Container]) -> list[StoredContainer]:
        vectors, suffix = self._encoded(containers)
        return [
            StoredContainer(
                scope=container.scope,
                name=container.name,
                hash=f"{container.hash}{suffix}",
                passages=[
                    _stored_passage(passage, None if vectors is None else vectors[at][position])
                    for position, passage in enumerate(container.passages)
                ],
            )
            for at, container in enumerate(containers)
        ]

    def _encoded(self, containers: Sequence[Container]) -> tuple[list[list[bytes]] | None, str]:
        if self._vectors is None:
            return None, ""
        texts = [[passage.whole for passage in container.passages] for container in containers]
        try:
            return self._vectors.encode(texts), ""
        except VectorsUnavailable as error:
            self.problem = str(error)
            return None, _WITHOUT_VECTORS


def _hits(best: Sequence[ScoredPassage], places: Mapping[int, Place]) -> list[PassageHit]:
    return [
        PassageHit(
            scope=place.scope, container=place.container, position=place.position, scored=item
        )
        for item in best
        if (place := places.get(item.number)) is not None
    ]


def _stored_passage(passage: Passage, vector: bytes | None) -> StoredPassage:
    time, text = passage.time, passage.whole
    year, month, day = (0, 0, 0) if time is None else (time.year, time.month, time.day)
    return StoredPassage(
        author=passage.author.lower(),
        year=year,
        month=month,
        day=day,
        flags=passage_flags(passage.text),
        stems=stems(text),
        vector=vector,
        words="" if vector is None else " ".join(dict.fromkeys(content_words(text))),
    )
