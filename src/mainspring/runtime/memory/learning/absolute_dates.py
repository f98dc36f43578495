"""Relative dates made absolute: "tomorrow" means nothing when a memory is read in a year."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import date, timedelta

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6,
    "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip
_AMOUNT = rf"(?P<amount>\d{{1,3}}|{'|'.join(_NUMBERS)})\s+(?P<unit>day|week|month|year)s?"
_WEEKDAY = rf"(?P<day>{'|'.join(_DAYS)})"


def make_dates_absolute(text: str, today: date) -> str:
    """Replace dates that are relative to `today`, the day the text was written, with ISO dates."""
    for pattern, replacement in _RULES:
        text = pattern.sub(lambda match, make=replacement: make(match, today), text)
    return text


def _shift(day: date, amount: int, unit: str) -> str:
    if unit == "day":
        return (day + timedelta(days=amount)).isoformat()
    if unit == "week":
        return (day + timedelta(weeks=amount)).isoformat()
    months = day.year * 12 + day.month - 1 + amount * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    if not date.min.year <= year <= date.max.year:
        return ""
    return f"{year:04}" if unit == "year" else f"{year:04}-{month + 1:02}"


def _amount_date(match: re.Match[str], today: date, sign: int) -> str:
    amount = match["amount"].lower()
    number = _NUMBERS.get(amount) or int(amount)
    shifted = _shift(today, sign * number, match["unit"].lower())
    return f"{'on' if match['unit'].lower() in ('day', 'week') else 'in'} {shifted}"


def _period(match: re.Match[str], today: date) -> str:
    """`last week`, `this month`, `next year`: the first day of a week, else the month or year."""
    amount = {"last": -1, "this": 0, "next": 1}[match["which"].lower()]
    unit = match["unit"].lower()
    if unit == "week":
        monday = today - timedelta(days=today.weekday()) + timedelta(weeks=amount)
        return f"in the week of {monday.isoformat()}"
    return f"in {_shift(today, amount, unit)}"


def _weekday(match: re.Match[str], today: date) -> str:
    weekday = _DAYS.index(match["day"].lower())
    if match["which"].lower() == "last":
        days = -((today.weekday() - weekday - 1) % 7 + 1)
    else:
        days = (weekday - today.weekday() - 1) % 7 + 1
    return f"on {(today + timedelta(days=days)).isoformat()}"


def _until(match: re.Match[str], today: date) -> str:
    """`until Friday`: the next one, today's included."""
    days = (_DAYS.index(match["day"].lower()) - today.weekday()) % 7
    return f"{match['until']} {(today + timedelta(days=days)).isoformat()}"


def _end(match: re.Match[str], today: date) -> str:
    """The last day of this week (a Sunday), month or year."""
    unit = match["unit"].lower()
    if unit == "week":
        return (today + timedelta(days=6 - today.weekday())).isoformat()
    month = 12 if unit == "year" else today.month
    return date(today.year, month, monthrange(today.year, month)[1]).isoformat()


def _days(amount: int) -> Callable[[re.Match[str], date], str]:
    return lambda _, today: _shift(today, amount, "day")


def _rule(
    pattern: str, make: Callable[[re.Match[str], date], str]
) -> tuple[re.Pattern[str], Callable[[re.Match[str], date], str]]:
    return re.compile(rf"(?<![\w-]){pattern}(?![\w-])", re.IGNORECASE), make


_RULES = (
    _rule(r"(?:the\s+)?day\s+after\s+tomorrow", _days(2)),
    _rule(r"(?:the\s+)?day\s+before\s+yesterday", _days(-2)),
    _rule(r"tomorrow", _days(1)),
    _rule(r"yesterday", _days(-1)),
    _rule(r"last\s+night", _days(-1)),
    _rule(r"(?:today|tonight|this\s+(?:morning|afternoon|evening))", _days(0)),
    _rule(rf"{_AMOUNT}\s+ago", lambda match, today: _amount_date(match, today, -1)),
    _rule(rf"in\s+{_AMOUNT}(?!\s+ago)", lambda match, today: _amount_date(match, today, 1)),
    _rule(rf"(?:on\s+)?(?P<which>last|next|this)\s+{_WEEKDAY}", _weekday),
    _rule(rf"(?P<until>until|till|by|before)\s+{_WEEKDAY}", _until),
    _rule(r"(?:the\s+)?end\s+of\s+(?:the|this)\s+(?P<unit>week|month|year)", _end),
    _rule(r"(?:in\s+)?(?P<which>last|this|next)\s+(?P<unit>week|month|year)", _period),
)
