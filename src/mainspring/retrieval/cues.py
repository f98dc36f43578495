"""Cues beyond words, in a question and in a passage: dates, numbers, names, places, people, the
author, and whether a passage is itself a question. They are English; other languages have none.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_TIME_WORDS = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|week|weekend|month|year|recently|since"
    r"|morning|birthday|anniversary|\d{4}|(?:mon|tues|wednes|thurs|fri|satur|sun)day|"
    + "|".join(_MONTHS)
    + r")\b",
    re.IGNORECASE,
)
_NUMBERS = re.compile(
    r"\b(?:\d+|one|two|three|four|five|six|seven|eight|nine|ten|couple|few|several|dozen|once"
    r"|twice)\b",
    re.IGNORECASE,
)
_NAMES = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
_ASKS_WHEN = re.compile(
    r"^\s*(?:when|how long|what (?:date|day|month|year|time)|in (?:which|what) (?:month|year)"
    r"|which (?:day|month|year))\b",
    re.IGNORECASE,
)
_ASKS_HOW_MANY = re.compile(r"\bhow (?:many|much|often|old|long)\b", re.IGNORECASE)
_ASKS_NAME = re.compile(
    r"^\s*(?:where|who|which|whose)\b"
    r"|\b(?:name|called|title|city|country|state|book|movie|band|game|place)\b",
    re.IGNORECASE,
)
_ASKS_PLACE = re.compile(
    r"^\s*where\b|\b(?:cit(?:y|ies)|countr(?:y|ies)|states?|places?|locations?)\b", re.IGNORECASE
)
_ASKS_PERSON = re.compile(r"^\s*who\b|\b(?:whose|whom)\b", re.IGNORECASE)
_ASKS_TITLE = re.compile(
    r"\b(?:book|movie|film|song|show|game|series|title|name|named|called)\b", re.IGNORECASE
)
_ASKS_DURATION = re.compile(
    r"\bhow (?:long|old|many (?:year|month|day|week|hour)s?)\b", re.IGNORECASE
)
_FIRST_PERSON_WORDS = re.compile(r"\b(?:i|my|me|mine|myself|we|our|us)\b", re.IGNORECASE)
_PLACES = re.compile(r"\b(?:in|at|to|from|near) (?:the )?[A-Z]")
_PERSONS = re.compile(
    r"\b(?:mom|mum|mother|dad|father|parents?|sons?|daughters?|kids?|child|children|brothers?"
    r"|sisters?|siblings?|wife|husband|partner|girlfriend|boyfriend|friends?|aunt|uncle|cousins?"
    r"|grand[a-z]+|family|coworkers?|colleagues?|boss|neighbou?rs?|teacher|coach)\b",
    re.IGNORECASE,
)
_QUOTES = re.compile('["\u201c\u201d]')
_DURATIONS = re.compile(
    r"\b(?:\d+|one|two|three|four|five|six|seven|eight|nine|ten|few|couple|several|a|many)"
    r" (?:[a-z]+ )?(?:second|minute|hour|day|week|month|year|decade)s?\b"
    r"|\bsince\b|\bfor (?:years|months|ages|weeks)\b",
    re.IGNORECASE,
)
_LETTERS = re.compile(r"[A-Za-z]+")
_YEAR = re.compile(r"\b((?:19|20)\d\d)\b")
_DAY = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)?\b")
_SPEAKER_WORDS = re.compile(r"[a-z']+")
_FIRST_PERSON = frozenset(("i", "my", "me", "i've", "i'm"))
USER = "user"


# The cues of a passage, one bit each.
IS_QUESTION, HAS_TIME, HAS_NUMBER, HAS_NAME, ASKS, IS_PERSONAL = (1 << at for at in range(6))
HAS_PLACE, HAS_PERSON, HAS_TITLE, HAS_DURATION = (1 << at for at in range(6, 10))
_PATTERNS = {
    HAS_TIME: _TIME_WORDS,
    HAS_NUMBER: _NUMBERS,
    HAS_NAME: _NAMES,
    IS_PERSONAL: _FIRST_PERSON_WORDS,
    HAS_PLACE: _PLACES,
    HAS_PERSON: _PERSONS,
    HAS_TITLE: _QUOTES,
    HAS_DURATION: _DURATIONS,
}


def is_question(text: str) -> bool:
    return text.rstrip().endswith("?")


def passage_flags(text: str) -> int:
    """The cues in a text: `IS_QUESTION` if it ends as a question, `ASKS` if it has one, ..."""
    flags = sum(flag for flag, pattern in _PATTERNS.items() if pattern.search(text))
    if "?" in text:
        flags |= ASKS | is_question(text) * IS_QUESTION
    return flags


@dataclass(frozen=True, slots=True)
class QueryCues:
    asks_when: bool
    asks_how_many: bool
    asks_name: bool
    asks_place: bool
    asks_person: bool
    asks_title: bool
    asks_duration: bool
    months: frozenset[int]
    years: frozenset[int]
    day: int | None
    speakers: frozenset[str]
    """Words that may name an author; `user` if the question is in the first person."""

    def author(self, authors: Collection[str]) -> str | None:
        """The author that the question names, if it names only one."""
        named = self.speakers.intersection(authors)
        return next(iter(named)) if len(named) == 1 else None

    @property
    def flag_values(self) -> dict[str, int]:
        """The flags of a passage that count, by the name of their part of the score."""
        flags = {
            "when": self.asks_when * HAS_TIME,
            "number": self.asks_how_many * HAS_NUMBER,
            "name": self.asks_name * HAS_NAME,
            "place": self.asks_place * HAS_PLACE,
            "person": self.asks_person * HAS_PERSON,
            "title": self.asks_title * HAS_TITLE,
            "duration": self.asks_duration * HAS_DURATION,
        }
        requested = {name: flag for name, flag in flags.items() if flag}
        return {"question": IS_QUESTION, "time": HAS_TIME, **requested}

    @classmethod
    def of(cls, query: str) -> QueryCues:
        months = frozenset(
            _MONTHS.index(word.lower()) + 1
            for word in _LETTERS.findall(query)
            if word.lower() in _MONTHS and (word.lower() != "may" or word == "May")
        )
        days = [int(day) for day in _DAY.findall(query)] if months else []
        return cls(
            _ASKS_WHEN.search(query) is not None,
            _ASKS_HOW_MANY.search(query) is not None,
            _ASKS_NAME.search(query) is not None,
            _ASKS_PLACE.search(query) is not None,
            _ASKS_PERSON.search(query) is not None,
            _ASKS_TITLE.search(query) is not None,
            _ASKS_DURATION.search(query) is not None,
            months,
            frozenset(map(int, _YEAR.findall(query))),
            days[0] if days else None,
            _speakers(query),
        )


def _speakers(query: str) -> frozenset[str]:
    words = set(_SPEAKER_WORDS.findall(query.lower()))
    words |= {word.removesuffix("'s") for word in words}
    return frozenset((*words, USER)) if words & _FIRST_PERSON else frozenset(words - {USER})
