"""An index of passages: derived from files, rebuilt at any time, changed in one transaction per
container. It is stored in a `PassageStore`: SQLite or PostgreSQL, with the same contract.

The store finds candidates over our own stems, and vectors find more; `passages.py` scores them.
Every query is limited to scopes: a passage outside of them is neither a candidate nor a neighbour.
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
    ScoredPassage,
    SearchQuestion,
    container_scores_of,
)
from mainspring.retrieval.stems import content_words, fingerprint, stems

if TYPE_CHECKING:
    from mainspring.retrieval import array_scorer, passage_arrays
else:
    array_scorer = LazyModule("mainspring.retrieval.array_scorer")  # they need numpy
    passage_arrays = LazyModule("mainspring.retrieval.passage_arrays")

LAYOUT = 5
"""The version of the tables; an index with another version is rebuilt."""
_WITHOUT_VECTORS = "/words"
"""Added to the hash of a container that has no vectors yet, so that it is indexed again."""
# The best by words: in a small index, in a large one; and the nearest by vectors in a large one.
_SEEDS, _SEEDS_OF_LARGE, _NEAR_OF_LARGE = 150, 90, 40
_COMMON_SHARE = 0.05
"""In a large index, a word in a larger share of the passages is too common to find candidates."""
_LARGE = 5_000
"""A number of passages. With fewer, all words find candidates, which is slightly better."""
_MIN_RARE = 3  # words of a question; with fewer, its common words find candidates, too
ARRAYS_FROM = 1_000
"""The number of passages from which they are searched in memory, if numpy is installed."""
_DAY_SLACK = 3  # as in `passages.py`


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    text: str
    author: str = ""
    time: datetime | None = None
    title: str = ""
    """Searched with the text, but not for cues."""

    @property
    def whole(self) -> str:
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A file, a day or a conversation with its passages in order."""

    scope: str
    name: str
    hash: str
    """Hash of the source of the passages."""
    passages: Sequence[Passage]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageHit:
    scope: str
    container: str
    position: int
    scored: ScoredPassage


class TooManyPassages(Exception):
    """There are too many passages for memory."""


class VectorsUnavailable(Exception):
    """The encoder does not answer; until it does, searches use only words."""


