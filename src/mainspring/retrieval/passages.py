"""Ranks passages by a question, with what a store knows of them: the passages around them, what
they belong to, who wrote them, and when; with vectors, how near they are. No model.

The weights were fitted on two-person conversations (LoCoMo, see `bench/memory_weights.py`). A
passage that stands alone has only its own words and its date, and these count as much as they do
there.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from mainspring.retrieval.cues import QueryCues
from mainspring.retrieval.stems import stems
from mainspring.retrieval.thesaurus import related_stems

SPAN = 2
"""Passages on either side that count as the surroundings of one."""
_K1 = 0.9
_OWN_B, _WINDOW_B = 0.3, 0.4
_DAY_SLACK = 3
_MAX_DEEP = 80
WEIGHTS: Mapping[str, float] = {
    "own": 4.7,
    "window": 6.8,
    "previous": 3.0,
    "container": 3.4,
    "whole": 0.8,
    "pairs": 2.0,
    "related": 1.0,
    "length": 0.35,
    "question": -0.75,
    "time": 0.2,
    "when": 1.75,
    "author": 2.9,
    "month": 3.0,
    "day": 3.9,
    "year": 1.1,
    "number": 0.9,
    "name": 1.2,
    "after_question": 0.5,
}

VECTOR_WEIGHTS: Mapping[str, float] = {
    "own": 0.0,
    "window": 3.2,
    "previous": 3.0,
    "container": 0.0,
    "whole": 1.3,
    "pairs": 1.5,
    "related": 0.4,
    "length": 0.3,
    "question": -0.6,
    "time": 0.3,
    "when": 1.8,
    "author": 2.8,
    "month": 3.7,
    "day": 3.6,
    "year": 0.6,
    "number": 1.1,
    "name": 1.0,
    "after_question": 0.5,
    "vector": 3.7,
    "words": 2.8,
    "words_nearby": 2.6,
}
"""With vectors of texts and words; `bench/memory_weights.py` fits them."""
WHOLE_VECTOR_WEIGHTS: Mapping[str, float] = {
    "own": 3.6,
    "window": 3.7,
    "previous": 2.7,
    "container": 3.2,
    "whole": 1.4,
    "pairs": 1.8,
    "related": 0.8,
    "length": 0.55,
    "question": -0.6,
    "time": 0.3,
    "when": 1.8,
    "author": 2.85,
    "month": 3.7,
    "day": 3.5,
    "year": 0.6,
    "number": 1.1,
    "name": 1.0,
    "after_question": 0.45,
    "vector": 4.7,
    "words": 0.0,
    "words_nearby": 0.0,
}
"""With vectors of texts only, as an embedding endpoint gives them."""


@dataclass(slots=True)
class PassageRow:
    """A passage as an index gives it to be scored."""

    number: int
    """Neighbours in the same container have neighbouring numbers."""
    container: int
    author: str
    year: int
    month: int
    day: int
    flags: int
    vector: bytes | None
    words: str
    stems: list[str]

    @property
    def is_question(self) -> int:
        return self.flags & 1

    @property
    def has_time(self) -> int:
        return self.flags >> 1 & 1

    @property
    def has_number(self) -> int:
        return self.flags >> 2 & 1

    @property
    def has_name(self) -> int:
        return self.flags >> 3 & 1


@dataclass(frozen=True, slots=True)
class CorpusFacts:
    """What the weights of words follow from."""

    passages: int
    mean_length: float
    frequency: Mapping[str, int]
    """Passages that have a stem, for those of the query."""


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    stems: tuple[str, ...]
    cues: QueryCues

    @classmethod
    def of(cls, text: str) -> Question:
        return cls(text, tuple(stems(text)), QueryCues.of(text))

    @property
    def terms(self) -> list[str]:
        return list(dict.fromkeys(self.stems))


@dataclass(frozen=True, slots=True)
class ScoredPassage:
    number: int
    score: float
    parts: Mapping[str, float]
    """What the score is the sum of."""
    overlap: float
    """How much of the question it says in its own words: about 0.5 if it has each of them once."""


class PassageScorer:
    """Scores the candidates of one question. `rows` has them and the passages around them."""

    def __init__(
        self,
        question: Question,
        facts: CorpusFacts,
        rows: Iterable[PassageRow],
        container_scores: Mapping[int, float],
        weights: Mapping[str, float] = WEIGHTS,
    ) -> None:
        self._question = question
        self._weights = weights
        self._rows = {row.number: row for row in rows}
        best = max(container_scores.values(), default=0.0) or 1.0
        self._whole = {number: score / best for number, score in container_scores.items()}
        self._facts = facts
        self._related = related_stems()
        terms = frozenset(question.stems)
        self._counts = {  # most rows are only near to one that has a word of the question
            number: _counts([word for word in row.stems if word in terms])
            for number, row in self._rows.items()
            if not terms.isdisjoint(row.stems)
        }
        self.rarity: Mapping[str, float] = {
            word: self._weight(facts.frequency.get(word, 0)) for word in terms
        }
        window_size = 2 * SPAN
        self._window_rarity = {
            word: self._weight(min(facts.passages, window_size * facts.frequency.get(word, 0)))
            for word in terms
        }
        self._total_rarity = sum(self.rarity.values())
        self._total_window_rarity = sum(self._window_rarity.values())
        self._own = {number: self._own_score(number) for number in self._counts}
        self._in_other_words = frozenset[str]().union(
            *(self._related.get(word, ()) for word in terms)
        )
        self._best: dict[int, float] = {}
        for number, score in self._own.items():
            container = self._rows[number].container
            self._best[container] = max(score, self._best.get(container, 0.0))
        self._more: dict[int, dict[str, float]] = {}
        cues = question.cues
        authors = {row.author for row in self._rows.values()} & cues.speakers
        self._author = next(iter(authors)) if len(authors) == 1 else None
        self._has_row_cues = bool(self._author or cues.months or cues.years)
        self._flag_scores: dict[int, float] = {}

    def add_values(self, values: dict[int, dict[str, float]]) -> None:
        """What vectors say of the rows."""
        best: dict[int, float] = {}
        for number, more in values.items():
            container = self._rows[number].container
            best[container] = max(more["words"], best.get(container, 0.0))
        for number, more in values.items():
            more["words_nearby"] = best[self._rows[number].container]
        self._more = values

    def best(self, candidates: Iterable[int], limit: int) -> list[ScoredPassage]:
        """Only those that may be among them are explained: that costs as much as all the rest."""
        scores = [
            (-self._score(row), number)
            for number in candidates
            if (row := self._rows.get(number)) is not None
        ]
        promising = heapq.nsmallest(max(_MAX_DEEP, limit), scores)
        deep = [self._with_pairs(self._explained(number)) for _, number in promising]
        return sorted(deep, key=lambda item: (-item.score, item.number))[:limit]

    def _explained(self, number: int) -> ScoredPassage:
        parts = self._parts(number)
        return ScoredPassage(number, sum(parts.values()), parts, self._own.get(number, 0.0))

    def _weight(self, having: int) -> float:
        total = self._facts.passages
        return math.log((total - having + 0.5) / (having + 0.5) + 1)

    def _own_score(self, number: int) -> float:
        length = len(self._rows[number].stems) / self._facts.mean_length
        spread = _K1 * (1 - _OWN_B + _OWN_B * length)
        score = sum(
            self.rarity[word] * count * (_K1 + 1) / (count + spread)
            for word, count in self._counts[number].items()
        )
        return score / (self._total_rarity * (_K1 + 1))

    def _window_score(self, row: PassageRow) -> float:
        counts: dict[str, int] = {}
        length, rows, known = 0, self._rows, self._counts
        for number in range(row.number - SPAN, row.number + SPAN + 1):
            other = rows.get(number)
            if other is not None and other.container == row.container:
                length += len(other.stems)
                if (more := known.get(number)) is not None:
                    for word, count in more.items():
                        counts[word] = counts.get(word, 0) + count
        mean = self._facts.mean_length * (2 * SPAN + 1) * 0.9
        spread = _K1 * (1 - _WINDOW_B + _WINDOW_B * length / mean)
        rarity, score = self._window_rarity, 0.0
        for word, count in counts.items():
            score += rarity[word] * count * (_K1 + 1) / (count + spread)
        return score / (self._total_window_rarity * (_K1 + 1))

    def _score(self, row: PassageRow) -> float:
        """The sum of its parts but for pairs of words."""
        weights, number = self._weights, row.number
        score = (
            weights["own"] * self._own.get(number, 0.0)
            + weights["window"] * self._window_score(row)
            + weights["container"] * self._best.get(row.container, 0.0)
            + weights["whole"] * self._whole.get(row.container, 0.0)
            + weights["related"] * self._related_score(row)
            + weights["length"] * _log_of_length(len(row.stems))
            + self._flag_score(row)
        )
        previous = self._rows.get(number - 1)
        if previous is not None and previous.container == row.container:
            score += weights["previous"] * self._own.get(number - 1, 0.0)
            score += weights["after_question"] * previous.is_question
        if self._has_row_cues:
            score += self._sum(self._row_cues(row))
        return score + self._sum(self._more.get(number, {}))

    def _sum(self, values: Mapping[str, float]) -> float:
        return sum(self._weights[name] * value for name, value in values.items())

    def _flag_score(self, row: PassageRow) -> float:
        if (score := self._flag_scores.get(row.flags)) is None:
            score = self._flag_scores[row.flags] = self._sum(self._flag_values(row))
        return score

    def _parts(self, number: int) -> dict[str, float]:
        row = self._rows[number]
        values = {
            "own": self._own.get(number, 0.0),
            "window": self._window_score(row),
            "container": self._best.get(row.container, 0.0),
            "whole": self._whole.get(row.container, 0.0),
            "related": self._related_score(row),
            "length": _log_of_length(len(row.stems)),
            **self._flag_values(row),
            **self._row_cues(row),
            **self._more.get(number, {}),
        }
        previous = self._rows.get(number - 1)
        if previous is not None and previous.container == row.container:
            values["previous"] = self._own.get(number - 1, 0.0)
            values["after_question"] = previous.is_question
        return {name: self._weights[name] * value for name, value in values.items() if value}

    def _related_score(self, row: PassageRow) -> float:
        """Words of the question that the passage says in other words."""
        if self._in_other_words.isdisjoint(row.stems):
            return 0.0
        present = frozenset(row.stems)
        missing = [word for word in self.rarity if word not in present]
        score = sum(
            self.rarity[word]
            for word in missing
            if not present.isdisjoint(self._related.get(word, ()))
        )
        return score / self._total_rarity

    def _flag_values(self, row: PassageRow) -> dict[str, float]:
        cues = self._question.cues
        return {
            "question": row.is_question,
            "time": row.has_time,
            "when": cues.asks_when * row.has_time,
            "number": cues.asks_how_many * row.has_number,
            "name": cues.asks_name * row.has_name,
        }

    def _row_cues(self, row: PassageRow) -> dict[str, float]:
        """Who wrote it and when."""
        cues = self._question.cues
        is_month = row.month in cues.months
        is_day = is_month and cues.day is not None and abs(row.day - cues.day) <= _DAY_SLACK
        return {
            "author": float(self._author is not None and row.author == self._author),
            "month": is_month,
            "day": is_day,
            "year": row.year in cues.years,
        }

    def _with_pairs(self, item: ScoredPassage) -> ScoredPassage:
        asked = _pairs(self._question.stems)
        shared = asked & _pairs(self._rows[item.number].stems)
        if not shared:
            return item
        value = self._weights["pairs"] * len(shared) / len(asked)
        parts = {**item.parts, "pairs": value}
        return ScoredPassage(item.number, item.score + value, parts, item.overlap)


def _counts(words: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


@cache
def _log_of_length(words: int) -> float:
    return math.log1p(words)


def _pairs(words: Sequence[str]) -> set[tuple[str, str]]:
    return set(pairwise(words))
