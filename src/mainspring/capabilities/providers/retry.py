"""Decides whether and when to retry a call to the same model; clock and randomness can be replaced
by tests."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct, field

from mainspring.core.errors import ProviderFailed, ProviderFailure

REQUEST_AT_FAULT = frozenset[ProviderFailure](
    ("prompt_too_long", "media_too_large", "invalid_request", "exhausted")
)
"""No model will accept the request: the caller must change it."""

ACCESS_LOST = frozenset[ProviderFailure](
    ("unauthorized", "forbidden", "billing", "not_found", "certificate")
)
"""This model will not answer until a person acts; another one may."""

_SLOW = frozenset[ProviderFailure](("timeout", "stalled"))


# The patience of a run without a person; outages of providers last minutes.
DEFAULT_RETRY_SECONDS = 600.0


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often one model is called while another one is available."""

    attempts: int = 3
    first_seconds: float = 1.0
    max_seconds: float = 20.0
    max_retry_after_seconds: float = 30.0
    """If a provider asks for a longer pause, the next model is used."""


class OutagePolicy(Struct, frozen=True, kw_only=True):
    """How long a call waits when no model answers. With these numbers, nine waits take 6 to 8
    minutes."""

    attempts: int = 10
    brief_attempts: int = 3
    """After failures that are no outage, such as a malformed response."""
    first_seconds: float = 2.0
    max_seconds: float = 120.0
    limit_seconds: float = DEFAULT_RETRY_SECONDS
    """No wait begins that would end later than this after the call began; 0: nothing is
    retried."""


def retry_delay(
    failure: ProviderFailed,
    attempt: int,
    *,
    retry_policy: RetryPolicy,
    rng: random.Random,
    is_alone: bool = False,
) -> float | None:
    """Seconds to wait before the same model is retried; None: do not retry.

    `attempt` is the number of the failed one, from 1. Waits have full jitter, so that sessions that
    failed together do not retry together. Slow failures are not retried while another model is
    available.
    """
    if not failure.retryable or attempt >= retry_policy.attempts:
        return None
    if failure.kind in _SLOW and not is_alone:
        return None
    ceiling = min(retry_policy.max_seconds, retry_policy.first_seconds * 2 ** (attempt - 1))
    jitter = rng.uniform(0, ceiling)
    requested = failure.retry_after_seconds
    if requested is None:
        return jitter
    # Jitter is added: every client got the same number.
    return requested + jitter if requested <= retry_policy.max_retry_after_seconds else None


def outage_attempts(failure: ProviderFailed, policy: OutagePolicy) -> int:
    return policy.attempts if failure.is_outage else policy.brief_attempts


def outage_delay(
    failure: ProviderFailed,
    attempt: int,
    *,
    policy: OutagePolicy,
    rng: random.Random,
    requested_seconds: float,
    waited_seconds: float,
) -> float | None:
    """Seconds to wait before all models are tried again; None: do not wait any longer.
    `requested_seconds`: what the provider asks for.

    Waits double; a quarter of each is random, so that sessions that failed together do not return
    together, and so that ten attempts last for minutes however the dice fall.
    """
    if not failure.retryable or attempt >= outage_attempts(failure, policy):
        return None
    ceiling = min(policy.max_seconds, policy.first_seconds * 2 ** (attempt - 1))
    seconds = requested_seconds + rng.uniform(0.75, 1.0) * ceiling
    return seconds if waited_seconds + seconds <= policy.limit_seconds else None


class Timing(Struct, frozen=True, kw_only=True):
    clock: Callable[[], float] = time.monotonic
    """A monotonic clock, in seconds."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    random: random.Random = field(default_factory=random.Random)
