"""BM25 over texts with fields, in memory. Pure: the caller owns the texts and their storage."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import mul
from typing import TypeAlias

from msgspec import Struct

from mainspring.retrieval.request_phrases import Meaning
from mainspring.retrieval.requests import ActionRequest, action_of, parse_request
from mainspring.retrieval.stems import STOP_WORDS, name_words, stem
from mainspring.retrieval.thesaurus import related_stems

_K1 = 1.0  # of BM25: how fast a repeated word stops counting; texts of tools are short
_B = 0.6  # the length of a description means little
_FIELD_WEIGHTS = (3.0, 4.0, 1.0, 0.5, 0.2)  # of a group, a name, a lead, a text and keywords
_RELATED_WEIGHT = 0.5  # of a related word beside the word itself
_MEANING_WEIGHT = 0.5  # of the meaning of a phrase, besides the words themselves
_OTHER_MEANING = 0.3  # a request means one thing, so its other possible meanings count less
_PART_OF_MEANING = 3  # the power of the share of a meaning that a text has
_COVERAGE_WEIGHT = 0.6  # how much of the request a text answers
_NAME_WEIGHT = 0.5  # how much of its name is in the request
_SAME_ACTION = 1.3  # the factor of a tool that does what is asked
_OTHER_ACTION = 0.85  # the factor of a tool that does something else to the same things
_GROUP_WEIGHT = 0.1  # of the mean score of a group's best texts, added to each of its texts
_GROUP_BEST = 3  # texts that speak for their group
_REPEATED = 0.87  # for each better text of the same group that matches the same words
_COMPARED = 60  # best texts of which repetitions are moved down; the rest keeps its order
_VECTOR_WEIGHT = 5.0  # the score of a cosine of 1
_ENCODED_CHARACTERS = 200  # the rest of a text is about details
_EXACT = 1000.0  # above every other score: somebody has typed the name
_LEAD_WORDS = 3  # that a sentence needs to count as the lead
_PURPOSE = re.compile(r"\b(?:Purpose|Description|Summary): ")
_HEADING = re.compile(r" (?:Error Responses|Usage Example|Args|Arguments|Returns|Examples?):")


Encode: TypeAlias = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Returns vectors of length one for texts, from the caller's table or model."""


class RankedText(Struct, frozen=True):
    """A text to rank: its name counts most, then the group, the keywords least."""

    key: str
    name: str
    text: str
    keywords: str = ""
    group: str = ""
    """Its source, such as a server. Among texts that match the same words, other groups get a
    place, too."""


class _Entry(Struct, frozen=True):
    key: str
    group: str
    name_stems: frozenset[str]
    action: str


class _Match(Struct):
    score: float = 0.0
    rarity: float = 0.0
    terms: int = 0
    """One bit for each term of the request."""


