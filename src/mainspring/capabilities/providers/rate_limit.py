"""Rate limits of one provider: concurrent calls, requests per minute, tokens per minute."""

from __future__ import annotations

from typing import Self

import anyio
from msgspec import Struct

from mainspring.capabilities.providers.retry import Timing


class RateLimitSettings(Struct, frozen=True, kw_only=True):
    """None: no limit."""

    max_concurrent: int | None = 16
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class TokenBucket:
    """A minute's allowance that refills evenly. It may become negative; callers then wait.

    Every caller takes its amount at once and gets the time to wait, so callers keep their order,
    and a request larger than the whole allowance still gets its turn.
    """

    def __init__(self, per_minute: int, now: float) -> None:
        self._per_second = per_minute / 60
        self._full = float(per_minute)
        self._level = self._full
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take an amount, and return the seconds to wait. A negative amount returns tokens."""
        self._level = min(self._full, self._level + (now - self._at) * self._per_second)
        self._at = now
        self._level = min(self._full, self._level - amount)
        return max(0.0, -self._level / self._per_second)


class CallSlot:
    """One call's slot at its provider, and its estimated tokens: set `used` once the provider has
    counted. Not a generator, since every turn uses one."""

    def __init__(self, limiter: RateLimiter, estimated_tokens: int) -> None:
        self._limiter = limiter
        self.estimated = self.used = estimated_tokens

    async def __aenter__(self) -> Self:
        await self._limiter.enter(self)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._limiter.leave(self)


class RateLimiter:
    """One provider's limits, shared by all calls to it."""

    def __init__(self, settings: RateLimitSettings, timing: Timing) -> None:
        now = timing.clock()
        self._timing = timing
        most = settings.max_concurrent
        self._slots = anyio.Semaphore(most, fast_acquire=True) if most else None
        self._requests = _bucket(settings.requests_per_minute, now)
        self._tokens = _bucket(settings.tokens_per_minute, now)

    @property
    def counts_tokens(self) -> bool:
        """Whether an estimate of a request's tokens is needed; estimating reads the whole
        request."""
        return self._tokens is not None

    def slot(self, estimated_tokens: int) -> CallSlot:
        """A context that waits for a slot and occupies it."""
        return CallSlot(self, estimated_tokens)

    async def enter(self, slot: CallSlot) -> None:
        if self._slots is not None:
            await self._slots.acquire()
        try:
            await self._wait(slot.estimated)
        except BaseException:
            self.leave(slot)
            raise

    def leave(self, slot: CallSlot) -> None:
        if self._tokens is not None:
            self._tokens.take(slot.used - slot.estimated, self._timing.clock())
        if self._slots is not None:
            self._slots.release()

    async def _wait(self, tokens: int) -> None:
        now = self._timing.clock()
        waits = [
            bucket.take(amount, now)
            for bucket, amount in ((self._requests, 1), (self._tokens, tokens))
            if bucket is not None
        ]
        seconds = max(waits, default=0.0)
        if seconds > 0:
            await self._timing.sleep(seconds)


def _bucket(per_minute: int | None, now: float) -> TokenBucket | None:
    return None if per_minute is None else TokenBucket(per_minute, now)
