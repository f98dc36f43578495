"""A circuit breaker: after repeated failures, a model is not called for a while; then one call
tests it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.capabilities.providers.retry import ACCESS_LOST
from mainspring.core.errors import ProviderFailed

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]


class BreakerSettings(Struct, frozen=True, kw_only=True):
    failures: int = 3
    """Failed calls in a row, each with its retries, that open it."""
    cooldown_seconds: float = 30.0
    max_cooldown_seconds: float = 600.0
    """Every failed probe doubles the cooldown, up to this."""
    access_cooldown_seconds: float = 60.0
    """The cooldown after a rejected key, which opens the breaker immediately."""


class BreakerPermit:
    """Permission for one call. The first of these methods to be called ends it; later ones have no
    effect."""

    def __init__(self, circuit_breaker: CircuitBreaker) -> None:
        self._circuit_breaker = circuit_breaker

    def succeed(self) -> None:
        self._circuit_breaker.succeeded(self)

    def fail(self, failure: ProviderFailed) -> None:
        self._circuit_breaker.failed(self, failure)

    def release(self) -> None:
        """The call ended without information about the model: cancelled, or our error."""
        self._circuit_breaker.released(self)


class CircuitBreaker:
    """Closed, open until a time, or half open: then one call at a time may probe."""

    def __init__(self, settings: BreakerSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._failures = 0
        self._openings = 0
        self._open_until: float | None = None
        self._probe: BreakerPermit | None = None
        self.opened_by: ProviderFailed | None = None

    @property
    def state(self) -> BreakerState:
        if self._open_until is None:
            return "closed"
        return "open" if self._clock() < self._open_until else "half_open"

    @property
    def seconds_left(self) -> float:
        """Seconds until a probe is allowed; 0 unless it is open."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - self._clock())

    @property
    def is_admitting(self) -> bool:
        return self.state == "closed" or (self.state == "half_open" and self._probe is None)

    def admit(self, *, is_only: bool = False) -> BreakerPermit | None:
        """A permit for one call, or `None`. If it is the only model that a call can use, the call
        is always permitted, and tests it."""
        if not (self.is_admitting or is_only):
            return None
        admission = BreakerPermit(self)
        if self._open_until is not None:
            self._probe = admission
        return admission

    def succeeded(self, breaker_permit: BreakerPermit) -> None:
        if self._is_late(breaker_permit):
            return
        self._failures = 0
        self._openings = 0
        self._open_until = None
        self._probe = None

    def failed(self, breaker_permit: BreakerPermit, failure: ProviderFailed) -> None:
        if self._is_late(breaker_permit):
            return
        was_probe, self._probe = self._probe is not None, None
        self._failures += 1
        is_lost = failure.kind in ACCESS_LOST
        if is_lost or was_probe or self._failures >= self._settings.failures:
            self.opened_by = failure
            seconds = max(self._cooldown(is_lost=is_lost), failure.retry_after_seconds or 0.0)
            self._open_until = self._clock() + seconds
            self._openings += 1

    def released(self, breaker_permit: BreakerPermit) -> None:
        if self._probe is breaker_permit:
            self._probe = None

    def _is_late(self, breaker_permit: BreakerPermit) -> bool:
        """Whether the call began before the breaker opened: since then, only a probe counts."""
        return self._open_until is not None and self._probe is not breaker_permit

    def _cooldown(self, *, is_lost: bool) -> float:
        settings = self._settings
        first = settings.access_cooldown_seconds if is_lost else settings.cooldown_seconds
        return min(settings.max_cooldown_seconds, first * 2**self._openings)
