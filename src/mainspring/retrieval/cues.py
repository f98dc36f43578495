"""Cues beyond words, in a question and in a passage: dates, numbers, names, who said it, and
whether a passage is itself a question. English; in other languages they are simply absent.
"""

from __future__ import annotations

import re
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
_LETTERS = re.compile(r"[A-Za-z]+")
_YEAR = re.compile(r"\b((?:19|20)\d\d)\b")
_DAY = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)?\b")
_SPEAKER_WORDS = re.compile(r"[a-z']+")
_FIRST_PERSON = frozenset(("i", "my", "me", "i've", "i'm"))
USER = "user"


@dataclass(frozen=True, slots=True)
class PassageCues:
    is_question: bool
    has_time: bool
    has_number: bool
    has_name: bool

    @classmethod
    def of(cls, text: str) -> PassageCues:
        return cls(
            text.rstrip().endswith("?"),
            _TIME_WORDS.search(text) is not None,
            _NUMBERS.search(text) is not None,
            _NAMES.search(text) is not None,
        )


@dataclass(frozen=True, slots=True)
class QueryCues:
    asks_when: bool
    asks_how_many: bool
    asks_name: bool
    months: frozenset[int]
    years: frozenset[int]
    day: int | None
    speakers: frozenset[str]
    """Words that may name who said something; `user` if the asker speaks of themselves."""

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
            months,
            frozenset(map(int, _YEAR.findall(query))),
            days[0] if days else None,
            _speakers(query),
        )


def _speakers(query: str) -> frozenset[str]:
    found = set(_SPEAKER_WORDS.findall(query.lower()))
    found |= {word.removesuffix("'s") for word in found}
    return frozenset((*found, USER)) if found & _FIRST_PERSON else frozenset(found - {USER})
