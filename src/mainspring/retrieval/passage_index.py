"""An index of passages: derived from files, rebuilt at any time, changed in one transaction a
container. Where it is stored is a `PassageStore`: SQLite or PostgreSQL, with the same contract.

The store finds candidates over our own stems, and vectors find more; `passages.py` scores them.
Scopes are a predicate of every query: a passage outside of them is neither a candidate nor a
neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from mainspring.core.lazy_module import LazyModule
from mainspring.retrieval.cues import passage_flags
from mainspring.retrieval.passage_store import (
    DateRange,
    PassageFinder,
    PassageStore,
    Place,
    StoredContainer,
    StoredPassage,
)
from mainspring.retrieval.passage_weights import WEIGHTS
from mainspring.retrieval.passages import (
    GAP,
    NEAR,
    SPAN,
    CorpusStatistics,
    PassageRow,
    PassageScorer,
    Question,
    ScoredPassage,
)
from mainspring.retrieval.stems import content_words, fingerprint, stems

if TYPE_CHECKING:
    from mainspring.retrieval import array_scorer, passage_arrays
else:
    array_scorer = LazyModule("mainspring.retrieval.array_scorer")  # they need numpy
    passage_arrays = LazyModule("mainspring.retrieval.passage_arrays")

LAYOUT = 5
"""Of the tables, beside the stems: an index of another one is made again."""
_WITHOUT_VECTORS = "/words"
"""Added to the hash of a container whose vectors could not be had, so that it is put again."""
_SEEDS, _SEEDS_OF_LARGE, _NEAR_OF_LARGE = 150, 90, 40
_COMMON_SHARE = 0.05
"""A word in more of the passages than this is too common to find candidates by in a large index."""
_LARGE = 5_000
"""Passages: of fewer, all words find candidates, which is a point better and slow only later."""
_MIN_RARE = 3
ARRAYS_FROM = 1_000
"""Passages from which on they are searched in memory, if numpy is installed."""
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
class PassageHit:
    scope: str
    container: str
    position: int
    scored: ScoredPassage


class TooLarge(Exception):
    """More passages than belong in memory."""


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

    @property
    def number_words(self) -> passage_arrays.NumberWords | None:
        """`None` if it has no vectors of words."""
        ...

    def nearest(
        self,
        source: PassageStore | passage_arrays.PassageArrays,
        query: str,
        scopes: Sequence[str],
        limit: int,
    ) -> list[int]: ...
    def values(
        self, query: str, around: array_scorer.CandidatePassages, rarity: Mapping[str, float]
    ) -> tuple[passage_arrays.Floats, passage_arrays.Floats]:
        """How near the candidates are as a whole, and word by word."""
        ...


@dataclass(frozen=True, slots=True)
class _Asked:
    question: Question
    statistics: CorpusStatistics
    whole: Mapping[int, float]
    weights: Mapping[str, float]
    seeds: list[int]
    limit: int


class PassageIndex:
    """Blocks."""

    def __init__(
        self,
        store: PassageStore,
        *,
        vectors: Vectors | None = None,
        weights: Mapping[str, float] | None = None,
        arrays_from: float = ARRAYS_FROM,
    ) -> None:
        """`arrays_from`: passages; infinite if numpy is never to be used."""
        self._store = store
        self._arrays_from = arrays_from
        self._source: passage_arrays.ArraySource | None = None
        self._passages = -1
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
        unindexed: Sequence[Container] = (),
    ) -> list[PassageHit]:
        """The passages that answer a question best, of these scopes and no others. `unindexed`
        are ranked with them without being in the index."""
        question, allowed, self.problem = Question.of(query), sorted(scopes), None
        if not question.stems or not (allowed or unindexed):
            return []
        arrays = self._arrays()
        source = self._store if arrays is None else arrays
        statistics = source.statistics(question.terms, allowed)
        self._passages = statistics.passages
        near = self._nearest(question.text, statistics, allowed, arrays)
        seeds = (
            [*self._seeds(question, statistics, allowed, source), *(near or ())] if allowed else []
        )
        extra = self._unindexed_rows(unindexed)
        whole = source.container_scores(question.terms, allowed) if allowed else {}
        weights = WEIGHTS if self.problem else self._weights
        asked = _Asked(question, statistics, whole, weights, seeds, limit)
        if arrays is None:
            best = self._best_by_rows(asked, allowed, [row for row, _ in extra.values()])
        else:
            rows = [(place.scope, row) for row, place in extra.values()]
            arrays = arrays.extended(rows, self._number_words)
            best = self._best_by_arrays(asked, arrays, list(extra))
        places = self._store.places([item.number for item in best if item.number > 0])
        places |= {number: place for number, (_, place) in extra.items()}
        return _hits(best, places)

    def _best_by_rows(
        self, asked: _Asked, scopes: list[str], unindexed: list[PassageRow]
    ) -> list[ScoredPassage]:
        candidates = {seed + offset for seed in asked.seeds for offset in range(-SPAN, SPAN + 1)}
        around = candidates.union(*({at + offset for at in candidates} for offset in NEAR))
        rows = [*self._store.rows(around, scopes), *unindexed]
        numbers = [row.number for row in unindexed]
        if self._has_vectors:
            arrays = passage_arrays.PassageArrays.of_rows(rows, self._number_words)
            return self._best_by_arrays(asked, arrays, numbers)
        scorer = PassageScorer(asked.question, asked.statistics, rows, asked.whole, asked.weights)
        return scorer.best(candidates.union(numbers), asked.limit)

    def _best_by_arrays(
        self, asked: _Asked, arrays: passage_arrays.PassageArrays, unindexed: list[int]
    ) -> list[ScoredPassage]:
        around = array_scorer.CandidatePassages.of(arrays, asked.seeds, unindexed)
        if not len(around.places):
            return []
        scorer = array_scorer.ArrayScorer(
            asked.question, asked.statistics, around, asked.whole, asked.weights
        )
        if self._vectors is not None and self._has_vectors:
            values = self._vectors.values(asked.question.text, around, scorer.rarity)
            scorer.add_vector_values(*values)
        return scorer.best(asked.limit)

    @property
    def _has_vectors(self) -> bool:
        return self._vectors is not None and not self.problem

    @property
    def _number_words(self) -> passage_arrays.NumberWords | None:
        return None if self._vectors is None else self._vectors.number_words

    def _arrays(self) -> passage_arrays.PassageArrays | None:
        """The passages in memory. A process that asks once does not read them all, unless it needs
        their vectors anyway."""
        is_wanted = self._vectors is not None or self._passages >= self._arrays_from
        if not is_wanted or self._arrays_from == math.inf:
            return None
        try:
            if self._source is None:
                self._source = passage_arrays.ArraySource(self._store, self._number_words)
            return self._source.current()
        except (ModuleNotFoundError, TooLarge):
            self._source, self._arrays_from = None, math.inf
            return None

    def _unindexed_rows(
        self, containers: Sequence[Container]
    ) -> dict[int, tuple[PassageRow, Place]]:
        """Passages that are not in the index, with numbers that it does not have."""
        number, rows = 0, dict[int, tuple[PassageRow, Place]]()
        for at, container in enumerate(self._stored(containers), 1):
            number -= len(container.passages) + GAP
            for position, item in enumerate(container.passages):
                fields = (item.author, item.year, item.month, item.day, item.flags, item.vector)
                row = PassageRow(number + position, -at, *fields, item.words, item.stems)
                rows[row.number] = (row, Place(container.scope, container.name, position))
        return rows

    def _seeds(
        self,
        question: Question,
        statistics: CorpusStatistics,
        scopes: list[str],
        source: PassageFinder,
    ) -> list[int]:
        common = _COMMON_SHARE * statistics.passages
        rare = [word for word in question.terms if statistics.frequency.get(word, 0) <= common]
        is_large = statistics.passages > _LARGE
        terms = rare if is_large and len(rare) >= _MIN_RARE else question.terms
        limit = _SEEDS_OF_LARGE if is_large else _SEEDS
        seeds = source.find_words(terms, scopes, limit)
        cues = question.cues
        if cues.months and cues.day is not None:
            first, last = cues.day - _DAY_SLACK, cues.day + _DAY_SLACK
            dates = DateRange(months=sorted(cues.months), first_day=first, last_day=last)
            seeds += source.find_dates(dates, scopes)
        return seeds

    def _nearest(
        self,
        query: str,
        statistics: CorpusStatistics,
        scopes: list[str],
        arrays: passage_arrays.PassageArrays | None,
    ) -> list[int] | None:
        """`None`: there are no vectors now."""
        if self._vectors is None:
            return None
        try:
            limit = _NEAR_OF_LARGE if statistics.passages > _LARGE else _SEEDS
            found = self._vectors.nearest(arrays or self._store, query, scopes, limit)
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
