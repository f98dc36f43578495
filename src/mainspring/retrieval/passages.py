"""Ranks passages by a question, with the data of a store: the passages around them, their
container, author and date. No model is used.

`array_scorer.py` computes the same with numpy, and adds vectors; change both together.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from mainspring.retrieval.cues import ASKS, IS_PERSONAL, QueryCues
from mainspring.retrieval.passage_weights import WEIGHTS
from mainspring.retrieval.stems import stems
from mainspring.retrieval.thesaurus import related_stems

SPAN = 2
"""The number of passages on either side that belong to the surroundings of one."""
K1 = 0.9  # of BM25: how fast a repeated word stops counting; the weights are fitted to it
OWN_B, WINDOW_B = 0.3, 0.4  # of BM25: how much length counts, of a passage and of its surroundings
DAY_SLACK = 3  # days: "last week" is seldom exact
MAX_DEEP = 80  # best candidates that get their pairs of words counted, which is slow
CONTAINER_K1, CONTAINER_B, _LEAST_RARITY = 1.2, 0.75, 1e-6
"""The constants of `bm25()` in SQLite's word index, which scores containers of a store: how fast a
repeated word stops counting, how much length counts, and the least weight of a common word."""
WINDOW_LENGTH = (2 * SPAN + 1) * 0.9
NEAR: Mapping[int, float] = {-1: 0.7, 1: 0.4, -2: 0.4, 2: 0.25, -3: 0.25, 3: 0.15, -4: 0.15}
"""The weights of words in the passages around one, by their distance before or after it."""
GAP = SPAN + max(map(abs, NEAR))
"""The free numbers between containers, so that surroundings never cross containers."""
DIGITS = 9
"""The digits of scores; further digits depend on the order of addition."""


@dataclass(slots=True)
class PassageRow:
    """A passage with the data for scoring."""

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


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """Statistics that determine the weights of words."""

    passages: int
    mean_length: float
    frequency: Mapping[str, int]
    """The number of passages with each stem of the query."""

    def rarity(self, words: Iterable[str], times: int = 1) -> dict[str, float]:
        """The weights of words, as if each were in `times` as many passages."""
        having = {word: times * self.frequency.get(word, 0) for word in words}
        total = self.passages
        return {
            word: math.log((total - min(total, count) + 0.5) / (min(total, count) + 0.5) + 1)
            for word, count in having.items()
        }

    def with_rows(self, rows: Sequence[PassageRow], terms: Sequence[str]) -> CorpusStatistics:
        """The statistics with passages that are in no index."""
        if not rows:
            return self
        frequency = Counter(self.frequency)
        for row in rows:
            frequency.update(set(row.stems).intersection(terms))
        length = self.mean_length * self.passages + sum(len(row.stems) for row in rows)
        passages = self.passages + len(rows)
        return CorpusStatistics(passages, length / passages or 1.0, frequency)


def container_scores_of(rows: Iterable[PassageRow], terms: Sequence[str]) -> dict[int, float]:
    """BM25 of each container as one text, as the word index of a store computes it, for passages
    that are in no index."""
    counts: dict[int, Counter[str]] = {}
    lengths: Counter[int] = Counter()
    wanted = frozenset(terms)
    for row in rows:
        own = counts.setdefault(row.container, Counter())
        own.update(word for word in row.stems if word in wanted)
        lengths[row.container] += len(row.stems)
    total = len(counts)
    mean = sum(lengths.values()) / max(1, total) or 1.0
    having = Counter(word for own in counts.values() for word in own)
    rarity = {
        word: max(_LEAST_RARITY, math.log((total - count + 0.5) / (count + 0.5)))
        for word, count in having.items()
    }
    return {
        container: sum(
            rarity[word]
            * count
            * (CONTAINER_K1 + 1)
            / (count + CONTAINER_K1 * (1 - CONTAINER_B + CONTAINER_B * lengths[container] / mean))
            for word, count in own.items()
        )
        for container, own in counts.items()
    }


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    text: str
    stems: tuple[str, ...]
    cues: QueryCues

    @classmethod
    def of(cls, text: str) -> SearchQuestion:
        return cls(text, tuple(stems(text)), QueryCues.of(text))

    @property
    def terms(self) -> list[str]:
        return list(dict.fromkeys(self.stems))


@dataclass(frozen=True, slots=True)
class ScoredPassage:
    number: int
    score: float
    parts: Mapping[str, float]
    """The parts that add up to the score."""
    overlap: float
    """How much of the question its own words contain: about 0.5 if it has each word once."""


class PassageScorer:
    """Scores the candidates of one question. `rows` contains them and the passages around them."""

    def __init__(
        self,
        question: SearchQuestion,
        statistics: CorpusStatistics,
        rows: Iterable[PassageRow],
        container_scores: Mapping[int, float],
        weights: Mapping[str, float] = WEIGHTS,
    ) -> None:
        self._question = question
        self._weights = weights
        self._rows = {row.number: row for row in rows}
        best = max(container_scores.values(), default=0.0) or 1.0
        self._whole = {number: score / best for number, score in container_scores.items()}
        self._mean_length = statistics.mean_length
        self._related = related_stems()
        terms = frozenset(question.stems)
        self._counts = {  # most rows are only near to one that has a word of the question
            number: _counts([word for word in row.stems if word in terms])
            for number, row in self._rows.items()
            if not terms.isdisjoint(row.stems)
        }
        self.rarity = statistics.rarity(question.terms)
        self._window_rarity = statistics.rarity(question.terms, 2 * SPAN)
        self._total_rarity = sum(self.rarity.values())
        self._total_window_rarity = sum(self._window_rarity.values())
        self._shares = {number: self._word_shares(number) for number in self._counts}
        self._own = {
            number: sum(shares.values()) / self._total_rarity
            for number, shares in self._shares.items()
        }
        self._best_own = max(self._own.values(), default=0.0) or 1.0
        self._related_to_terms = frozenset[str]().union(
            *(self._related.get(word, ()) for word in terms)
        )
        self._best: dict[int, float] = {}
        for number, score in self._own.items():
            container = self._rows[number].container
            self._best[container] = max(score, self._best.get(container, 0.0))
        self._question_pairs = frozenset(pairwise(question.stems))
        cues = question.cues
        self._author = cues.author({row.author for row in self._rows.values()})
        self._has_row_cues = bool(self._author or cues.months or cues.years)
        self._flags = cues.flag_values
        self._flag_scores: dict[int, float] = {}

    def best(self, candidates: Iterable[int], limit: int) -> list[ScoredPassage]:
        """The best candidates. Only likely ones are scored in full, since that is slow."""
        scores = [
            (-round(self._score(row), DIGITS), number)
            for number in candidates
            if (row := self._rows.get(number)) is not None
        ]
        promising = heapq.nsmallest(max(MAX_DEEP, limit), scores)
        deep = [self._explained(self._rows[number]) for _, number in promising]
        return sorted(deep, key=lambda item: (-item.score, item.number))[:limit]

    def _explained(self, row: PassageRow) -> ScoredPassage:
        values = {**self._word_values(row), **self._flag_values(row), **self._row_cues(row)}
        values["pairs"] = shared_pairs(self._question_pairs, row.stems)
        parts = {name: self._weights[name] * value for name, value in values.items() if value}
        score = round(sum(parts.values()), DIGITS)
        return ScoredPassage(row.number, score, parts, self._own.get(row.number, 0.0))

    def _word_shares(self, number: int) -> dict[str, float]:
        """The part of each word of the question in the score of a passage's own words."""
        length = len(self._rows[number].stems) / self._mean_length
        spread = K1 * (1 - OWN_B + OWN_B * length)
        rarity = self.rarity
        return {
            word: rarity[word] * count / (count + spread)
            for word, count in self._counts[number].items()
        }

    def _surroundings(self, row: PassageRow) -> tuple[float, float]:
        """The score of a passage and those around it as one text; and the score of each word where
        it counts most, in the passage or with less weight near it."""
        number, rows, known = row.number, self._rows, self._counts
        length = len(row.stems)
        counts, shares = dict(known.get(number, {})), dict(self._shares.get(number, {}))
        for offset, factor in NEAR.items():
            other = rows.get(number + offset)
            if other is None or other.container != row.container:
                continue
            if is_window := abs(offset) <= SPAN:
                length += len(other.stems)
            for word, count in known.get(other.number, {}).items():
                if is_window:
                    counts[word] = counts.get(word, 0) + count
                share = factor * self._shares[other.number][word]
                if share > shares.get(word, 0.0):
                    shares[word] = share
        spread = K1 * (1 - WINDOW_B + WINDOW_B * length / (self._mean_length * WINDOW_LENGTH))
        rarity, window = self._window_rarity, 0.0
        for word, count in counts.items():
            window += rarity[word] * count / (count + spread)
        return window / self._total_window_rarity, sum(shares.values()) / self._total_rarity

    def _word_values(self, row: PassageRow) -> dict[str, float]:
        window, near = self._surroundings(row)
        previous = self._rows.get(row.number - 1)
        is_answer = previous is not None and previous.flags & ASKS
        return {
            "near": near,
            "window": window,
            "relative": self._own.get(row.number, 0.0) / self._best_own,
            "answer": self._own.get(row.number - 1, 0.0) if is_answer else 0.0,
            "container": self._best.get(row.container, 0.0),
            "whole": self._whole.get(row.container, 0.0),
            "related": self._related_score(row),
            "length": _log_of_length(len(row.stems)),
        }

    def _score(self, row: PassageRow) -> float:
        """The sum of its parts except pairs of words."""
        score = self._sum(self._word_values(row)) + self._flag_score(row)
        if self._has_row_cues:
            score += self._sum(self._row_cues(row))
        return score

    def _sum(self, values: Mapping[str, float]) -> float:
        weights, score = self._weights, 0.0
        for name, value in values.items():
            score += weights[name] * value
        return score

    def _flag_score(self, row: PassageRow) -> float:
        if (score := self._flag_scores.get(row.flags)) is None:
            score = self._flag_scores[row.flags] = self._sum(self._flag_values(row))
        return score

    def _flag_values(self, row: PassageRow) -> dict[str, float]:
        return {name: float(row.flags & flag > 0) for name, flag in self._flags.items()}

    def _related_score(self, row: PassageRow) -> float:
        """The share of the question that the passage has only in related words."""
        if self._related_to_terms.isdisjoint(row.stems):
            return 0.0
        present = frozenset(row.stems)
        missing = [word for word in self.rarity if word not in present]
        score = sum(
            self.rarity[word]
            for word in missing
            if not present.isdisjoint(self._related.get(word, ()))
        )
        return score / self._total_rarity

    def _row_cues(self, row: PassageRow) -> dict[str, float]:
        """The values of its author and date."""
        cues = self._question.cues
        is_month = row.month in cues.months
        is_day = is_month and cues.day is not None and abs(row.day - cues.day) <= DAY_SLACK
        is_author = self._author is not None and row.author == self._author
        return {
            "author": float(is_author),
            "self": float(is_author and row.flags & IS_PERSONAL > 0),
            "month": is_month,
            "day": is_day,
            "year": row.year in cues.years,
        }


def shared_pairs(pairs: frozenset[tuple[object, object]], passage: Iterable[object]) -> float:
    """The share of the question's pairs of adjacent words that a passage has, too."""
    return len(pairs.intersection(pairwise(passage))) / len(pairs) if pairs else 0.0


def _counts(words: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


@cache
def _log_of_length(words: int) -> float:
    return math.log1p(words)