class Vectors(Protocol):
    """Vectors of passages, by an encoder: `retrieval/passage_vectors.py`. Raises:
    VectorsUnavailable."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def weights(self) -> Mapping[str, float]: ...
    def encode(self, containers: Sequence[Sequence[str]]) -> list[list[bytes]]:
        """A vector for each passage of each container."""
        ...

    @property
    def number_words(self) -> passage_arrays.NumberWords | None:
        """`None` if the encoder has no vectors of words."""
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
        """The similarity of the candidates as a whole, and word by word."""
        ...


@dataclass(frozen=True, slots=True)
class _Search:
    question: SearchQuestion
    statistics: CorpusStatistics
    whole: Mapping[int, float]
    weights: Mapping[str, float]
    seeds: list[int]
    limit: int


class PassageIndex:
    """Its methods block."""

    def __init__(
        self,
        store: PassageStore,
        *,
        vectors: Vectors | None = None,
        weights: Mapping[str, float] | None = None,
        arrays_from: float = ARRAYS_FROM,
    ) -> None:
        """`arrays_from`: a number of passages; infinite to never use numpy."""
        self._store = store
        self._arrays_from = arrays_from
        self._source: passage_arrays.ArraySource | None = None
        self._passages = -1
        self._vectors = vectors
        self._weights = weights or (WEIGHTS if vectors is None else vectors.weights)
        self.problem: str | None = None
        """Why the last search or change used no vectors."""
        of_vectors = "" if vectors is None else vectors.fingerprint
        self._fingerprint = f"{fingerprint()}/{LAYOUT}/{of_vectors}"
        store.require(self._fingerprint)

    def close(self) -> None:
        self._store.close()

    def hashes(self, scope: str) -> dict[str, str]:
        """The hashes of the indexed containers, by name."""
        return self._store.hashes(scope)

    def put(self, *containers: Container) -> None:
        """Replace the passages of containers, all or none."""
        self._store.put(self._stored(containers))

    def remove(self, scope: str, *containers: str) -> None:
        self._store.remove(scope, containers)

    def clear(self) -> None:
        self._store.clear()

    def purge(self) -> None:
        """Erase all removed text from the files of the store."""
        self._store.purge()

    def search(
        self,
        query: str,
        scopes: Collection[str],
        limit: int,
        unindexed: Sequence[Container] = (),
    ) -> list[PassageHit]:
        """The passages in these scopes that match a question best. `unindexed` containers are
        ranked with them, too."""
        question, allowed, self.problem = SearchQuestion.of(query), sorted(scopes), None
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
        extra_rows = [row for row, _ in extra.values()]
        statistics = statistics.with_rows(extra_rows, question.terms)
        whole = source.container_scores(question.terms, allowed) if allowed else {}
        whole |= container_scores_of(extra_rows, question.terms)
        weights = WEIGHTS if self.problem else self._weights
        search = _Search(question, statistics, whole, weights, seeds, limit)
        if arrays is None:
            best = self._best_by_rows(search, allowed, extra_rows)
        else:
            rows = [(place.scope, row) for row, place in extra.values()]
            arrays = arrays.extended(rows, self._number_words)
            best = self._best_by_arrays(search, arrays, list(extra))
        places = self._store.places([item.number for item in best if item.number > 0])
        places |= {number: place for number, (_, place) in extra.items()}
        return _hits(best, places)

    def _best_by_rows(
        self, search: _Search, scopes: list[str], unindexed: list[PassageRow]
    ) -> list[ScoredPassage]:
        candidates = {seed + offset for seed in search.seeds for offset in range(-SPAN, SPAN + 1)}
        around = candidates.union(*({at + offset for at in candidates} for offset in NEAR))
        rows = [*self._store.rows(around, scopes), *unindexed]
        numbers = [row.number for row in unindexed]
        if self._has_vectors:
            arrays = passage_arrays.PassageArrays.of_rows(rows, self._number_words)
            return self._best_by_arrays(search, arrays, numbers)
        scorer = PassageScorer(
            search.question, search.statistics, rows, search.whole, search.weights
        )
        return scorer.best(candidates.union(numbers), search.limit)

    def _best_by_arrays(
        self, search: _Search, arrays: passage_arrays.PassageArrays, unindexed: list[int]
    ) -> list[ScoredPassage]:
        around = array_scorer.CandidatePassages.of(arrays, search.seeds, unindexed)
        if not len(around.places):
            return []
        scorer = array_scorer.ArrayScorer(
            search.question, search.statistics, around, search.whole, search.weights
        )
        if self._vectors is not None and self._has_vectors:
            values = self._vectors.values(search.question.text, around, scorer.rarity)
            scorer.add_vector_values(*values)
        return scorer.best(search.limit)

    @property
    def _has_vectors(self) -> bool:
        return self._vectors is not None and not self.problem

    @property
    def _number_words(self) -> passage_arrays.NumberWords | None:
        return None if self._vectors is None else self._vectors.number_words

    def _arrays(self) -> passage_arrays.PassageArrays | None:
        """The passages in memory; `None` to use the store. A process that searches once does not
        read them all, unless it needs their vectors."""
        is_useful = self._vectors is not None or self._passages >= self._arrays_from
        if not is_useful or self._arrays_from == math.inf:
            return None
        try:
            if self._source is None:
                self._source = passage_arrays.ArraySource(self._store, self._number_words)
            return self._source.current()
        except (ModuleNotFoundError, TooManyPassages):
            self._source, self._arrays_from = None, math.inf
            return None

    def _unindexed_rows(
        self, containers: Sequence[Container]
    ) -> dict[int, tuple[PassageRow, Place]]:
        """Passages that are not in the index, with unused numbers."""
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
        question: SearchQuestion,
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
        """The nearest passages by vectors; `None` if there are no vectors now."""
        if self._vectors is None:
            return None
        try:
            limit = _NEAR_OF_LARGE if statistics.passages > _LARGE else _SEEDS
            return self._vectors.nearest(arrays or self._store, query, scopes, limit)
        except VectorsUnavailable as error:
            self.problem = str(error)
            return None

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
