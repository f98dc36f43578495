"""Vectors of passages in the index's own file: which are near a question, and how near.

A vector is of a passage with its neighbours, one byte a dimension. All of a scope are compared; up
to a hundred thousand that takes less than finding candidates by words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from mainspring.retrieval.passage_index import PassageStore
from mainspring.retrieval.passage_weights import VECTOR_WEIGHTS, WHOLE_VECTOR_WEIGHTS
from mainspring.retrieval.passages import PassageRow
from mainspring.retrieval.static_vectors import Encoder, Matrix
from mainspring.retrieval.stems import content_words, stem

_SPAN = 1
"""Passages on either side that are encoded with one."""
_MIN_SIMILARITY = 0.35
"""Of two words that count as meaning something alike."""
_SCALE = 127.0
_BLOCK = 8_192
_MAX_CACHED = 20_000
"""Passages whose words are known by number."""


class PassageVectors:
    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.fingerprint = encoder.fingerprint
        self.weights = VECTOR_WEIGHTS if encoder.knows_words else WHOLE_VECTOR_WEIGHTS
        self._cached: tuple[object, NDArray[np.int64], NDArray[np.int8]] | None = None
        self._word_numbers: dict[str, int] = {}
        self._word_vectors: Matrix = np.zeros((0, 1), np.float32)
        self._passage_words: dict[str, NDArray[np.int32]] = {}

    def encode(self, containers: Sequence[Sequence[str]]) -> list[list[bytes]]:
        windows = [
            " ".join(texts[max(0, at - _SPAN) : at + _SPAN + 1])
            for texts in containers
            for at in range(len(texts))
        ]
        rows = np.rint(self._encoder.encode(windows) * _SCALE).astype(np.int8)
        vectors = (row.tobytes() for row in rows)
        return [list(islice(vectors, len(texts))) for texts in containers]

    def nearest(
        self, store: PassageStore, query: str, scopes: Sequence[str], limit: int
    ) -> list[int]:
        question = self._encoder.encode([query])[0]
        numbers, rows = self._rows(store, scopes)
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
        self, query: str, rows: Sequence[PassageRow], rarity: Mapping[str, float]
    ) -> dict[int, dict[str, float]]:
        """How near passages are: as a whole, and word by word."""
        having = [row for row in rows if row.vector is not None]
        if not having:
            return {}
        question = self._encoder.encode([query])[0]
        matrix = np.frombuffer(b"".join(row.vector or b"" for row in having), np.int8)
        near = _products(matrix.reshape(len(having), -1), question) / _SCALE
        words = self._word_scores(query, [row.words for row in having], rarity)
        return {
            row.number: {"vector": float(near[at]), "words": float(words[at])}
            for at, row in enumerate(having)
        }

    def _word_scores(
        self, query: str, passages: Sequence[str], rarity: Mapping[str, float]
    ) -> NDArray[np.float64]:
        """For each word of the question the most similar word of the passage; rare words count
        more."""
        scores = np.zeros(len(passages))
        asked = [word for word in dict.fromkeys(content_words(query)) if stem(word) in rarity]
        if not self._encoder.knows_words or not asked:
            return scores
        weights = np.array([rarity[stem(word)] for word in asked])
        of_passages = self._numbers(passages)
        lengths = np.array([len(numbers) for numbers in of_passages])
        numbers = np.concatenate(of_passages)
        if not len(numbers) or not weights.sum():
            return scores
        is_used = np.zeros(len(self._word_vectors), bool)
        is_used[numbers] = True
        used, place_of = np.flatnonzero(is_used), np.cumsum(is_used) - 1
        places = place_of[numbers]
        similar = np.stack(
            [_products(self._word_vectors[used], word) for word in self._encoder.encode(asked)]
        )
        similar[similar < _MIN_SIMILARITY] = 0.0
        present = lengths > 0
        starts = (np.cumsum(lengths) - lengths)[present]
        best = np.maximum.reduceat(similar[:, places], starts, axis=1)
        scores[present] = (weights @ best) / weights.sum()
        return scores

    def _numbers(self, passages: Sequence[str]) -> list[NDArray[np.int32]]:
        """The words of each passage, as rows of `_word_vectors`."""
        missing = [text for text in passages if text not in self._passage_words]
        if len(self._passage_words) + len(missing) > _MAX_CACHED:
            self._passage_words.clear()
            missing = list(passages)
        words = {text: text.split() for text in missing}
        known = self._word_numbers
        unknown = [
            word
            for word in dict.fromkeys(word for several in words.values() for word in several)
            if word not in known
        ]
        if unknown:
            vectors = self._encoder.encode(unknown)
            first = len(known)
            self._word_vectors = np.concatenate([self._word_vectors, vectors]) if first else vectors
            known |= {word: first + at for at, word in enumerate(unknown)}
        for text, several in words.items():
            self._passage_words[text] = np.array([known[word] for word in several], np.int32)
        return [self._passage_words[text] for text in passages]

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
    """In this thread: for a product of this size, the threads of BLAS take twice as much of the
    processor."""
    return np.einsum("ij,j->i", rows.astype(np.float32, copy=False), vector)
