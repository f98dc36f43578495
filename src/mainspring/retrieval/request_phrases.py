"""Maps phrases of requests to the words that tools and skills use for them.

`request_phrases.txt` contains the list. Phrases add words to a request and never remove one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from mainspring.retrieval.stems import stem, words

_FILE = Path(__file__).with_name("request_phrases.txt")
_MAX_BETWEEN = 4
"""The number of other words allowed between two words of a phrase."""


class Meaning(Struct, frozen=True):
    """The meaning of a phrase: one of the stems of each group."""

    groups: tuple[tuple[str, ...], ...]


class Phrase(Struct, frozen=True):
    stems: tuple[str, ...]
    meaning: Meaning


def meanings(request: Sequence[str]) -> tuple[Meaning, ...]:
    """The meanings of the phrases in a request, except phrases that are part of a longer one."""
    by_stem = _phrases()
    stems = [stem(word) for word in request]
    places: dict[Meaning, frozenset[int]] = {}
    for at, first in enumerate(stems):
        for phrase in by_stem.get(first, ()):
            if (of_phrase := _places(phrase.stems, stems, at)) is not None:
                before = places.get(phrase.meaning, frozenset())
                places[phrase.meaning] = before | of_phrase
    return tuple(
        meaning
        for meaning, own_places in places.items()
        if not any(own_places < other_places for other_places in places.values())
    )


def _places(phrase: Sequence[str], stems: Sequence[str], start: int) -> frozenset[int] | None:
    places = [start]
    for word in phrase[1:]:
        after = places[-1] + 1
        nearby = range(after, min(after + 1 + _MAX_BETWEEN, len(stems)))
        at = next((at for at in nearby if stems[at] == word), None)
        if at is None:
            return None
        places.append(at)
    return frozenset(places)


@cache
def _phrases() -> Mapping[str, Sequence[Phrase]]:
    """The phrases by the stem of their first word."""
    by_stem: dict[str, list[Phrase]] = defaultdict(list)
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        target, _, phrases = line.partition(" = ")
        groups = tuple(tuple(stem(word) for word in group.split("|")) for group in target.split())
        meaning = Meaning(groups)
        for phrase in phrases.split(";"):
            stems = tuple(stem(word) for word in words(phrase))
            by_stem[stems[0]].append(Phrase(stems, meaning))
    return by_stem
