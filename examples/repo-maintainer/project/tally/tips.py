"""What is given on top, and who of the staff gets it."""

from __future__ import annotations

from tally.money import split


def tip(total: int, percent: int) -> int:
    """A share of the total, to the nearest cent."""
    return (total * percent + 50) // 100


def pool(tips: list[int], staff: int) -> list[int]:
    """All tips of an evening, shared out among the staff."""
    return split(sum(tips), staff)
