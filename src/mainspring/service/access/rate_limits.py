"""How often somebody may ask: token buckets, counted in this process only.

With several API processes each counts for itself: together they let in so many times as much.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_BURST_SECONDS = 10
_EPSILON = 1e-6
"""Less than this is the error of floating point."""


@dataclass(frozen=True, slots=True)
class Rate:
    per_minute: int

    @property
    def interval(self) -> float:
        """Seconds in which one request grows back."""
        return 60 / self.per_minute

    @property
    def burst(self) -> int:
        """What may come at once: ten seconds' worth, and never less than five."""
        return max(5, self.per_minute * _BURST_SECONDS // 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitStatus:
    """Of a bucket, after a request was let in or refused."""

    rate: Rate
    remaining: int
    """How many more may come at once."""
    full_in_seconds: float
    wait_seconds: float = 0.0
    """0 if it was let in."""

    @property
    def is_refused(self) -> bool:
        return self.wait_seconds > 0


class TokenBuckets:
    """By name. A bucket that has not been asked for in long is full again, so it is forgotten: so
    many are kept at most."""

    def __init__(
        self, *, most: int = 10_000, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._monotonic = monotonic
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When each would be full if nobody asked any more: all that is to be known of it."""

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_seconds(self, name: str, rate: Rate) -> float:
        """How long until one more would be let in; 0 if it would be now."""
        return _wait_seconds(self._full_in(name, self._monotonic()), rate)

    def take(self, *wanted: tuple[str, Rate]) -> Sequence[RateLimitStatus]:
        """One of each, or, when one is empty, none of any."""
        now = self._monotonic()
        waits = [_wait_seconds(self._full_in(name, now), rate) for name, rate in wanted]
        if not any(waits):
            for name, rate in wanted:
                self._full_at[name] = now + self._full_in(name, now) + rate.interval
                self._full_at.move_to_end(name)
        standings = [
            RateLimitStatus(
                rate=rate,
                remaining=_remaining(self._full_in(name, now), rate),
                full_in_seconds=self._full_in(name, now),
                wait_seconds=wait,
            )
            for (name, rate), wait in zip(wanted, waits, strict=True)
        ]
        while len(self._full_at) > self._most:
            self._full_at.popitem(last=False)
        return standings

    def _full_in(self, name: str, now: float) -> float:
        return max(0.0, self._full_at.get(name, now) - now)


def _wait_seconds(full_in: float, rate: Rate) -> float:
    wait = full_in - (rate.burst - 1) * rate.interval
    return wait if wait > _EPSILON else 0.0


def _remaining(full_in: float, rate: Rate) -> int:
    return max(0, int(rate.burst - full_in / rate.interval + _EPSILON))
