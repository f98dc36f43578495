"""The passages of an index in memory, as numpy arrays: finds the same as a store, by the same
formulas and in the same order, several times as fast. They are read from a store once, then only
its changes. Scopes are compared in every query, as in a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mainspring.retrieval.passage_index import TooManyPassages
from mainspring.retrieval.passage_store import (
    MAX_CONTAINERS,
    MAX_DATED,
    SAMPLE,
    DateRange,
    PassageStore,
    Totals,
)
from mainspring.retrieval.passages import CorpusStatistics, PassageRow

Ints: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]
NumberWords: TypeAlias = Callable[[Sequence[str]], list[Ints]]
"""Returns the words of texts as the numbers of their vectors."""
MAX_PASSAGES, MAX_STEMS = 250_000, 6_000_000
"""With more, searches use the store, since they would take too much memory."""
_BATCH = 2_000  # rows moved into arrays at once
_K1, _B, _MIN_RARITY = 1.2, 0.75, 1e-6
"""The constants of BM25 in SQLite's FTS5."""
_DIGITS = 9  # as in `passages.py`: further digits depend on the order of addition


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Passages by number; the stems and words of all of them are concatenated."""

    number: NDArray[np.int64]
    container: NDArray[np.int64]
    scope: Ints
    author: Ints
    year: Ints
    month: Ints
    day: Ints
    flags: Ints
    size: Ints
    """The number of stems."""
    word_count: Ints
    stems: Ints
    words: Ints
    has_vector: NDArray[np.bool_]
    vectors: NDArray[np.int8]

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        width = max(part.vectors.shape[1] for part in parts)
        widened = [_widened(part, width) for part in parts]
        return cls(
            **{
                column.name: np.concatenate([getattr(part, column.name) for part in widened])
                for column in fields(cls)
            }
        )

    def only(self, chosen: NDArray[np.bool_]) -> Columns:
        ragged = {"stems": self.size, "words": self.word_count}
        return Columns(
            **{
                column.name: getattr(self, column.name)[
                    np.repeat(chosen, ragged[column.name]) if column.name in ragged else chosen
                ]
                for column in fields(self)
            }
        )


@dataclass(frozen=True, slots=True)
class Numbering:
    """Words, scopes and authors as numbers."""

    stems: dict[str, int] = field(default_factory=dict[str, int])
    scopes: dict[str, int] = field(default_factory=dict[str, int])
    authors: dict[str, int] = field(default_factory=dict[str, int])

    def columns(
        self, rows: Sequence[tuple[str, PassageRow]], number_words: NumberWords | None
    ) -> Columns:
        stems, scopes, authors = self.stems, self.scopes, self.authors
        texts = [row.stems if row.stems != [""] else [] for _, row in rows]
        words = number_words([row.words for _, row in rows]) if number_words else []
        numbers = [stems.setdefault(word, len(stems)) for word in chain.from_iterable(texts)]
        width = max((len(row.vector or b"") for _, row in rows), default=0)
        vectors = b"".join(row.vector or bytes(width) for _, row in rows)
        return Columns(
            number=np.array([row.number for _, row in rows], np.int64),
            container=np.array([row.container for _, row in rows], np.int64),
            scope=_ints(scopes.setdefault(scope, len(scopes)) for scope, _ in rows),
            author=_ints(authors.setdefault(row.author, len(authors)) for _, row in rows),
            year=_ints(row.year for _, row in rows),
            month=_ints(row.month for _, row in rows),
            day=_ints(row.day for _, row in rows),
            flags=_ints(row.flags for _, row in rows),
            size=_ints(map(len, texts)),
            word_count=_ints(map(len, words)) if words else np.zeros(len(rows), np.int32),
            stems=np.array(numbers, np.int32),
            words=np.concatenate(words) if words else np.zeros(0, np.int32),
            has_vector=np.array([row.vector is not None for _, row in rows], bool),
            vectors=np.frombuffer(vectors, np.int8).reshape(len(rows), width),
        )


class PassageArrays:
    """One state of an index; `ArraySource` updates it."""

    def __init__(self, columns: Columns, numbering: Numbering, containers: int) -> None:
        self.columns = columns
        self.numbering = numbering
        self.starts = np.cumsum(columns.size, dtype=np.int64) - columns.size
        self.word_starts = np.cumsum(columns.word_count, dtype=np.int64) - columns.word_count
        self.lengths = np.maximum(columns.size, 1)
        self._containers = containers
        self._passage_of = np.repeat(np.arange(len(columns.number), dtype=np.int32), columns.size)
        is_first = np.diff(columns.container, prepend=0) != 0
        self._container_at = (np.cumsum(is_first) - 1).astype(np.int32)
        firsts = np.flatnonzero(is_first)
        self._container_numbers = columns.container[firsts]
        self._container_scopes = columns.scope[firsts]
        self._container_sizes = (
            np.add.reduceat(columns.size, firsts) if len(firsts) else columns.size
        )
        self._cached_postings: tuple[tuple[str, ...], dict[str, tuple[Ints, Ints]]] | None = None

    @classmethod
    def of_rows(cls, rows: Iterable[PassageRow], number_words: NumberWords | None) -> PassageArrays:
        """The arrays of some passages of an index, for scoring."""
        ordered = sorted(rows, key=lambda row: row.number)
        numbering = Numbering()
        return cls(numbering.columns([("", row) for row in ordered], number_words), numbering, 0)

    def extended(
        self, rows: Sequence[tuple[str, PassageRow]], number_words: NumberWords | None
    ) -> PassageArrays:
        """The arrays with passages that are not in the index; their numbers come first."""
        if not rows:
            return self
        ordered = sorted(rows, key=lambda row: row[1].number)
        columns = Columns.joined([self.numbering.columns(ordered, number_words), self.columns])
        return PassageArrays(columns, self.numbering, self._containers)

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of passages, without numbers that do not exist."""
        existing = self.columns.number
        if not len(existing):
            return np.zeros(0, np.int64)
        places = np.minimum(np.searchsorted(existing, numbers), len(existing) - 1)
        return places[existing[places] == numbers]

    def statistics(self, terms: Sequence[str], scopes: Sequence[str]) -> CorpusStatistics:
        """The statistics of all scopes, as in a store."""
        newest = self.lengths[-SAMPLE:]
        frequency = {word: len(having) for word, (having, _) in self._postings(terms).items()}
        mean = float(newest.mean()) if len(newest) else 1.0
        return CorpusStatistics(len(self.lengths), mean, frequency)

    def find_words(self, terms: Sequence[str], scopes: Sequence[str], limit: int) -> list[int]:
        postings = list(self._postings(terms).values())
        scores = _bm25(postings, self.columns.size + 1, len(self.columns.size))
        chosen = _best(scores, self._allowed(self.columns.scope, scopes), limit)
        return self.columns.number[chosen].tolist()

    def container_scores(self, terms: Sequence[str], scopes: Sequence[str]) -> dict[int, float]:
        postings = [self._of_containers(*posting) for posting in self._postings(terms).values()]
        scores = _bm25(postings, self._container_sizes + 1, self._containers)
        chosen = _best(scores, self._allowed(self._container_scopes, scopes), MAX_CONTAINERS)
        numbers, values = self._container_numbers[chosen].tolist(), scores[chosen].tolist()
        return dict(zip(numbers, values, strict=True))

    def find_dates(self, dates: DateRange, scopes: Sequence[str]) -> list[int]:
        days = self.columns.day
        is_near = (days >= dates.first_day) & (days <= dates.last_day)
        is_near &= np.isin(self.columns.month, dates.months)
        is_near &= self._allowed(self.columns.scope, scopes)
        return self.columns.number[np.flatnonzero(is_near)[:MAX_DATED]].tolist()

    def vectors(self, scopes: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """The vectors of some scopes, with the numbers of their passages."""
        having = self.columns.has_vector & self._allowed(self.columns.scope, scopes)
        if having.all():
            return self.columns.number, self.columns.vectors
        return self.columns.number[having], self.columns.vectors[having]

    def _allowed(self, column: Ints, scopes: Sequence[str]) -> NDArray[np.bool_]:
        numbers = self.numbering.scopes
        allowed = np.zeros(len(numbers) + 1, bool)
        allowed[[numbers[scope] for scope in scopes if scope in numbers]] = True
        return allowed[column]

    def _postings(self, terms: Sequence[str]) -> dict[str, tuple[Ints, Ints]]:
        """The passages that have a word, and their counts. Those of the last question are cached,
        since its words first find candidates and then score them."""
        cached = self._cached_postings
        if cached is None or not set(terms) <= set(cached[0]):
            cached = self._cached_postings = (tuple(terms), self._scan(terms))
        return {word: cached[1][word] for word in terms if word in cached[1]}

    def _scan(self, terms: Sequence[str]) -> dict[str, tuple[Ints, Ints]]:
        numbers = self.numbering.stems
        words = [word for word in terms if word in numbers]
        table = np.zeros(len(numbers) + 1, np.uint8 if len(words) < 255 else np.uint16)
        for at, word in enumerate(words, 1):
            table[numbers[word]] = at
        slots = table[self.columns.stems]
        hits = np.flatnonzero(slots != 0)
        slots, passages = slots[hits], self._passage_of[hits]
        postings = {word: _runs(passages[slots == at], None) for at, word in enumerate(words, 1)}
        return {word: posting for word, posting in postings.items() if len(posting[0])}

    def _of_containers(self, passages: Ints, counts: Ints) -> tuple[Ints, Ints]:
        return _runs(self._container_at[passages], counts)


class ArraySource:
    """The arrays of a store in its current state."""

    def __init__(self, store: PassageStore, number_words: NumberWords | None) -> None:
        self._store = store
        self._number_words = number_words
        self._state: object = None
        self._created = ""
        self._arrays: PassageArrays | None = None

    def current(self) -> PassageArrays:
        """Raises: TooLarge."""
        state = self._store.vector_state()
        if self._arrays is None or state != self._state:
            totals = self._store.totals()
            earlier = self._arrays if totals.created == self._created else None
            self._arrays = self._updated(earlier, totals)
            self._state, self._created = state, totals.created
        return self._arrays

    def _updated(self, earlier: PassageArrays | None, totals: Totals) -> PassageArrays:
        if totals.passages > MAX_PASSAGES:
            raise TooManyPassages
        numbering = Numbering() if earlier is None else earlier.numbering
        parts = [numbering.columns([], None) if earlier is None else earlier.columns]
        last = int(parts[0].number[-1]) if len(parts[0].number) else 0
        while rows := self._store.rows_after(last, _BATCH):
            parts.append(numbering.columns(rows, self._number_words))
            last = rows[-1][1].number
            if sum(len(part.stems) for part in parts) > MAX_STEMS:
                raise TooManyPassages
        columns = Columns.joined(parts)
        if len(columns.number) != totals.passages:
            present = np.array(self._store.numbers(), np.int64)
            columns = columns.only(np.isin(columns.number, present))
        return PassageArrays(columns, numbering, totals.containers)


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int32)


