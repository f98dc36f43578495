"""Rate limits: token buckets in this process only. With several API processes, each counts
separately."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

_BURST_SECONDS = 10  # whose requests may come at once
_EPSILON = 1e-6
"""Smaller differences are rounding errors."""


@dataclass(frozen=True)
class Rate:
    per_minute: int

    @cached_property
    def interval(self) -> float:
        """Seconds until one more request is allowed."""
        return 60 / self.per_minute

    @cached_property
    def burst(self) -> int:
        """Requests that may come at once: those of ten seconds, at least five."""
        return max(5, self.per_minute * _BURST_SECONDS // 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitStatus:
    """The status of a bucket after a request."""

    rate: Rate
    remaining: int
    """Requests that may still come at once."""
    full_in_seconds: float
    wait_seconds: float = 0.0
    """0 if the request was accepted."""


class TokenBuckets:
    """Buckets by name. A bucket that was not used for long is full again, so the oldest can be
    forgotten."""

    def __init__(
        self, *, most: int = 10_000, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._monotonic = monotonic
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When each will be full again without further requests: its whole state."""

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_seconds(self, name: str, rate: Rate) -> float:
        """Seconds until one more request is accepted; 0: now."""
        now = self._monotonic()
        wait = self._full_at.get(name, now) - now - (rate.burst - 1) * rate.interval
        return wait if wait > _EPSILON else 0.0

    def take(self, *buckets: tuple[str, Rate]) -> Sequence[RateLimitStatus]:
        """Take one token of each bucket, or of none if one is empty."""
        now = self._monotonic()
        waits = [self.wait_seconds(name, rate) for name, rate in buckets]
        statuses: list[RateLimitStatus] = []
        for (name, rate), wait in zip(buckets, waits, strict=True):
            full_in = max(0.0, self._full_at.get(name, now) - now)
            if not any(waits):
                full_in += rate.interval
                self._full_at[name] = now + full_in
                self._full_at.move_to_end(name)
            remaining = max(0, int(rate.burst - full_in / rate.interval + _EPSILON))
            statuses.append(
                RateLimitStatus(
                    rate=rate, remaining=remaining, full_in_seconds=full_in, wait_seconds=wait
                )
            )
        while len(self._full_at) > self._most:
            self._full_at.popitem(last=False)
        return statuses
