"""The memory query of a message: makes relative dates absolute, and leaves out what the message
says it is not about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime

from mainspring.retrieval.stems import stems
from mainspring.runtime.memory.learning.absolute_dates import make_dates_absolute

_NEGATED = re.compile(
    r"\b(?:not about|not the|nothing (?:about|to do with)|except(?: for)?|other than|apart from"
    r"|besides|ignore|ignoring|forget about|without(?: using)?|leave out"
    r"|(?:don'?t|do not|never) (?:use|need|mention|consider|look at|touch|include|want))\s+"
    r"(?P<what>[^.,;:!?\n]+?)(?=$|[.,;:!?\n]|\b(?:but|and instead|only)\b)",
    re.IGNORECASE,
)
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_HALF, _SEVERAL = 0.5, 0.3  # shares of the subjects: any, or of two or more
_MONTH_NAMES: list[str] = [*_MONTHS.split("|")]
_YEAR = re.compile(r"\b(?:19|20)\d\d\b(?!-)")
_IN_YEAR = r"(?:,? (?P<year>\d{4}))?"
_NAMED_DAYS = (
    re.compile(rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_MONTHS}){_IN_YEAR}"),
    re.compile(rf"\b(?P<month>{_MONTHS}) (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b{_IN_YEAR}"),
)
_DATE_WORDS = re.compile(rf"\b(?:\d[\d-]*(?:st|nd|rd|th)?|{_MONTHS}|week of|day|days)\b")
_ISO_DAY = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_ISO_MONTH = re.compile(r"\b(\d{4})-(\d{2})\b(?!-)")


@dataclass(frozen=True, slots=True)
class RecallQuery:
    text: str
    """The text to search for."""
    subjects: frozenset[str] = frozenset()
    """Stems of the message's subjects, without dates."""
    negated: frozenset[str] = frozenset()
    """Stems of the subjects that the message excludes."""
    dates: frozenset[str] = frozenset()
    """Days, months and years that it names: `2026-05-05`, `05-05`, `2026-05`, `2026`."""

    @classmethod
    def of(cls, message: str, now: datetime) -> RecallQuery:
        negated = {stem for match in _NEGATED.finditer(message) for stem in stems(match["what"])}
        absolute = make_dates_absolute(_NEGATED.sub(" ", message), now.date())
        subjects = frozenset(stems(_DATE_WORDS.sub(" ", absolute)))
        return cls(_spelled_dates(absolute), subjects, frozenset(negated), _dates(absolute))

    def names_date(self, time: datetime | None) -> float:
        """1 if the message names the day, 0.5 if it names the month or year, else 0."""
        if time is None or not self.dates:
            return 0.0
        if self.dates & {f"{time:%Y-%m-%d}", f"{time:%m-%d}"}:
            return 1.0
        return 0.5 if self.dates & {f"{time:%Y-%m}", f"{time:%Y}"} else 0.0

    def is_covered_by(self, title: str, text: str) -> bool:
        """Whether a memory covers half of the message's subjects, or several of them."""
        shared = len(self.subjects & set(stems(f"{title} {text}")))
        share = shared / len(self.subjects) if self.subjects else 0.0
        return share >= _HALF or (shared > 1 and share >= _SEVERAL)

    def excludes(self, title: str, text: str) -> bool:
        """Whether a memory is about an excluded subject and about none of the others."""
        if not self.negated:
            return False
        memory_stems = set(stems(f"{title} {text}"))
        share = len(self.negated & memory_stems) / len(self.negated)
        return share > 0.5 and not (self.subjects - self.negated) & memory_stems


def _dates(text: str) -> frozenset[str]:
    iso = {match[0] for match in _ISO_DAY.finditer(text)}
    months = {match[0] for match in _ISO_MONTH.finditer(text)}
    years = {match[0] for match in _YEAR.finditer(text)} if not iso | months else set[str]()
    day_matches = [match for form in _NAMED_DAYS for match in form.finditer(text)]
    days = {
        "-".join(filter(None, (match["year"], f"{_MONTH_NAMES.index(match['month']) + 1:02}",
                               f"{int(match['day']):02}")))
        for match in day_matches
    }  # fmt: skip
    return frozenset(iso | months | days | (years if not days else set()))


def _spelled_dates(text: str) -> str:
    """Spell ISO dates as a search understands them: 16 November 2026."""

    def day(match: re.Match[str]) -> str:
        try:
            parsed_day = date(int(match[1]), int(match[2]), int(match[3]))
        except ValueError:
            return match[0]
        return f"{parsed_day.day} {parsed_day:%B} {parsed_day.year}"

    def month(match: re.Match[str]) -> str:
        try:
            return f"{date(int(match[1]), int(match[2]), 1):%B %Y}"
        except ValueError:
            return match[0]

    return _ISO_MONTH.sub(month, _ISO_DAY.sub(day, text))
