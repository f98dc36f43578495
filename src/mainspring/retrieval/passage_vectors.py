"""Vectors of passages in the store of the index, and their similarity to a question.

A vector represents a passage with its neighbours, one byte per dimension. All vectors of a scope
are compared; up to a hundred thousand, that is faster than finding candidates by words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from mainspring.retrieval.array_scorer import CandidatePassages, places_of_words
from mainspring.retrieval.passage_arrays import Floats, Ints, NumberWords, PassageArrays
from mainspring.retrieval.passage_store import PassageStore
from mainspring.retrieval.passage_weights import VECTOR_WEIGHTS, WHOLE_VECTOR_WEIGHTS
from mainspring.retrieval.static_vectors import Encoder, Matrix
from mainspring.retrieval.stems import content_words, stem

_SPAN = 1
"""The number of passages on either side that are encoded with one."""
_MIN_SIMILARITY = 0.35
"""The similarity from which two words count as related."""
_SCALE = 127.0  # to one signed byte
_BLOCK = 8_192  # rows multiplied at once


class PassageVectors:
    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.fingerprint = encoder.fingerprint
        self.weights = VECTOR_WEIGHTS if encoder.knows_words else WHOLE_VECTOR_WEIGHTS
        self._cached: tuple[object, NDArray[np.int64], NDArray[np.int8]] | None = None
        self._cached_question: tuple[str, Matrix] | None = None
        self._word_numbers: dict[str, int] = {}
        self._word_vectors: Matrix = np.zeros((0, 1), np.float32)

    def encode(self, containers: Sequence[Sequence[str]]) -> list[list[bytes]]:
        windows = [
            " ".join(texts[max(0, at - _SPAN) : at + _SPAN + 1])
            for texts in containers
            for at in range(len(texts))
        ]
        rows = np.rint(self._encoder.encode(windows) * _SCALE).astype(np.int8)
        vectors = (row.tobytes() for row in rows)
        return [list(islice(vectors, len(texts))) for texts in containers]

    @property
    def number_words(self) -> NumberWords | None:
        return self._numbers if self._encoder.knows_words else None

    def nearest(
        self, source: PassageStore | PassageArrays, query: str, scopes: Sequence[str], limit: int
    ) -> list[int]:
        question = self._question(query)
        if isinstance(source, PassageArrays):
            numbers, rows = source.vectors(scopes)
        else:
            numbers, rows = self._rows(source, scopes)
        if not len(numbers):
            return []
        scores = np.concatenate(
            [
                _products(rows[start : start + _BLOCK], question)
                for start in range(0, len(rows), _BLOCK)
            ]
        )
        count = min(limit, len(scores))
        best = np.argpartition(-scores, count - 1)[:count]
        return [int(number) for number in numbers[best]]

    def values(
        self, query: str, around: CandidatePassages, rarity: Mapping[str, float]
    ) -> tuple[Floats, Floats]:
        """The similarity of the candidates as a whole, and word by word."""
        arrays, rows = around.arrays, around.rows[around.places]
        columns = arrays.columns
        if not columns.vectors.shape[1]:
            return np.zeros(len(rows)), np.zeros(len(rows))
        question = self._question(query)
        near = (_products(columns.vectors[rows], question) / _SCALE).astype(np.float64)
        numbers = columns.words[places_of_words(rows, arrays.word_starts, columns.word_count)]
        return near, self._word_scores(query, numbers, columns.word_count[rows], rarity)

    def _word_scores(
        self, query: str, numbers: Ints, lengths: Ints, rarity: Mapping[str, float]
    ) -> Floats:
        """The similarity of each word of the question to the most similar word of a passage; rare
        words count more. `numbers` are the words of all passages, `lengths` their number per
        passage."""
        scores = np.zeros(len(lengths))
        words = [word for word in dict.fromkeys(content_words(query)) if stem(word) in rarity]
        if not self._encoder.knows_words or not words:
            return scores
        weights = np.array([rarity[stem(word)] for word in words])
        if not len(numbers) or not weights.sum():
            return scores
        is_used = np.zeros(len(self._word_vectors), bool)
        is_used[numbers] = True
        used_words, place_of = np.flatnonzero(is_used), np.cumsum(is_used) - 1
        places = place_of[numbers]
        vectors = self._word_vectors[used_words]
        similar = np.stack([_products(vectors, self._word(word)) for word in words])
        similar[similar < _MIN_SIMILARITY] = 0.0
        present = lengths > 0
        starts = (np.cumsum(lengths) - lengths)[present]
        best = np.maximum.reduceat(similar[:, places], starts, axis=1)
        scores[present] = (weights @ best) / weights.sum()
        return scores

    def _question(self, query: str) -> Matrix:
        """The vector of a question; cached, since finding and scoring both need it."""
        if self._cached_question is None or self._cached_question[0] != query:
            self._cached_question = (query, self._encoder.encode([query])[0])
        return self._cached_question[1]

    def _word(self, word: str) -> Matrix:
        number = self._word_numbers.get(word)
        return self._encoder.encode([word])[0] if number is None else self._word_vectors[number]

    def _numbers(self, passages: Sequence[str]) -> list[Ints]:
        """The words of each passage, as rows of `_word_vectors`."""
        if not self._encoder.knows_words:
            return [np.zeros(0, np.int32) for _ in passages]
        texts = [text.split() for text in passages]
        numbers = self._word_numbers
        new = [word for word in dict.fromkeys(chain.from_iterable(texts)) if word not in numbers]
        if new:
            vectors = self._encoder.encode(new)
            first = len(numbers)
            self._word_vectors = np.concatenate([self._word_vectors, vectors]) if first else vectors
            numbers |= {word: first + at for at, word in enumerate(new)}
        return [np.array([numbers[word] for word in words], np.int32) for words in texts]

    def _rows(
        self, store: PassageStore, scopes: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """All vectors of these scopes; read again if the index has changed."""
        key = (store.vector_state(), tuple(scopes))
        if self._cached is None or self._cached[0] != key:
            rows = list(store.vectors(scopes))
            matrix = np.frombuffer(b"".join(row[1] for row in rows), np.int8)
            numbers = np.array([row[0] for row in rows], np.int64)
            self._cached = (key, numbers, matrix.reshape(len(rows), -1) if rows else matrix)
        return self._cached[1], self._cached[2]


def _products(rows: NDArray[np.int8] | Matrix, vector: Matrix) -> Matrix:
    """The products, computed in this thread: at this size, the threads of BLAS take twice as much
    CPU time."""
    return np.einsum("ij,j->i", rows.astype(np.float32, copy=False), vector)
