"""BM25 over texts with fields, in memory. Pure: the caller owns what is ranked and where it is
stored.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from mainspring.retrieval.stems import STOP_WORDS, name_words, stem, words
from mainspring.retrieval.thesaurus import related_stems

_K1 = 1.2
_B = 0.6  # descriptions differ in length for no deep reason
_FIELD_WEIGHTS = (4.0, 1.0, 0.4)  # of a name, a text and keywords
_RELATED_WEIGHT = 0.4
_COVERAGE_WEIGHT = 0.5
_EXACT = 1000.0


class Text(Struct, frozen=True):
    """What is ranked: the name counts most, the keywords least."""

    key: str
    name: str
    text: str
    keywords: str = ""


class Bm25Index:
    """Finds texts by what they say, in the words of the asker or in related ones."""

    def __init__(self, texts: Sequence[Text] | Mapping[str, str]) -> None:
        if isinstance(texts, Mapping):
            texts = [Text(name, name, text) for name, text in texts.items()]
        by_name = {text.key: text for text in texts}
        self._names = sorted(by_name)
        self._postings: dict[str, dict[int, float]] = defaultdict(dict)
        fields = [_fields(by_name[name]) for name in self._names]
        means = (
            [max(1.0, sum(len(text[at]) for text in fields) / len(fields)) for at in range(3)]
            if fields
            else []
        )
        for number, text in enumerate(fields):
            for stems, mean, weight in zip(text, means, _FIELD_WEIGHTS, strict=True):
                spread = 1 - _B + _B * len(stems) / mean
                for word, count in Counter(stems).items():
                    weights = self._postings[word]
                    weights[number] = weights.get(number, 0.0) + weight * count / spread

    def search(self, query: str, count: int) -> list[str]:
        """The names that fit a query, best first; the same order for the same texts."""
        scores = self.scores(query)
        return sorted(scores, key=lambda name: (-scores[name], name))[:count]

    def scores(self, query: str) -> dict[str, float]:
        """How well each name fits, for those that fit at all."""
        totals: dict[int, float] = defaultdict(float)
        coverage: dict[int, float] = defaultdict(float)
        asked = list(dict.fromkeys(_query_stems(query)))
        weight_of = {word: self._rarity(word) for word in asked}
        everything = sum(weight_of.values()) or 1.0
        for word in asked:
            for number, score in self._word_scores(word).items():
                totals[number] += score
                coverage[number] += weight_of[word] / everything
        scores = {
            self._names[number]: total
            * (1 - _COVERAGE_WEIGHT + _COVERAGE_WEIGHT * coverage[number])
            for number, total in totals.items()
        }
        for name in self._names:
            if name.lower() == query.strip().lower():
                scores[name] = scores.get(name, 0.0) + _EXACT
        return scores

    def _rarity(self, word: str) -> float:
        having = len(self._postings.get(word, ()))
        return math.log(1 + (len(self._names) - having + 0.5) / (having + 0.5))

    def _word_scores(self, word: str) -> dict[int, float]:
        """Of the texts that have the word, or else a related one: the best of these counts."""
        best: dict[int, float] = {}
        for other in (word, *related_stems().get(word, ())):
            weights = self._postings.get(other)
            if not weights:
                continue
            factor = self._rarity(other) * (_K1 + 1) * (1.0 if other == word else _RELATED_WEIGHT)
            for number, weight in weights.items():
                score = factor * weight / (weight + _K1)
                if score > best.get(number, 0.0):
                    best[number] = score
        return best


def tokenize(text: str) -> list[str]:
    """The stems of a text or of a name in any case."""
    return [stem(word) for word in name_words(text)]


def _query_stems(query: str) -> list[str]:
    found = [word for word in name_words(query) if word not in STOP_WORDS]
    return [stem(word) for word in found or words(query)]


def _fields(text: Text) -> tuple[list[str], list[str], list[str]]:
    name, body, keywords = (
        [stem(word) for word in name_words(part) if word not in STOP_WORDS]
        for part in (text.name, text.text, text.keywords)
    )
    return name, body, keywords
