"""BM25 over names and texts. Pure: the caller owns what is ranked and where it is stored."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")
_K1, _B = 1.2, 0.6  # the usual ones of BM25; descriptions differ in length for no deep reason
_NAME_WEIGHT = 4
_EXACT = 1000.0


@dataclass(frozen=True, slots=True)
class _Document:
    name: str
    words: Mapping[str, int]
    length: int


class Bm25Index:
    """Texts by name; the words of a name count more than those of its text."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._documents = [_document(name, text) for name, text in sorted(texts.items())]
        self._frequency = Counter(word for document in self._documents for word in document.words)
        total = sum(document.length for document in self._documents)
        self._mean = total / len(self._documents) if self._documents else 1.0

    def search(self, query: str, count: int) -> list[str]:
        """The names that fit a query, best first; the same order for the same texts."""
        scores = self.scores(query)
        return sorted(scores, key=lambda name: (-scores[name], name))[:count]

    def scores(self, query: str) -> dict[str, float]:
        """How well each name fits, for those that fit at all."""
        words = tokenize(query)
        scores = {
            document.name: self._score(words, query, document) for document in self._documents
        }
        return {name: score for name, score in scores.items() if score > 0}

    def _score(self, words: Sequence[str], query: str, document: _Document) -> float:
        exact = _EXACT if query.strip().lower() == document.name.lower() else 0.0
        return exact + sum(self._weight(word, document) for word in words)

    def _weight(self, word: str, document: _Document) -> float:
        count = document.words.get(word, 0)
        if not count:
            return 0.0
        having = self._frequency[word]
        rarity = math.log(1 + (len(self._documents) - having + 0.5) / (having + 0.5))
        spread = _K1 * (1 - _B + _B * document.length / self._mean)
        return rarity * count * (_K1 + 1) / (count + spread)


def tokenize(text: str) -> list[str]:
    """The words of a text or of a name in any case; plural and singular are one."""
    return [_stem(word.lower()) for word in _WORD.findall(text)]


def _document(name: str, text: str) -> _Document:
    in_name, in_text = tokenize(name), tokenize(text)
    words = Counter(in_text)
    for word in in_name:
        words[word] += _NAME_WEIGHT
    return _Document(name, words, len(in_text) + _NAME_WEIGHT * len(in_name))


def _stem(word: str) -> str:
    for endings in (("ies", "es", "s"), ("ing", "ed", "e", "y")):
        for ending in endings:
            if len(word) - len(ending) >= 3 and word.endswith(ending) and not word.endswith("ss"):
                word = word[: -len(ending)]
                break
    return word