def _widened(columns: Columns, width: int) -> Columns:
    if columns.vectors.shape[1] == width:
        return columns
    return replace(columns, vectors=np.zeros((len(columns.number), width), np.int8))


def _runs(sorted_values: Ints, counts: Ints | None) -> tuple[Ints, Ints]:
    """The distinct values, with their number or the sum of their counts."""
    if not len(sorted_values):
        return sorted_values, sorted_values
    firsts = np.flatnonzero(np.diff(sorted_values, prepend=-1))
    if counts is None:
        return sorted_values[firsts], np.diff(firsts, append=len(sorted_values)).astype(np.int32)
    return sorted_values[firsts], np.add.reduceat(counts, firsts)


def _bm25(postings: Sequence[tuple[Ints, Ints]], sizes: Ints, total: int) -> Floats:
    """BM25 as in SQLite's FTS5; the scope counts as one more word of each text."""
    scores = np.zeros(len(sizes))
    empty = total - len(sizes)
    mean = (float(sizes.sum()) + empty) / max(1, total)
    spread = _K1 * (1 - _B + _B * sizes / mean) if len(sizes) else scores
    for having, counts in postings:
        rarity = np.log((total - len(having) + 0.5) / (len(having) + 0.5))
        rarity = max(float(rarity), _MIN_RARITY)
        scores[having] += rarity * counts * (_K1 + 1) / (counts + spread[having])
    return np.round(scores, _DIGITS)


def _best(scores: Floats, allowed: NDArray[np.bool_], limit: int) -> NDArray[np.int64]:
    """The places with the best scores; among equals, the first."""
    places = np.flatnonzero((scores > 0) & allowed)
    values = scores[places]
    if len(places) > limit:
        lowest = np.partition(values, len(values) - limit)[len(values) - limit]
        places, values = places[values >= lowest], values[values >= lowest]
    return places[np.lexsort((places, -values))][:limit]
