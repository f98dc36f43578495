"""The only module that reads the clock; all other code takes a `Clock` as a parameter."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)  # the precision of times in the log


def now() -> datetime:
    return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    """Exact microseconds since 1970, as stored and hashed."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