class Bm25Index:
    """Finds texts by the words of a query or related ones; with `encode`, also by their meaning."""

    def __init__(
        self, texts: Sequence[RankedText] | Mapping[str, str], *, encode: Encode | None = None
    ) -> None:
        if isinstance(texts, Mapping):
            texts = [RankedText(name, name, text) for name, text in texts.items()]
        by_key = {text.key: text for text in texts}
        ordered = [by_key[key] for key in sorted(by_key)]
        self._entries = [_entry(text) for text in ordered]
        self._exact = {text.key.lower(): text.key for text in ordered}
        self._postings: dict[str, dict[int, float]] = defaultdict(dict)
        self._encode = encode
        self._vectors = encode([_encoded_text(text) for text in ordered]) if encode else ()
        fields = [_fields(text) for text in ordered]
        for at, field_weight in enumerate(_FIELD_WEIGHTS):
            mean = max(1.0, sum(len(text[at]) for text in fields) / (len(fields) or 1))
            for number, text in enumerate(fields):
                spread = 1 - _B + _B * len(text[at]) / mean
                for word, count in Counter(text[at]).items():
                    weights = self._postings[word]
                    weights[number] = weights.get(number, 0.0) + field_weight * count / spread

    def search(self, query: str, count: int) -> list[str]:
        """The keys that match a query, best first; the same order for the same texts."""
        matches = self._matches(query)
        best = sorted(matches, key=lambda number: (-matches[number].score, number))
        scores = self._varied({number: matches[number] for number in best[:_COMPARED]})
        first = sorted(scores, key=lambda number: (-scores[number], number))
        keys = [self._entries[number].key for number in (*first, *best[_COMPARED:])]
        exact = self._exact.get(query.strip().lower())
        ranked = keys if exact is None else [exact, *(key for key in keys if key != exact)]
        return ranked[:count]

    def scores(self, query: str) -> dict[str, float]:
        """The scores of the keys that match."""
        matches = self._matches(query)
        scores = {self._entries[number].key: match.score for number, match in matches.items()}
        if (exact := self._exact.get(query.strip().lower())) is not None:
            scores[exact] = scores.get(exact, 0.0) + _EXACT
        return scores

    def _matches(self, query: str) -> dict[int, _Match]:
        request = parse_request(query)
        matches = self._word_matches(request)
        self._add_meaning_scores(matches, request)
        stems = _with_related(term.stem for term in request.terms) | _stems_of(request.meanings)
        for number, match in matches.items():
            entry = self._entries[number]
            match.score *= 1 - _NAME_WEIGHT + _NAME_WEIGHT * self._matching_share(entry, stems)
            match.score *= _action_factor(request.action, entry.action)
        self._add_vector_scores(matches, query)
        self._add_group_scores(matches)
        return matches

    def _word_matches(self, request: ActionRequest) -> dict[int, _Match]:
        matches: dict[int, _Match] = defaultdict(_Match)
        everything = 0.0
        for at, term in enumerate(request.terms):
            rarity = self._rarity(term.stem) * term.weight
            everything += rarity
            for number, score in self._word_scores(term.stem).items():
                match = matches[number]
                match.score += score * term.weight
                match.rarity += rarity
                match.terms |= 1 << at
        for match in matches.values():
            coverage = match.rarity / (everything or 1.0)
            match.score *= 1 - _COVERAGE_WEIGHT + _COVERAGE_WEIGHT * coverage
        return matches

    def _add_meaning_scores(self, matches: dict[int, _Match], request: ActionRequest) -> None:
        scores: dict[int, list[float]] = defaultdict(list)
        for meaning in request.meanings:
            for number, score in self._meaning_scores(meaning).items():
                scores[number].append(score)
        for number, meaning_scores in scores.items():
            best = max(meaning_scores)
            score = best + _OTHER_MEANING * (sum(meaning_scores) - best)
            matches[number].score += _MEANING_WEIGHT * score

    def _meaning_scores(self, meaning: Meaning) -> dict[int, float]:
        """Scores of the texts with words of its groups; far lower if they lack a group."""
        sums: dict[int, float] = defaultdict(float)
        shares: dict[int, float] = defaultdict(float)
        everything = 0.0
        for group in meaning.groups:
            rarity = min(
                (self._rarity(word) for word in group if word in self._postings), default=0
            )
            everything += rarity
            weights = self._group_weights(group)
            for number, weight in weights.items():
                sums[number] += rarity * (_K1 + 1) * weight / (weight + _K1)
                shares[number] += rarity
        return {
            number: score * (shares[number] / everything) ** _PART_OF_MEANING
            for number, score in sums.items()
        }

    def _group_weights(self, group: Sequence[str]) -> dict[int, float]:
        """The weight of the word of a group that counts most in a text."""
        best: dict[int, float] = {}
        for word in group:
            for number, weight in self._postings.get(word, {}).items():
                best[number] = max(best.get(number, 0.0), weight)
        return best

    def _add_vector_scores(self, matches: dict[int, _Match], query: str) -> None:
        if self._encode is None or not self._vectors:
            return
        (query_vector,) = self._encode([query])
        for number, vector in enumerate(self._vectors):
            if (similarity := sum(map(mul, query_vector, vector))) > 0:
                matches[number].score += _VECTOR_WEIGHT * similarity

    def _matching_share(self, entry: _Entry, stems: frozenset[str]) -> float:
        total = sum(map(self._rarity, entry.name_stems))
        return sum(map(self._rarity, entry.name_stems & stems)) / total if total else 0.0

    def _add_group_scores(self, matches: Mapping[int, _Match]) -> None:
        """Raise the score of a text if others of its group match, too."""
        groups: dict[str, list[float]] = defaultdict(list)
        for number, match in matches.items():
            groups[self._entries[number].group].append(match.score)
        best = {
            group: sum(sorted(scores, reverse=True)[:_GROUP_BEST]) / min(len(scores), _GROUP_BEST)
            for group, scores in groups.items()
            if group
        }
        for number, match in matches.items():
            match.score += _GROUP_WEIGHT * best.get(self._entries[number].group, 0.0)

    def _varied(self, matches: Mapping[int, _Match]) -> dict[int, float]:
        """The scores of the best texts, lower for those that repeat a better one."""
        seen: Counter[tuple[str, int]] = Counter()
        scores: dict[int, float] = {}
        for number, match in matches.items():
            group = self._entries[number].group
            scores[number] = match.score * _REPEATED ** (seen[group, match.terms] if group else 0)
            seen[group, match.terms] += 1
        return scores

    def _rarity(self, word: str) -> float:
        having = len(self._postings.get(word, ()))
        return math.log(1 + (len(self._entries) - having + 0.5) / (having + 0.5))

    def _word_scores(self, word: str) -> dict[int, float]:
        """Scores of the texts with the word or a related one; the best of these counts."""
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


def _with_related(words: Iterable[str]) -> frozenset[str]:
    related = related_stems()
    return frozenset(other for word in words for other in (word, *related.get(word, ())))


def _stems_of(meanings: Iterable[Meaning]) -> frozenset[str]:
    return frozenset(word for meaning in meanings for group in meaning.groups for word in group)


def _action_factor(requested: str, offered: str) -> float:
    if not requested or not offered:
        return 1.0
    return _SAME_ACTION if requested == offered else _OTHER_ACTION


def _entry(text: RankedText) -> _Entry:
    action = action_of(name_words(text.name)) or action_of(name_words(text.text)[:1])
    return _Entry(text.key, text.group, frozenset(_content_stems(text.name)), action)


def _encoded_text(text: RankedText) -> str:
    name = " ".join((*name_words(text.group), *name_words(text.name)))
    return f"{name}. {' '.join(text.text.split())[:_ENCODED_CHARACTERS]}"


def _fields(text: RankedText) -> tuple[list[str], ...]:
    parts = (text.group, text.name, _lead(text.text), text.text, text.keywords)
    return tuple(_content_stems(part) for part in parts)


def _lead(text: str) -> str:
    """The first sentence of some length, without headings."""
    plain = " ".join(text.split())
    purpose = _PURPOSE.search(plain)
    sentences = (plain[purpose.end() :] if purpose else plain).split(". ")
    lead = next((item for item in sentences if len(item.split()) >= _LEAD_WORDS), sentences[0])
    heading = _HEADING.search(lead)
    return lead[: heading.start()] if heading else lead


def _content_stems(text: str) -> list[str]:
    return [stem(word) for word in name_words(text) if word not in STOP_WORDS]
