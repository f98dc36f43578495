"""Ranks passages like `passages.py`, but all candidates at once with numpy. Scores are the same to
nine digits; `passages.py` explains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mainspring.retrieval.cues import ASKS, IS_PERSONAL
from mainspring.retrieval.passage_arrays import Floats, Ints, PassageArrays
from mainspring.retrieval.passages import (
    DAY_SLACK,
    DIGITS,
    K1,
    MAX_DEEP,
    NEAR,
    OWN_B,
    SPAN,
    WINDOW_B,
    WINDOW_LENGTH,
    CorpusStatistics,
    ScoredPassage,
    SearchQuestion,
    shared_pairs,
)
from mainspring.retrieval.thesaurus import related_stems

Places: TypeAlias = NDArray[np.int64]
_OFFSETS = np.arange(-SPAN, SPAN + 1)
_NEAR = np.array([0, *NEAR])


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePassages:
    """The candidates of a question and the passages around them, as positions in the arrays."""

    arrays: PassageArrays
    rows: Places
    places: Places
    """Places in `rows`."""

    @classmethod
    def of(
        cls, arrays: PassageArrays, seeds: Sequence[int], single: Sequence[int]
    ) -> CandidatePassages:
        """The candidates: seeds with their neighbours, and single passages without them."""
        numbers = np.array(seeds, np.int64)[:, None] + _OFFSETS
        candidates = np.union1d(numbers.ravel(), np.array(single, np.int64))
        around = np.unique((candidates[:, None] + _NEAR).ravel())
        rows, positions = arrays.positions(around), arrays.positions(candidates)
        return cls(arrays=arrays, rows=rows, places=np.searchsorted(rows, positions))

    def neighbours(self, offset: int) -> tuple[Places, NDArray[np.bool_]]:
        """For each candidate the place of another row in the same container, if there is one."""
        container, positions = self.arrays.columns.container, self.rows[self.places]
        # all passages between two of a container are rows, if these are near enough to count
        places = np.clip(self.places + offset, 0, len(self.rows) - 1)
        exists = self.rows[places] == positions + offset
        exists &= container[self.rows[places]] == container[positions]
        return places, exists


def places_of_words(rows: Places, starts: Places, sizes: Ints) -> Places:
    """The places of the words of rows in a column of words."""
    counts = sizes[rows].astype(np.int64)
    shift = starts[rows] - (np.cumsum(counts) - counts)
    return np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(shift, counts)


class ArrayScorer:
    def __init__(
        self,
        question: SearchQuestion,
        statistics: CorpusStatistics,
        around: CandidatePassages,
        container_scores: Mapping[int, float],
        weights: Mapping[str, float],
    ) -> None:
        self._question = question
        self._weights = weights
        self._around = around
        self._columns = around.arrays.columns
        self._mean_length = statistics.mean_length
        self.rarity = statistics.rarity(question.terms)
        self._rarity = np.array(list(self.rarity.values()))
        self._window_rarity = np.array(list(statistics.rarity(question.terms, 2 * SPAN).values()))
        self._lengths = around.arrays.lengths[around.rows]
        self._flags = self._columns.flags[around.rows]
        containers = self._columns.container[around.rows]
        is_first = np.diff(containers, prepend=0) != 0
        self._firsts = np.flatnonzero(is_first)
        self._container_at = np.cumsum(is_first) - 1
        self._containers = containers
        stem_numbers = around.arrays.numbering.stems
        self._question_pairs = frozenset(
            pairwise(stem_numbers.get(word, word) for word in question.stems)
        )
        self._values = self._word_values(container_scores)
        self._add_cues()

    def add_vector_values(self, vector: Floats, words: Floats) -> None:
        """Add the similarity of the candidates by vectors."""
        chosen = self._around.places
        best = np.zeros(len(self._firsts))
        np.maximum.at(best, self._container_at[chosen], words)
        nearby = best[self._container_at[chosen]]
        self._values |= {"vector": vector, "words": words, "words_nearby": nearby}

    def best(self, limit: int) -> list[ScoredPassage]:
        numbers = self._columns.number[self._around.rows[self._around.places]]
        scores = np.zeros(len(numbers))
        for name, values in self._values.items():
            scores += self._weights[name] * values
        order = np.lexsort((numbers, -np.round(scores, DIGITS)))[: max(MAX_DEEP, limit)]
        pairs = np.array([self._pairs(at) for at in order.tolist()])
        deep = np.round(scores[order] + self._weights["pairs"] * pairs, DIGITS)
        best = np.lexsort((numbers[order], -deep))[:limit]
        return [
            ScoredPassage(
                int(numbers[order[at]]),
                float(deep[at]),
                self._parts(int(order[at]), float(pairs[at])),
                float(self._own[self._around.places[order[at]]]),
            )
            for at in best.tolist()
        ]

    def _parts(self, at: int, pairs: float) -> dict[str, float]:
        values = {name: float(values[at]) for name, values in self._values.items()}
        values["pairs"] = pairs
        return {name: self._weights[name] * value for name, value in values.items() if value}

    def _pairs(self, at: int) -> float:
        arrays, position = self._around.arrays, self._around.rows[self._around.places[at]]
        start, size = arrays.starts[position], self._columns.size[position]
        return shared_pairs(
            self._question_pairs, self._columns.stems[start : start + size].tolist()
        )

    def _word_values(self, container_scores: Mapping[int, float]) -> dict[str, Floats]:
        around, chosen = self._around, self._around.places
        stems = self._columns.stems[
            places_of_words(around.rows, around.arrays.starts, self._columns.size)
        ]
        row_of = np.repeat(np.arange(len(around.rows)), self._columns.size[around.rows])
        counts = self._counts(stems, row_of)
        spread = K1 * (1 - OWN_B + OWN_B * self._lengths / self._mean_length)
        shares = self._rarity * counts / (counts + spread[:, None])
        total = self._rarity.sum()
        self._own: Floats = shares.sum(axis=1) / total
        near, window = shares[chosen], counts[chosen]
        length = self._lengths[chosen]
        for offset, factor in NEAR.items():
            places, exists = around.neighbours(offset)
            near = np.maximum(near, np.where(exists[:, None], factor * shares[places], 0.0))
            if abs(offset) <= SPAN:
                window = window + np.where(exists[:, None], counts[places], 0)
                length = length + np.where(exists, self._lengths[places], 0)
        spread = K1 * (1 - WINDOW_B + WINDOW_B * length / (self._mean_length * WINDOW_LENGTH))
        window = (self._window_rarity * window / (window + spread[:, None])).sum(axis=1)
        previous, exists = around.neighbours(-1)
        is_answer = exists & (self._flags[previous] & ASKS > 0)
        return {
            "near": near.sum(axis=1) / total,
            "window": window / self._window_rarity.sum(),
            "relative": self._own[chosen] / (self._own.max(initial=0.0) or 1.0),
            "answer": np.where(is_answer, self._own[previous], 0.0),
            "container": self._best_of_container(self._own)[chosen],
            "whole": self._whole(container_scores)[chosen],
            "related": self._related(stems, row_of, counts)[chosen],
            "length": np.log1p(self._lengths[chosen]),
        }

    def _counts(self, stems: NDArray[np.int32], row_of: Places) -> Places:
        """The count of each word of the question in each row."""
        stem_numbers, terms = self._around.arrays.numbering.stems, self._question.terms
        table = np.full(len(stem_numbers) + 1, -1, np.int32)
        for at, word in enumerate(terms):
            if (number := stem_numbers.get(word)) is not None:
                table[number] = at
        columns = table[stems]
        having = columns >= 0
        places = row_of[having] * len(terms) + columns[having]
        size = len(self._around.rows) * len(terms)
        return np.bincount(places, minlength=size).reshape(-1, len(terms))

    def _related(self, stems: NDArray[np.int32], row_of: Places, counts: Places) -> Floats:
        stem_numbers, related = self._around.arrays.numbering.stems, related_stems()
        terms = self._question.terms
        numbers = [
            [stem_numbers[other] for other in related.get(word, ()) if other in stem_numbers]
            for word in terms
        ]
        related_numbers = sorted({number for of_term in numbers for number in of_term})
        if not related_numbers:
            return np.zeros(len(counts))
        table = np.full(len(stem_numbers) + 1, -1, np.int32)
        table[related_numbers] = np.arange(len(related_numbers))
        columns = table[stems]
        having = columns >= 0
        present = np.zeros((len(counts), len(related_numbers)), np.float32)
        present[row_of[having], columns[having]] = 1.0
        is_related = np.zeros((len(related_numbers), len(terms)), np.float32)
        for at, of_term in enumerate(numbers):
            is_related[table[of_term], at] = 1.0
        has_only_related = (present @ is_related > 0) & (counts == 0)
        return (has_only_related * self._rarity).sum(axis=1) / self._rarity.sum()

    def _best_of_container(self, values: Floats) -> Floats:
        if not len(values):
            return values
        return np.maximum.reduceat(values, self._firsts)[self._container_at]

    def _whole(self, scores: Mapping[int, float]) -> Floats:
        best = max(scores.values(), default=0.0) or 1.0
        numbers = self._containers[self._firsts].tolist()
        return np.array([scores.get(at, 0.0) / best for at in numbers])[self._container_at]

    def _add_cues(self) -> None:
        cues, columns, chosen = self._question.cues, self._columns, self._around.places
        flags, rows = self._flags[chosen], self._around.rows[chosen]
        values = {name: flags & flag > 0 for name, flag in cues.flag_values.items()}
        author_numbers = self._around.arrays.numbering.authors
        names = {number: name for name, number in author_numbers.items()}
        present = np.unique(columns.author[self._around.rows]).tolist()
        author = cues.author([names[number] for number in present])
        if author is not None:
            values["author"] = columns.author[rows] == author_numbers[author]
            values["self"] = values["author"] & (flags & IS_PERSONAL > 0)
        if cues.months:
            values["month"] = np.isin(columns.month[rows], list(cues.months))
            if cues.day is not None:
                is_near = np.abs(columns.day[rows] - cues.day) <= DAY_SLACK
                values["day"] = values["month"] & is_near
        if cues.years:
            values["year"] = np.isin(columns.year[rows], list(cues.years))
        self._values |= {name: value.astype(np.float64) for name, value in values.items()}
